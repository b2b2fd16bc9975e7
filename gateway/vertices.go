package gateway

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

// at is a vertex of a job, at a moment.
type at struct {
	*seen
	v vertex
}

// vertexAt returns the vertex that the path names.
func (g *Gateway) vertexAt(r *http.Request) (at, error) {
	p, err := g.look(r)
	if err != nil {
		return at{}, err
	}
	id, err := pathID(r, "vertex", "vertexid")
	if err != nil {
		return at{}, err
	}
	for _, v := range vertices(p.id, p.Labels) {
		if v.id == id {
			return at{p, v}, nil
		}
	}
	return at{}, refuse(http.StatusNotFound, "JobVertex %s not found", id)
}

// subtaskBody is a worker's part of a vertex.
type subtaskBody struct {
	Subtask   int              `json:"subtask"`
	Status    string           `json:"status"`
	Attempt   int              `json:"attempt"`
	Endpoint  string           `json:"endpoint"`
	Host      string           `json:"host"`
	Start     int64            `json:"start-time"`
	StartOld  int64            `json:"start_time"` // the dashboard reads this one
	End       int64            `json:"end-time"`
	Duration  int64            `json:"duration"`
	Metrics   ioMetrics        `json:"metrics"`
	Worker    string           `json:"taskmanager-id"`
	Durations map[string]int64 `json:"status-duration"`
}

// durations are how long the subtasks of a job were in each state on their way to running; -1 for one not yet come to.
func (p *seen) durations() map[string]int64 {
	d := map[string]int64{"CREATED": -1, "SCHEDULED": -1, "DEPLOYING": -1, "INITIALIZING": -1, "RUNNING": -1}
	began, running := p.Began(), p.Since[Running]
	if running.IsZero() {
		d["CREATED"] = p.now.Sub(began).Milliseconds()
		return d
	}
	end := p.Ended()
	if end.IsZero() {
		end = p.now
	}
	d["CREATED"], d["SCHEDULED"], d["DEPLOYING"], d["INITIALIZING"] = max(0, running.Sub(began).Milliseconds()), 0, 0, 0
	d["RUNNING"] = max(0, end.Sub(running).Milliseconds())
	return d
}

func (a at) subtask(i int) subtaskBody {
	w := a.Workers[i]
	return subtaskBody{
		Subtask: i, Status: taskState(w.State), Attempt: a.Restarts, Endpoint: w.Process.Endpoint, Host: w.Process.Host(),
		Start: millis(a.Began()), StartOld: millis(a.Began()), End: endMillis(a.Ended()), Duration: a.duration(),
		Metrics: ioOf(v(a, w).Total), Worker: w.Process.ID, Durations: a.durations(),
	}
}

// v is what a worker does for a vertex.
func v(a at, w Worker) streammanager.Stage { return a.v.stage(w.Status.Stages) }

type vertexDetails struct {
	ID             string        `json:"id"`
	Name           string        `json:"name"`
	Parallelism    int           `json:"parallelism"`
	MaxParallelism int           `json:"maxParallelism"`
	Now            int64         `json:"now"`
	Subtasks       []subtaskBody `json:"subtasks"`
	Aggregated     aggregated    `json:"aggregated"`
}

// aggregated is whole or the dashboard's page stands still: each member is there.
type aggregated struct {
	Metrics   map[string]statistics `json:"metrics"`
	Durations map[string]statistics `json:"status-duration"`
}

type statistics struct {
	Min    int64 `json:"min"`
	Max    int64 `json:"max"`
	Avg    int64 `json:"avg"`
	Sum    int64 `json:"sum"`
	Median int64 `json:"median"`
	P25    int64 `json:"p25"`
	P75    int64 `json:"p75"`
	P95    int64 `json:"p95"`
}

func statisticsOf(values []int64) statistics {
	if len(values) == 0 {
		return statistics{}
	}
	slices.Sort(values)
	at := func(q float64) int64 { return values[int(math.Ceil(q*float64(len(values))))-1] }
	s := statistics{Min: values[0], Max: values[len(values)-1], Median: at(0.5), P25: at(0.25), P75: at(0.75), P95: at(0.95)}
	for _, n := range values {
		s.Sum += n
	}
	s.Avg = s.Sum / int64(len(values))
	return s
}

func aggregate(subtasks []subtaskBody) aggregated {
	a := aggregated{map[string]statistics{}, map[string]statistics{}}
	for name, of := range map[string]func(ioMetrics) int64{
		"read-bytes": func(m ioMetrics) int64 { return m.ReadBytes }, "write-bytes": func(m ioMetrics) int64 { return m.WriteBytes },
		"read-records": func(m ioMetrics) int64 { return m.ReadRecords }, "write-records": func(m ioMetrics) int64 { return m.WriteRecords },
		"accumulated-backpressured-time": func(m ioMetrics) int64 { return m.Backpressured },
		"accumulated-idle-time":          func(m ioMetrics) int64 { return m.Idle }, "accumulated-busy-time": func(m ioMetrics) int64 { return int64(m.Busy) },
	} {
		var values []int64
		for _, s := range subtasks {
			values = append(values, of(s.Metrics))
		}
		a.Metrics[name] = statisticsOf(values)
	}
	for _, state := range []string{"CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"} {
		var values []int64
		for _, s := range subtasks {
			values = append(values, max(0, s.Durations[state]))
		}
		a.Durations[state] = statisticsOf(values)
	}
	return a
}

func (a at) subtasks() []subtaskBody {
	list := []subtaskBody{}
	for i := range a.Workers {
		list = append(list, a.subtask(i))
	}
	return list
}

func (g *Gateway) vertexDetails(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return answer{}, err
	}
	subtasks := a.subtasks()
	return answer{body: vertexDetails{a.v.id, a.v.name, len(a.Workers), streammanager.MostWorkers, millis(a.now), subtasks, aggregate(subtasks)}}, nil
}

type backpressureBody struct {
	Status   string                `json:"status"`
	Level    string                `json:"backpressureLevel"`
	LevelOld string                `json:"backpressure-level"` // the dashboard reads this one
	End      int64                 `json:"end-timestamp"`
	Subtasks []subtaskBackpressure `json:"subtasks"`
}

type subtaskBackpressure struct {
	Subtask  int     `json:"subtask"`
	Attempt  int     `json:"attempt-number"`
	Level    string  `json:"backpressureLevel"`
	LevelOld string  `json:"backpressure-level"`
	Ratio    float64 `json:"ratio"`
	Idle     float64 `json:"idleRatio"`
	Busy     float64 `json:"busyRatio"`
}

// ratio is the part of the flow's time that d is.
func ratio(d time.Duration, f streammanager.Flow) float64 {
	if f.Time() <= 0 {
		return 0
	}
	return float64(d) / float64(f.Time())
}

// levelOf is Flink's word for a share of time.
func levelOf(ratio float64) string {
	switch {
	case ratio <= 0.10:
		return "ok"
	case ratio <= 0.50:
		return "low"
	}
	return "high"
}

func (g *Gateway) backpressure(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return answer{}, err
	}
	if !slices.ContainsFunc(a.Workers, func(w Worker) bool { return v(a, w).Last.Time() > 0 }) {
		return answer{body: map[string]any{"status": "deprecated"}}, nil // nothing is known yet
	}
	body := backpressureBody{Status: "ok", End: millis(a.now)}
	worst := 0.0
	for i, w := range a.Workers {
		last := v(a, w).Last
		back := ratio(last.Backpressured, last)
		worst = max(worst, back)
		body.Subtasks = append(body.Subtasks, subtaskBackpressure{
			Subtask: i, Attempt: a.Restarts, Level: levelOf(back), LevelOld: levelOf(back),
			Ratio: back, Idle: ratio(last.Idle, last), Busy: ratio(last.Busy, last),
		})
	}
	body.Level, body.LevelOld = levelOf(worst), levelOf(worst)
	return answer{body: body}, nil
}

// watermarks are none: windows close by processing time.
func (g *Gateway) watermarks(r *http.Request) (answer, error) {
	_, err := g.vertexAt(r)
	return answer{body: []any{}}, err
}

func (g *Gateway) accumulators(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return answer{}, err
	}
	return answer{body: map[string]any{"id": a.v.id, "user-accumulators": []any{}}}, nil
}

type subtaskAccumulators struct {
	Subtask  int    `json:"subtask"`
	Attempt  int    `json:"attempt"`
	Endpoint string `json:"endpoint"`
	Host     string `json:"host"`
	User     []any  `json:"user-accumulators"`
}

func (g *Gateway) subtaskAccumulators(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return answer{}, err
	}
	list := []subtaskAccumulators{}
	for i, w := range a.Workers {
		list = append(list, subtaskAccumulators{i, a.Restarts, w.Process.Endpoint, w.Process.Host(), []any{}})
	}
	return answer{body: map[string]any{"id": a.v.id, "parallelism": len(a.Workers), "subtasks": list}}, nil
}

type subtaskTimesBody struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Now      int64          `json:"now"`
	Subtasks []subtaskTimes `json:"subtasks"`
}

type subtaskTimes struct {
	Subtask  int              `json:"subtask"`
	Endpoint string           `json:"endpoint"`
	Host     string           `json:"host"`
	Duration int64            `json:"duration"`
	Times    map[string]int64 `json:"timestamps"`
}

func (g *Gateway) subtaskTimes(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return answer{}, err
	}
	body := subtaskTimesBody{a.v.id, a.v.name, millis(a.now), []subtaskTimes{}}
	for i, w := range a.Workers {
		times := map[string]int64{}
		for _, s := range taskStates {
			times[s] = 0
		}
		times["CREATED"] = millis(a.Began())
		for s, since := range a.Since {
			if name := taskState(s); name != "CREATED" {
				times[name] = max(times[name], millis(since))
			}
		}
		body.Subtasks = append(body.Subtasks, subtaskTimes{i, w.Process.Endpoint, w.Process.Host(), a.duration(), times})
	}
	return answer{body: body}, nil
}

type vertexTaskManager struct {
	Endpoint   string         `json:"endpoint"`
	Host       string         `json:"host"`
	Status     string         `json:"status"`
	Start      int64          `json:"start-time"`
	End        int64          `json:"end-time"`
	Duration   int64          `json:"duration"`
	Metrics    ioMetrics      `json:"metrics"`
	Counts     map[string]int `json:"status-counts"`
	Worker     string         `json:"taskmanager-id"`
	Aggregated aggregated     `json:"aggregated"`
}

func (g *Gateway) vertexTaskManagers(r *http.Request) (answer, error) {
	a, err := g.vertexAt(r)
	if err != nil {
		return answer{}, err
	}
	list := []vertexTaskManager{}
	for _, s := range a.subtasks() {
		counts := map[string]int{}
		for _, state := range taskStates {
			counts[state] = 0
		}
		counts[s.Status] = 1
		list = append(list, vertexTaskManager{
			s.Endpoint, s.Host, s.Status, s.Start, s.End, s.Duration, s.Metrics, counts, s.Worker, aggregate([]subtaskBody{s}),
		})
	}
	return answer{body: map[string]any{"id": a.v.id, "name": a.v.name, "now": millis(a.now), "taskmanagers": list}}, nil
}
