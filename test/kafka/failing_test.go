//go:build unix

package kafka_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// fate is a way in which an event fails on purpose, and what its error event says then.
type fate struct {
	name     string
	status   int                             // of the API's answers for it; 0: they are as those of others
	spoil    func(value []byte) (bad []byte) // makes it fail; nil: its status does
	uncalled bool                            // it fails before the API is called
	says     saying
}

// saying is what an error event says of a failure.
type saying struct{ kind, function, attempts, status string }

// tries are those that a failing event has at most.
const tries = 3

// fates are all ways in which an event of failing files fails.
var fates = []fate{
	{name: "an answer 404", status: http.StatusNotFound, says: saying{string(event.NotFound), "content", "1", "404"}},
	{name: "an answer 422", status: http.StatusUnprocessableEntity, says: saying{string(event.UnexpectedStatus), "content", "1", "422"}},
	{name: "an answer 503 to each try", status: http.StatusServiceUnavailable, says: saying{string(event.UnexpectedStatus), "content", strconv.Itoa(tries), "503"}},
	{name: "no key", spoil: without("page"), uncalled: true, says: saying{string(event.MissingKey), "partition_by", "0", ""}},
	{name: "no JSON", spoil: func(value []byte) []byte { return value[:len(value)-1] }, uncalled: true, says: saying{string(event.InvalidEvent), "source", "0", ""}},
	{name: "an expression that fails", spoil: marked("breaks"), says: saying{string(event.Expression), "breaks", "1", ""}},
	{name: "a record too large for the sink", spoil: marked("grows"), says: saying{string(event.TooLarge), "sink", "0", ""}},
}

// oneFails is of how many events one fails.
const oneFails = 20

// fateOf returns how an event is to fail, nil where it is not.
func (u *suite) fateOf(id int) *fate {
	if u.setup.fated != nil {
		return u.setup.fated(id)
	}
	if !u.setup.fails || id%oneFails != oneFails/2 {
		return nil
	}
	return &fates[id/oneFails%len(fates)]
}

// failing returns a pipeline file in which the marked events fail, and each job has the name of its worker: error events say it.
func failing(file string) string {
	return strings.NewReplacer(
		"name: %GROUP%\n", "name: %WORKER%\n",
		"    topics: [%INPUT%]\n", "    topics: [%INPUT%]\n    group: %GROUP%\n",
		"      into: .content\n", "      into: .content\n      retry: {attempts: "+strconv.Itoa(tries)+`, initial: 20ms, max: 50ms}
  - {name: breaks, when: .mark == "breaks", jq: error("on purpose")}
  - {name: grows, when: .mark == "grows", jq: .padding = "x" * 1100000}
`).Replace(file)
}

// marked returns what gives an event a mark.
func marked(mark string) func([]byte) []byte {
	return func(value []byte) []byte { return append([]byte(`{"mark":"`+mark+`",`), value[1:]...) }
}

// without returns what takes a field away.
func without(field string) func([]byte) []byte {
	return func(value []byte) []byte {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(value, &fields); err != nil {
			panic(err) // it is one of Maker
		}
		delete(fields, field)
		value, err := json.Marshal(fields)
		if err != nil {
			panic(err) // what was decoded can be encoded
		}
		return value
	}
}

// doomed is what an event was that is to fail.
type doomed struct{ key, value []byte }

// doom makes a record of an event that is to fail.
func (u *suite) doom(id int, r *kgo.Record) {
	f := u.fateOf(id)
	if f == nil {
		return
	}
	if f.spoil != nil {
		r.Value = f.spoil(r.Value)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.doomed[id] = doomed{r.Key, r.Value}
	if f.uncalled {
		u.uncalled++
	}
}

// answered returns of how many events nothing is to be waited for any more: the API has answered, or is never called, or
// they were gone before they were read.
func (u *suite) answered() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.api.Distinct() + u.uncalled + u.passed
}

// failure is an error event.
type failure struct {
	id         int // of the event that it is of
	worker     string
	place      job.Place // in the error topic
	at         time.Time // the broker wrote it
	says       saying
	key, value []byte
}

// failures reads the error events with librdkafka, as a reader that wants what is committed.
func (u *suite) failures() []failure {
	u.t.Helper()
	records, err := u.sink.ReadBack(u.t.Context(), u.errors, cluster.ReadOptions{Committed: true, Headers: true})
	must(u.t, err)
	if len(records) == 0 {
		return nil
	}
	times, ids := u.times(u.errors), map[string]int{}
	for id, from := range u.events {
		ids[fmt.Sprint(u.input, "/", from.Partition, "/", from.Offset)] = id
	}
	var all []failure
	for _, r := range records {
		has := map[string]string{}
		for _, h := range r.Headers {
			has[strings.TrimPrefix(h.Key, "enricher.error.")] = string(h.Value)
		}
		from := has["topic"] + "/" + has["partition"] + "/" + has["offset"]
		id, ok := ids[from]
		if !ok {
			u.t.Fatalf("the error event %d/%d is of %q, which was not written; it says %v", r.Partition, r.Offset, from, has)
		}
		at := job.Place{Partition: r.Partition, Offset: r.Offset}
		all = append(all, failure{
			id: id, worker: has["pipeline"], place: at, at: times[at], key: r.Key, value: r.Value,
			says: saying{has["type"], has["function"], has["attempts"], has["status"]},
		})
	}
	return all
}

// checkFailed holds each event to its end: it has an output, or, where it is to fail, an error event that says how, and not both.
// It returns how many error events are of an event that had one already.
func (u *suite) checkFailed(b books) (repeated int) {
	u.t.Helper()
	var wrong []string
	has, seen, kinds := map[int]bool{}, map[int]failure{}, map[string]int{}
	for _, e := range b.failed {
		has[e.id] = true
	}
	for id := range u.doomed {
		if !has[id] {
			wrong = append(wrong, fmt.Sprintf("event %d, with %s, has no error event", id, u.fateOf(id).name))
		}
	}
	for _, e := range b.failed {
		if first, again := seen[e.id]; again {
			repeated++
			if u.workers[0].once {
				wrong = append(wrong, fmt.Sprintf("event %d has the error events %v of %s and %v of %s", e.id, first.place, first.worker, e.place, e.worker))
			}
		}
		seen[e.id] = e
		f, was := u.fateOf(e.id), u.doomed[e.id]
		switch {
		case f == nil:
			wrong = append(wrong, fmt.Sprintf("event %d has an error event that says %+v, and was not to fail", e.id, e.says))
		case e.says != f.says:
			wrong = append(wrong, fmt.Sprintf("event %d, with %s, has an error event that says %+v, want %+v", e.id, f.name, e.says, f.says))
		case !bytes.Equal(e.key, was.key) || !bytes.Equal(e.value, was.value):
			wrong = append(wrong, fmt.Sprintf("event %d, with %s, has an error event with the key %q and the value %.80q, want %q and %.80q",
				e.id, f.name, e.key, e.value, was.key, was.value))
		default:
			kinds[f.name]++
		}
	}
	for _, o := range b.outputs {
		if f := u.fateOf(o.ID); f != nil {
			wrong = append(wrong, fmt.Sprintf("event %d, with %s, has the output %d/%d of %s", o.ID, f.name, o.Partition, o.Offset, o.Owner))
		}
	}
	for _, f := range fates {
		if u.setup.fails && kinds[f.name] == 0 {
			wrong = append(wrong, "no event has failed with "+f.name)
		}
	}
	if len(wrong) > 0 {
		u.t.Errorf("%d ends of events are not as they must be, of %d events of which %d are to fail, with %d error events:\n%s", len(wrong), len(u.events), len(u.doomed),
			len(b.failed), strings.Join(wrong[:min(len(wrong), 20)], "\n"))
	}
	return repeated
}

// checkCountedErrors holds the error events that each worker has counted, of each type and function, to those that the broker has
// of it: no more, and where the worker knows all that it has written, exactly these.
func (u *suite) checkCountedErrors(failed []failure) {
	u.t.Helper()
	if !u.setup.fails {
		return
	}
	by := map[string]map[string]float64{}
	for _, e := range failed {
		if by[e.worker] == nil {
			by[e.worker] = map[string]float64{}
		}
		by[e.worker][e.says.kind+" "+e.says.function]++
		by[e.worker]["all"]++
	}
	held := 0.0
	for _, w := range u.workers {
		t := toldBy(w)
		has, counted := by[w.Name], maps.Clone(w.failed) // of one that was killed or stopped before the end what was seen last
		if !w.rested {
			counted = maps.Clone(t.last.Failed)
		}
		names := maps.Clone(counted)
		maps.Copy(names, has)
		for name := range names {
			if got := counted[name]; name != "all" && (got > has[name] || w.rested && w.sure(t) && got != has[name]) {
				u.t.Errorf("%s has counted %.0f error events of the type and function %q, and the broker has %.0f of it", w.Name, got, name, has[name])
			}
		}
		if t.Errors > has["all"] || w.sure(t) && t.Errors != has["all"] {
			u.t.Errorf("%s has counted %.0f error events, and the broker has %.0f of it", w.Name, t.Errors, has["all"])
		}
		if w.sure(t) {
			held += has["all"]
		}
	}
	if held == 0 {
		u.t.Errorf("of %d error events none is of a worker that knows all that it has written: the counts were held to nothing", len(failed))
	}
	u.t.Logf("of %d error events %.0f are of workers that have counted exactly these", len(failed), held)
}

// sure reports whether a worker knows all that a reader of what is committed sees of it. What it counts of a transaction it counts when
// that is committed, so that one that was aborted leaves no doubt, unless it was asleep then.
func (w *worker) sure(t told) bool {
	if w.once {
		return t.ended && t.unheard == 0
	}
	return t.ended && !t.back && !t.lost && t.Unfinished == 0
}

// early returns how many of the error events that w has counted are of events that failed before they got anywhere.
func (w *worker) early() (n float64) {
	for _, f := range fates {
		if f.uncalled {
			n += w.failed[f.says.kind+" "+f.says.function]
		}
	}
	return n
}
