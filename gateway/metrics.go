package gateway

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

// values are metrics of one thing, by Flink's names where it has one.
type values map[string]float64

// metricID is a metric in a list of names.
type metricID struct {
	ID    string  `json:"id"`
	Value *string `json:"value,omitempty"`
}

// metricStats is a metric over several things.
type metricStats struct {
	ID   string   `json:"id"`
	Min  *float64 `json:"min,omitempty"`
	Max  *float64 `json:"max,omitempty"`
	Avg  *float64 `json:"avg,omitempty"`
	Sum  *float64 `json:"sum,omitempty"`
	Skew *float64 `json:"skew,omitempty"`
}

// asked returns the names of the query's get, nil where there is none.
func asked(r *http.Request) []string {
	text := r.URL.Query().Get("get")
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// tell answers a query of one thing: all names, or the values of those that are asked for and known.
func tell(r *http.Request, of values) answer {
	list := []metricID{}
	names := asked(r)
	if names == nil {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			list = append(list, metricID{ID: name})
		}
		return answer{body: list}
	}
	for _, name := range names {
		if value, ok := of[name]; ok {
			text := strconv.FormatFloat(value, 'f', -1, 64)
			list = append(list, metricID{name, &text})
		}
	}
	return answer{body: list}
}

// aggregations are how metrics of several things become one number.
var aggregations = []string{"min", "max", "sum", "avg", "skew"}

// tellAll answers a query over several things.
func tellAll(r *http.Request, of []values) (answer, error) {
	aggs := aggregations
	if text := r.URL.Query().Get("agg"); text != "" {
		aggs = strings.Split(text, ",")
		for _, a := range aggs {
			if !slices.Contains(aggregations, strings.ToLower(a)) {
				return answer{}, refuse(http.StatusBadRequest, "Bad request, could not parse parameters: Cannot resolve query parameter (agg) from value %q.", a)
			}
		}
	}
	list := []metricStats{}
	names := asked(r)
	if names == nil {
		known := map[string]bool{}
		for _, v := range of {
			for name := range v {
				known[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(known)) {
			list = append(list, metricStats{ID: name})
		}
		return answer{body: list}, nil
	}
	for _, name := range names {
		var all []float64
		for _, v := range of {
			if value, ok := v[name]; ok {
				all = append(all, value)
			}
		}
		if len(all) == 0 {
			return answer{body: []metricStats{}}, nil // as Flink does: one that is nowhere takes the others with it
		}
		list = append(list, statsOf(name, all, aggs))
	}
	return answer{body: list}, nil
}

func statsOf(name string, all []float64, aggs []string) metricStats {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	avg := sum / float64(len(all))
	skew := 0.0
	for _, v := range all {
		skew += math.Abs(v-avg) / float64(len(all))
	}
	if avg != 0 {
		skew = 100 * skew / avg
	}
	least, most := slices.Min(all), slices.Max(all)
	s := metricStats{ID: name}
	for _, a := range aggs {
		switch strings.ToLower(a) {
		case "min":
			s.Min = &least
		case "max":
			s.Max = &most
		case "sum":
			s.Sum = &sum
		case "avg":
			s.Avg = &avg
		case "skew":
			s.Skew = &skew
		}
	}
	return s
}

// perSecond is how much of a flow there was in a second.
func perSecond(n int64, f streammanager.Flow) float64 {
	if f.Time() <= 0 {
		return 0
	}
	return math.Round(float64(n)/f.Time().Seconds()*1000) / 1000
}

// stageValues are the metrics of a worker's part of a vertex.
func stageValues(s streammanager.Stage) values {
	ms := func(d time.Duration) float64 { return math.Round(1000 * ratio(d, s.Last)) }
	return values{
		"numRecordsIn": float64(s.Total.RecordsIn), "numRecordsOut": float64(s.Total.RecordsOut),
		"numBytesIn": float64(s.Total.BytesIn), "numBytesOut": float64(s.Total.BytesOut),
		"numRecordsInPerSecond": perSecond(s.Last.RecordsIn, s.Last), "numRecordsOutPerSecond": perSecond(s.Last.RecordsOut, s.Last),
		"numBytesInPerSecond": perSecond(s.Last.BytesIn, s.Last), "numBytesOutPerSecond": perSecond(s.Last.BytesOut, s.Last),
		"busyTimeMsPerSecond": ms(s.Last.Busy), "idleTimeMsPerSecond": ms(s.Last.Idle), "backPressuredTimeMsPerSecond": ms(s.Last.Backpressured),
		"accumulatedBusyTimeMs": float64(s.Total.Busy.Milliseconds()), "accumulatedIdleTimeMs": float64(s.Total.Idle.Milliseconds()),
		"accumulatedBackPressuredTimeMs": float64(s.Total.Backpressured.Milliseconds()),
	}
}

// jobValues are the metrics of a job.
func (p *seen) values() values {
	v := values{"numRestarts": float64(p.Restarts), "uptime": 0, "restartingTime": 0}
	switch p.State {
	case Running:
		v["uptime"] = float64(p.now.Sub(p.Since[Running]).Milliseconds())
	case Restarting:
		v["restartingTime"] = float64(p.now.Sub(p.Since[Restarting]).Milliseconds())
	}
	for _, w := range p.Workers {
		s := w.Status
		for name, n := range map[string]int64{
			"eventsRead": s.Read, "eventsEmitted": s.Emitted, "eventsDropped": s.Dropped, "eventsFailed": s.Errors, "eventsUnfinished": s.Unfinished,
			"eventsInFlight": int64(s.InFlightEvents), "bytesInFlight": s.InFlightBytes, "outputs": s.Outputs,
			"workers": int64(s.Workers), "workersBusy": int64(s.Busy), "partitions": int64(s.Partitions),
		} {
			v[name] += float64(n)
		}
	}
	return v
}

// values are the metrics of a process.
func (w *workerSum) values() values {
	m := w.Memory
	return values{
		"Status.JVM.Memory.Heap.Used": float64(m.HeapUsed), "Status.JVM.Memory.Heap.Committed": float64(m.HeapHeld), "Status.JVM.Memory.Heap.Max": float64(m.Limit),
		"Status.JVM.Memory.NonHeap.Used": float64(m.Other), "Status.JVM.Memory.NonHeap.Committed": float64(m.Other), "Status.JVM.Memory.NonHeap.Max": -1,
		"Status.JVM.GarbageCollector.Go.Count": float64(m.Collections), "Status.JVM.GarbageCollector.Go.Time": float64(m.CollectingMs),
		"Status.JVM.CPU.Cores": float64(w.CPUs),
	}
}

func (g *Gateway) processMetrics(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	if err != nil {
		return answer{}, err
	}
	own := values{}
	for _, w := range g.workersOf(all) {
		if w.ID == g.cfg.Worker {
			own = w.values()
		}
	}
	slots, free, running := 0, 0, 0
	for _, w := range g.workersOf(all) {
		slots, free = slots+w.slots, free+w.slots-w.busy
	}
	for _, p := range all {
		if !p.State.Final() {
			running++
		}
	}
	own["taskSlotsTotal"], own["taskSlotsAvailable"], own["numRunningJobs"] = float64(slots), float64(free), float64(running)
	own["numRegisteredTaskManagers"] = float64(len(g.workersOf(all)))
	return tell(r, own), nil
}

// taskManagerMetrics answers [] for one that is unknown, as Flink does.
func (g *Gateway) taskManagerMetrics(r *http.Request) (answer, error) {
	w, err := g.worker(r)
	if err != nil {
		return answer{body: []metricID{}}, nil //nolint:nilerr // see above
	}
	return tell(r, w.values()), nil
}

func (g *Gateway) taskManagersMetrics(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	if err != nil {
		return answer{}, err
	}
	only := r.URL.Query().Get("taskmanagers")
	var of []values
	for _, w := range g.workersOf(all) {
		if only == "" || slices.Contains(strings.Split(only, ","), w.ID) {
			of = append(of, w.values())
		}
	}
	return tellAll(r, of)
}

// jobMetrics answers [] for a job that is unknown, as Flink does.
func (g *Gateway) jobMetrics(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return unknownMetrics(err)
	}
	return tell(r, p.values()), nil
}

// unknownMetrics is the answer for a thing that is not there; another error stays one.
func unknownMetrics(err error) (answer, error) {
	if status, _ := statusOf(err); status == http.StatusNotFound {
		return answer{body: []metricID{}}, nil
	}
	return answer{}, err
}

func (g *Gateway) jobsMetrics(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	if err != nil {
		return answer{}, err
	}
	only := strings.ToLower(r.URL.Query().Get("jobs"))
	var of []values
	for _, p := range all {
		if only == "" || slices.Contains(strings.Split(only, ","), p.id) {
			of = append(of, p.values())
		}
	}
	return tellAll(r, of)
}

func (g *Gateway) vertexMetrics(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return unknownMetrics(err)
	}
	all := values{}
	for i, w := range a.Workers {
		for name, value := range stageValues(v(a, w)) {
			all[fmt.Sprintf("%d.%s", i, name)] = value
		}
	}
	return tell(r, all), nil
}

func (g *Gateway) subtaskMetrics(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return unknownMetrics(err)
	}
	in, err := numbers(r.URL.Query().Get("subtasks"))
	if err != nil {
		return answer{}, err
	}
	var of []values
	for i, w := range a.Workers {
		if in(i) {
			of = append(of, stageValues(v(a, w)))
		}
	}
	return tellAll(r, of)
}

// numbers reads ranges such as 1,3,5-9 and returns what is in them. Nothing is all.
func numbers(text string) (in func(int) bool, err error) {
	if text == "" {
		return func(int) bool { return true }, nil
	}
	var ranges [][2]int
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || a > b {
			return nil, refuse(http.StatusBadRequest, "Bad request, could not parse parameters: Cannot resolve query parameter (subtasks) from value %q.", text)
		}
		ranges = append(ranges, [2]int{a, b})
	}
	return func(n int) bool {
		return slices.ContainsFunc(ranges, func(r [2]int) bool { return r[0] <= n && n <= r[1] })
	}, nil
}
