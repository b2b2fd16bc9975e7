package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

// rehearse carries values through the pipeline and tells in words what became of each.
func rehearse(t *testing.T, text string, specs []functions.Spec, values ...string) ([]string, error) {
	t.Helper()
	p, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{Getenv: testEnv, Specs: specs})
	if err != nil {
		t.Fatalf("loading:\n%v", err)
	}
	topic, offset := p.Reads()
	var events []streammanager.Record
	for i, v := range values {
		rec := streammanager.Record{Topic: topic, Offset: offset + int64(i), Key: []byte(fmt.Sprint("k", i)), Value: []byte(v), Timestamp: time.Unix(1, 0)}
		if v == "null" {
			rec.Value = nil
		}
		events = append(events, rec)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fates, err := p.Rehearse(ctx, pipeline.Deps{Logger: quiet}, pipeline.Rehearsal{Events: events})
	var said []string
	for _, f := range fates {
		switch {
		case f.Failure != nil:
			said = append(said, fmt.Sprintf("%s in %s: %s/%s", f.Failure.Type, f.Failure.Function, f.ErrorRecord.Topic, f.ErrorRecord.Key))
		case f.Dropped:
			said = append(said, "dropped")
		case f.Unfinished:
			said = append(said, "unfinished")
		default:
			var outs []string
			for _, o := range f.Outputs {
				outs = append(outs, fmt.Sprintf("%s/%s=%s", o.Topic, o.Key, o.Value))
			}
			said = append(said, strings.Join(outs, " "))
		}
	}
	return said, err
}

const kafkaEnds = `
source: {kafka: {topics: [in]}}
sink: {kafka: {topic: 'out-\(.kind)', key: .kind}}
error_sink: {kafka: {topic: errors}}
`

func TestARehearsalTellsWhatBecomesOfEachEvent(t *testing.T) {
	twice := functions.New("twice", "makes two of one", func(functions.Env, struct{}) (event.Func, error) {
		return event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
			return []*event.Event{ev, ev}, nil
		}), nil
	})
	ends := functions.New("ends", "ends the pipeline", func(functions.Env, struct{}) (event.Func, error) {
		return event.FuncOf(func(context.Context, *event.Event) ([]*event.Event, error) {
			return nil, event.Fatal(errors.New("the licence has run out"))
		}), nil
	})
	pairs := functions.NewBatch("pairs", "says how many came together", func(functions.Env, struct{}) (event.BatchFunc, error) {
		return event.BatchFuncOf(func(_ context.Context, evs []*event.Event) []event.Result {
			results := make([]event.Result, len(evs))
			for i, ev := range evs {
				ev.SetValue(fmt.Append(nil, len(evs)))
				results[i].Events = []*event.Event{ev}
			}
			results[0].Err = event.Reject("first", errors.New("it came first"))
			return results
		}), nil
	})
	const brokers = `kafka: {brokers: ["h:1"]}` + kafkaEnds
	tests := []struct {
		name, text string
		values     []string
		want       []string
		err        string
	}{
		{
			name: "outputs have the topic and key that the sink gives them, and errors those of the error sink",
			text: "name: p\n" + brokers + "filter: .n != 2\nprocess: [{jq: .n = .n + 1}]\n",
			values: []string{
				`{"n":1,"kind":"a"}`, `{"n":2,"kind":"a"}`, `oops`, `{"n":3}`, `{"n":4,"kind":"in"}`, `null`,
			},
			want: []string{
				`out-a/a={"n":2,"kind":"a"}`, "dropped", "invalid_event in source: errors/k2", "missing_field in sink: errors/k3", `out-in/in={"n":5,"kind":"in"}`,
				"missing_field in sink: errors/k5",
			},
		},
		{
			name: "a file that stops at an error event does not stop here", text: "name: p\nsource: {file: {path: in}}\nprocess: [{jq: .n = .n + 1}]\nsink: {file: {path: out}}\n",
			values: []string{`{"n":"a"}`, `{"n":1}`}, want: []string{"expression in process[0].jq: /k0", `/k1={"n":2}`},
		},
		{
			name: "all that a function makes of an event is its", text: "name: p\nsource: {file: {path: in}}\nprocess: [{twice: {}}]\nsink: {file: {path: out}}\n",
			values: []string{`1`, `2`}, want: []string{"/k0=1 /k0=1", "/k1=2 /k1=2"},
		},
		{
			name: "a window goes together through a function that takes one", text: "name: p\nsource: {file: {path: in}}\npartition_by: .k\nwindow: {count: 3, timeout: 1h}\nprocess: [{pairs: {}}]\nsink: {file: {path: out}}\n",
			values: []string{`{"k":1}`, `{"k":1}`, `{"k":1}`}, want: []string{"first in process[0].pairs: /k0", "/k1=3", "/k2=3"},
		},
		{
			name: "no repartition topic and no transactions are needed",
			text: "name: p\ninstance: one\ndelivery: exactly_once\nrepartition: {topic: between, partitions: 3}\npartition_by: .n\n" + brokers,
			values: []string{
				`{"n":1,"kind":"a"}`, `{"kind":"a"}`,
			},
			want: []string{`out-a/a={"n":1,"kind":"a"}`, "missing_key in partition_by: errors/k1"},
		},
		{
			name: "no broker is started", text: "name: p\nkafka: {brokers: embedded}" + kafkaEnds,
			values: []string{`{"kind":"a"}`}, want: []string{`out-a/a={"kind":"a"}`},
		},
		{
			name: "what a pipeline that ended did not come to is unfinished", text: "name: p\nsource: {file: {path: in}}\nprocess: [{ends: {}}]\nsink: {file: {path: out}}\n",
			values: []string{`1`}, want: []string{"unfinished"}, err: "the licence has run out",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := rehearse(t, tt.text, []functions.Spec{twice, ends, pairs}, tt.values...)
			if !slices.Equal(got, tt.want) || (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got\n%q and %v, want\n%q and %q", got, err, tt.want, tt.err)
			}
		})
	}
}

// refusing answers every request that there is no such thing, and notes whose it was.
type refusing struct {
	mu  sync.Mutex // guards all below
	has []string
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := pipeline.CallOf(req.Context())
	r.has = append(r.has, fmt.Sprintf("%s for %v by %s, try %d", req.URL, c.Events, c.Function, c.Attempt()))
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: req}, nil
}

func TestARehearsalIsWatchedStepByStep(t *testing.T) {
	p := mustLoad(t, `name: p
source: {file: {path: in}}
filter: .n > 0
partition_by: .n
window: {count: 2, timeout: 1s, by: .w}
process:
  - name: asked
    when: .n > 1
    http: {url: 'http://h/\(.n)', into: .a}
  - jq: .done = true
sink: {file: {path: out}}
`)
	var mu sync.Mutex
	got := map[int][]string{}
	net := &refusing{}
	watch := func(n pipeline.Note) {
		mu.Lock()
		defer mu.Unlock()
		text := fmt.Sprintf("%d %s %q %v", n.Kind, n.Place, n.Text, n.Yes)
		if n.Attempt > 0 {
			text = fmt.Sprintf("%d %s try %d, %d out, failed %v", n.Kind, n.Place, n.Attempt, len(n.Events), n.Err != nil)
		}
		got[n.Event] = append(got[n.Event], text)
	}
	record := func(i int, value string) streammanager.Record {
		return streammanager.Record{Topic: "in", Offset: int64(i), Value: []byte(value)}
	}
	_, err := p.Rehearse(t.Context(), pipeline.Deps{Logger: quiet, Transport: net}, pipeline.Rehearsal{
		Events: []streammanager.Record{record(1, `{"n":0}`), record(2, `{"n":1,"w":7}`), record(3, `{"n":2,"w":8}`)}, Watch: watch,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int][]string{
		0: {`0 filter "" false`},
		1: {
			`0 filter "" true`, `1 partition_by "[1]" true`, `2 window.by "7" false`, `0 asked "" false`,
			"3 process[1].jq try 1, 0 out, failed false", "4 process[1].jq try 1, 1 out, failed false",
		},
		2: {
			`0 filter "" true`, `1 partition_by "[2]" true`, `2 window.by "8" false`, `0 asked "" true`,
			"3 asked try 1, 0 out, failed false", "4 asked try 1, 0 out, failed true",
		},
	}
	for i, w := range want {
		if !slices.Equal(got[i], w) {
			t.Errorf("event %d: got\n%q, want\n%q", i, got[i], w)
		}
	}
	if want := []string{"http://h/2 for [2] by asked, try 1"}; !slices.Equal(net.has, want) {
		t.Errorf("requests %q, want %q", net.has, want)
	}
}
