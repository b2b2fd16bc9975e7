package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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
  - jq: .key = $key
sink: {file: {path: "-"}}
error_sink: {kafka: {topic: enrich.error}}
`)
	embedded := &pipeline.Embedded{}
	defer embedded.Close()
	if err := embedded.Prepare(fill, enrich); err != nil {
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
	out := &lineWriter{want: n - 1, done: make(chan struct{})}
	registry := prometheus.NewRegistry()
	ended := make(chan error, 1)
	go func() {
		ended <- enrich.Run(ctx, pipeline.Deps{Logger: quiet, Embedded: embedded, Stdout: out, Metrics: registry})
	}()
	select {
	case <-out.done:
	case <-ctx.Done():
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("running: %v", err)
	}
	got := out.lines()
	slices.Sort(got)
	if len(got) != n-1 || got[0] != `{"id":"0","key":"0"}` {
		t.Errorf("got %d lines, the first %q, want %d", len(got), got[0], n-1)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

func TestWorstCaseCountsTheBuffersOfTheClients(t *testing.T) {
	p := mustLoad(t, "name: p\nkafka: {brokers: [h:9092]}\nsource: {kafka: {topics: [a]}}\nsink: {kafka: {topic: b}}\nlimits: {in_flight_bytes: 1MiB}\n")
	w, err := p.WorstCaseBytes()
	if err != nil {
		t.Fatal(err)
	}
	if w.InFlight != 1<<20 || w.Source < 8<<20 || w.Sink < 1<<20 || w.ErrorSink != 0 || w.Total() != w.InFlight+w.Source+w.Sink {
		t.Errorf("got %+v", w)
	}
	if !strings.Contains(w.String(), "1MiB in flight") {
		t.Errorf("got %s", w)
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
