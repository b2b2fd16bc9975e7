package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// lineWriter gathers lines and says when there are enough.
type lineWriter struct {
	mu   sync.Mutex // guards all below
	buf  bytes.Buffer
	want int
	done chan struct{}
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := bytes.Count(w.buf.Bytes(), []byte("\n"))
	n, err := w.buf.Write(b)
	if after := bytes.Count(w.buf.Bytes(), []byte("\n")); before < w.want && after >= w.want {
		close(w.done)
	}
	return n, err
}

func (w *lineWriter) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Split(strings.TrimSpace(w.buf.String()), "\n")
}

func mustLoad(t *testing.T, text string) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{Getenv: testEnv})
	if err != nil {
		t.Fatalf("loading:\n%v", err)
	}
	return p
}

func TestPipelinesShareTheEmbeddedBroker(t *testing.T) {
	const n = 100
	fill := mustLoad(t, `name: fill
kafka: {brokers: embedded}
source: {file: {path: "-"}}
sink:
  kafka: {topic: 'events', key: .id}
`)
	enrich := mustLoad(t, `name: enrich
kafka: {brokers: embedded, options: {linger.ms: 1, fetch.max.wait.ms: 50}}
source: {kafka: {topics: [events]}}
filter: .id != "3"
partition_by: .id
window: {count: 5, timeout: 10ms}
process:
  - jq: if .id == "5" then error("five") else .key = $key end
sink: {file: {path: "-"}}
error_sink: {kafka: {topic: enrich.error, key: '$key | error("no key")'}}
`)
	failed := mustLoad(t, `name: failed
kafka: {brokers: embedded}
source: {kafka: {topics: [enrich.error]}}
process:
  - jq: .seen = [$key, $headers["enricher.error.type"]]
sink: {file: {path: "-"}}
`)
	embedded := &pipeline.Embedded{}
	defer embedded.Close()
	if err := embedded.Prepare(fill, enrich, failed); err != nil {
		t.Fatal(err)
	}
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, `{"id":"%d"}`+"\n", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := fill.Run(ctx, pipeline.Deps{Logger: quiet, Embedded: embedded, Stdin: strings.NewReader(in.String())}); err != nil {
		t.Fatalf("filling the topic: %v", err)
	}
	registry := prometheus.NewRegistry()
	got := runUntil(t, enrich, n-2, pipeline.Deps{Embedded: embedded, Metrics: registry})
	if got[0] != `{"id":"0","key":"0"}` {
		t.Errorf("got %q first", got[0])
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	if got := runUntil(t, failed, 1, pipeline.Deps{Embedded: embedded}); got[0] != `{"id":"5","seen":["5","expression"]}` {
		t.Errorf("error event: got %q", got)
	}
	late := mustLoad(t, "name: late\nkafka: {brokers: embedded}\nsource: {kafka: {topics: [unheard]}}\nsink: {file: {path: out}}\n")
	if _, _, err := late.Build(pipeline.Deps{Logger: quiet, Embedded: embedded}); err == nil || !strings.Contains(err.Error(), `"unheard"`) {
		t.Errorf("a topic that the running broker lacks: got %v", err)
	}
}

// runUntil runs p until it has written n lines, and returns them sorted.
func runUntil(t *testing.T, p *pipeline.Pipeline, n int, deps pipeline.Deps) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out := &lineWriter{want: n, done: make(chan struct{})}
	deps.Logger, deps.Stdout = quiet, out
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, deps) }()
	select {
	case <-out.done:
	case <-ctx.Done():
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("running %s: %v", p.Name(), err)
	}
	got := out.lines()
	if len(got) != n {
		t.Fatalf("%s wrote %d lines, want %d", p.Name(), len(got), n)
	}
	slices.Sort(got)
	return got
}

// runLines runs a pipeline from in to standard output.
func runLines(t *testing.T, text, in string, deps pipeline.Deps, specs ...functions.Spec) string {
	t.Helper()
	p, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{Getenv: testEnv, Specs: specs})
	if err != nil {
		t.Fatalf("loading:\n%v", err)
	}
	var out strings.Builder
	deps.Logger, deps.Stdin, deps.Stdout = quiet, strings.NewReader(in), &out
	if err := p.Run(t.Context(), deps); err != nil {
		t.Fatalf("running: %v", err)
	}
	return out.String()
}

// counted returns the value of the counter with exactly the given labels, -1 where there is none.
func counted(t *testing.T, g prometheus.Gatherer, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got := map[string]string{}
			for _, l := range m.GetLabel() {
				got[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && maps.Equal(got, labels) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

const lines = "name: p\nsource: {file: {path: '-'}}\nsink: {file: {path: '-'}}\n"

func TestEventsWithoutTheirKeyFollowThePolicy(t *testing.T) {
	in := "{\"a\":1}\n{\"a\":null}\n{}\n"
	for missing, want := range map[string]string{"keyless": in, "drop": "{\"a\":1}\n"} {
		if got := runLines(t, lines+"partition_by: {fields: .a, missing: "+missing+"}\n", in, pipeline.Deps{}); got != want {
			t.Errorf("missing: %s: got %q, want %q", missing, got, want)
		}
	}
	if got := runLines(t, lines+"partition_by: .a\non_error: drop\n", in, pipeline.Deps{}); got != "{\"a\":1}\n" {
		t.Errorf("missing: error: got %q", got)
	}
}

// A pipeline that is started again in its process meets nothing that its earlier life left behind.
func TestAPipelineRunsAHundredTimesInOneProcess(t *testing.T) {
	api := &countingTransport{}
	for range 100 {
		got := runLines(t, lines+"process:\n  - http: {url: 'http://h/', into: .r}\n", "{}\n", pipeline.Deps{Transport: api, Metrics: prometheus.NewRegistry()})
		if got != "{\"r\":7}\n" {
			t.Fatalf("got %q", got)
		}
	}
	if n := api.calls.Load(); n != 100 {
		t.Errorf("%d calls, want 100", n)
	}
}

func TestValuesAreCheckedWhereAnExpressionReadsThem(t *testing.T) {
	in := "{\"a\":1} x\n"
	registry := prometheus.NewRegistry()
	if got := runLines(t, lines+"filter: .a == 1\non_error: drop\n", in, pipeline.Deps{Metrics: registry}); got != "" {
		t.Errorf("got %q", got)
	}
	want := map[string]string{"pipeline": "p", "type": "invalid_event", "function": "source"}
	if got := counted(t, registry, "enricher_errors_total", want); got != 1 {
		t.Errorf("errors of the source: got %v, want 1", got)
	}
	if got := runLines(t, lines, in, pipeline.Deps{}); got != in {
		t.Errorf("without expressions: got %q, want %q", got, in)
	}
}

// timed is a function with a bound of its own and something to close.
type timed struct{ built, closed, within *atomic.Int64 }

func (f timed) CallTimeout() time.Duration  { return 5 * time.Second }
func (f timed) Close(context.Context) error { f.closed.Add(1); return nil }
func (f timed) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= 5*time.Second {
		f.within.Add(1)
	}
	return []*event.Event{ev}, nil
}

func TestFunctionsKeepTheirTimeAndAreClosed(t *testing.T) {
	f := timed{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	spec := functions.New("timed", "takes its time", func(functions.Env, inner) (event.Func, error) {
		f.built.Add(1)
		return f, nil
	})
	runLines(t, lines+"process:\n  - timed: {size: 1B}\n", "{}\n{}\n", pipeline.Deps{}, spec)
	if f.within.Load() != 2 || f.built.Load() != 2 || f.closed.Load() != 2 {
		t.Errorf("got %d calls within their bound, %d built, %d closed, want 2 each (one is built to check the file)",
			f.within.Load(), f.built.Load(), f.closed.Load())
	}
}

func TestTopicsAndKeysFromExpressions(t *testing.T) {
	for _, tt := range []struct{ expr, want string }{
		{".s", "te\"xt"}, {".n", "1.0"}, {"{b: .n, a: .s}", `{"b":1.0,"a":"te\"xt"}`}, {".none", "nil"},
	} {
		key, err := pipeline.RawKey(tt.expr, valued(`{"s":"te\"xt","n":1.0}`))
		got := string(key)
		if key == nil {
			got = "nil"
		}
		if err != nil || got != tt.want {
			t.Errorf("key %s: got %q, %v, want %q", tt.expr, got, err, tt.want)
		}
	}
}

func TestWorstCaseCountsTheBuffersOfTheClients(t *testing.T) {
	const text = "name: p\nkafka: {brokers: [h:9092], options: {fetch.max.bytes: 1048576, buffer.memory: 3145728}}\n" +
		"source: {kafka: {topics: [a]}}\nsink: {kafka: {topic: b}}\nlimits: {in_flight_bytes: 1MiB}\nworkers: 3\n"
	const http = "  - http: {url: 'http://h/', into: .a, max_response: 2MiB}\n  - http: {url: 'http://h/', into: .b, max_response: 1MiB}\n"
	for _, tt := range []struct{ name, more, want string }{
		{"the limit and the buffers", "", "8.0 MiB: 1MiB in flight, 4MiB fetched, 3MiB in the sink, 0B in the error sink; one event larger than the limit is admitted alone"},
		{
			"a buffer of the error sink's own", "error_sink: {kafka: {topic: c, options: {buffer.memory: 2097152}}}\n",
			"10.0 MiB: 1MiB in flight, 4MiB fetched, 3MiB in the sink, 2MiB in the error sink; one event larger than the limit is admitted alone",
		},
		{
			"what is kept of answers", "process:\n  - http: {url: 'http://h/', into: .a, max_response: 2MiB, cache: {ttl: 1m}}\n  - http: {url: 'http://h/', into: .b, cache: {ttl: 1m, max_bytes: 1MiB}, max_response: 1MiB}\n",
			"25.0 MiB: 1MiB in flight, 4MiB fetched, 3MiB in the sink, 0B in the error sink, 17MiB in caches; one event larger than the limit is admitted alone" +
				"; one answer of up to 2MiB (max_response) may stand over it, with what is made of it",
		},
		{
			"an answer that is over the limit", "process:\n" + http,
			"8.0 MiB: 1MiB in flight, 4MiB fetched, 3MiB in the sink, 0B in the error sink; one event larger than the limit is admitted alone" +
				"; one answer of up to 2MiB (max_response) may stand over it, with what is made of it",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := mustLoad(t, text+tt.more).WorstCaseBytes()
			if err != nil || w.String() != tt.want {
				t.Errorf("got %s, %v\nwant %s", w, err, tt.want)
			}
		})
	}
}

func TestBrokersInFlowStyleAreText(t *testing.T) {
	mustLoad(t, "name: p\nsource: {kafka: {brokers: [h:9092,i:9092], topics: /a.*/}}\nsink: {file: {path: out}}\n")
}

func TestGoodFilesLoad(t *testing.T) {
	for name, text := range map[string]string{
		"credentials of the default stay with it": "kafka: {brokers: [h:9092], tls: true, sasl: {mechanism: PLAIN, username: u, password: '${SECRET}'}}\nsource: {kafka: {topics: [a]}}\nsink: {kafka: {brokers: [other:9092], topic: a}}\n",
		"topics from a variable":                  "kafka: {brokers: [h:9092]}\nsource: {kafka: {topics: '${TOPICS}'}}\nsink: {file: {path: out}}\n",
		"options of both sides at the top":        "kafka: {brokers: [h:9092], options: {linger.ms: 5, fetch.max.bytes: 1048576, acks: all}}\nsource: {kafka: {topics: [a]}}\nsink: {kafka: {topic: b}}\n",
		"error topic by topic":                    "kafka: {brokers: [h:9092]}\nsource: {kafka: {topics: [a]}}\nsink: {kafka: {topic: b}}\nerror_sink: {kafka: {topic: '\\($topic).error', key: $key}, format: event_platform, stream: s}\n",
		"x keys and anchors":                      "x-w: &w {count: 5, timeout: 1s}\nx-unused: ${NONE}\nwindow: {<<: *w, eager: true}\nsource: {file: {path: in}}\nsink: {file: {path: out}}\n",
		"on_error alone":                          "source: {file: {path: in}}\nsink: {file: {path: out}}\non_error: drop\n",
	} {
		t.Run(name, func(t *testing.T) { mustLoad(t, "name: p\n"+text) })
	}
}

func TestConditionsAndThePipelinesName(t *testing.T) {
	text := lines + `filter: $pipeline == "p"
window: {count: 2, timeout: 10ms, by: $pipeline}
process:
  - when: .a == 1 and $pipeline == "p"
    jq: .b = $pipeline
`
	want := "{\"a\":1,\"b\":\"p\"}\n{\"a\":2}\n"
	if got := runLines(t, text, "{\"a\":1}\n{\"a\":2}\n", pipeline.Deps{}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
