package pipeline_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

type nothing struct{}

func same(_ context.Context, ev *event.Event) ([]*event.Event, error) {
	return []*event.Event{ev}, nil
}

// hasty takes the events of a window together and says that it does not wait.
type hasty struct{ event.BatchFunc }

func (hasty) Inline() bool { return true }

// What would end a run as it starts is found in the file, at the item that is at fault.
func TestWhatARunWouldRefuseIsFoundInTheFile(t *testing.T) {
	counting := func(register func(functions.Env, prometheus.Collector) error) functions.Spec {
		return functions.New("counting", "counts", func(env functions.Env, _ nothing) (event.Func, error) {
			c := prometheus.NewCounter(prometheus.CounterOpts{Name: "words_total", Help: "Words."})
			return event.FuncOf(same), register(env, c)
		})
	}
	specs := map[string]functions.Spec{
		"registers": counting(func(env functions.Env, c prometheus.Collector) error { return env.Metrics.Register(c) }),
		"panics":    counting(func(env functions.Env, c prometheus.Collector) error { env.Metrics.MustRegister(c); return nil }),
		"wraps": counting(func(env functions.Env, c prometheus.Collector) error {
			return prometheus.WrapRegistererWith(prometheus.Labels{"function": env.Name}, env.Metrics).Register(c)
		}),
		"hasty": functions.NewBatch("hasty", "does not wait", func(functions.Env, nothing) (event.BatchFunc, error) { return hasty{}, nil }),
		"nil":   functions.New("nil_func", "is none", func(functions.Env, nothing) (event.Func, error) { return nil, nil }),
	}
	for _, tt := range []struct{ name, spec, process, want string }{
		{"a metric that another item has", "registers", "  - counting: {}\n  - counting: {}\n", ":6:5: process[1].counting: duplicate metrics"},
		{"a constructor that panics", "panics", "  - counting: {}\n  - counting: {}\n", ":6:5: process[1].counting: the constructor panicked: duplicate metrics"},
		{"a metric of each item", "wraps", "  - counting: {}\n  - counting: {}\n", ""},
		{"a batch that never waits", "hasty", "  - hasty: {}\n", ":5:5: process[0].hasty: takes the events of a window together"},
		{"no function", "nil", "  - nil_func: {}\n", ":5:5: process[0].nil_func: the constructor returned no function"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := pipeline.Load(write(t, "p.yaml", lines+"process:\n"+tt.process), pipeline.Options{Specs: []functions.Spec{specs[tt.spec]}})
			if tt.want == "" && err == nil {
				return
			}
			problems, ok := errors.AsType[pipeline.Problems](err)
			if !ok || len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

type countingTransport struct{ calls atomic.Int64 }

func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls.Add(1)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("7")), Request: r,
	}, nil
}

// An API is not asked for an event that can take no answer, nor with what might be one of two values.
func TestNoCallIsMadeForAnInvalidEvent(t *testing.T) {
	api := &countingTransport{}
	registry := prometheus.NewRegistry()
	in := "{\"a\":1} x\n{\"r\":1,\"r\":2}\n{\"b\":{\"x\":1,\"x\":2}}\n{\"b\":{\"x\":3}}\n"
	got := runLines(t, lines+"on_error: drop\nprocess:\n  - http: {url: 'http://h/', method: POST, body: .b.x, into: .r}\n", in,
		pipeline.Deps{Transport: api, Metrics: registry})
	if want := "{\"b\":{\"x\":3},\"r\":7}\n"; got != want || api.calls.Load() != 1 {
		t.Errorf("got %q after %d calls, want %q after 1", got, api.calls.Load(), want)
	}
	want := map[string]string{"pipeline": "p", "type": "invalid_event", "function": "source"}
	if n := counted(t, registry, "enricher_errors_total", want); n != 3 {
		t.Errorf("%v invalid events, want 3", n)
	}
}
