package pipeline_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

// TestAPipelineThatLosesItsPlaceInTheGroupIsStartedAgain has another member take its static id.
func TestAPipelineThatLosesItsPlaceInTheGroupIsStartedAgain(t *testing.T) {
	var made atomic.Int32
	spec := functions.New("counts", "counts what it sees", func(env functions.Env, _ struct{}) (event.Func, error) {
		made.Add(1)
		seen := prometheus.NewCounter(prometheus.CounterOpts{Name: "seen_total", Help: "Events seen."})
		env.Metrics.MustRegister(seen) // a second time too
		return event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
			seen.Inc()
			return []*event.Event{ev}, nil
		}), nil
	})
	p, err := pipeline.Load(write(t, "p.yaml", `name: again
kafka: {brokers: embedded, options: {linger.ms: 1, fetch.max.wait.ms: 50}}
source: {kafka: {topics: [in], options: {group.instance.id: one, heartbeat.interval.ms: 100}}}
process: [counts: {}]
sink: {kafka: {topic: out}}
restart: {initial: 10ms, max: 20ms}
commit_interval: 20ms
`), pipeline.Options{Getenv: testEnv, Specs: []functions.Spec{spec}})
	if err != nil {
		t.Fatal(err)
	}
	before := made.Load() // by the check of the file
	embedded := &pipeline.Embedded{}
	defer embedded.Close()
	registry := prometheus.NewRegistry()
	runs, err := p.Supervise(pipeline.Deps{Logger: quiet, Embedded: embedded, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runs.Run(ctx) }()

	feed := mustLoad(t, "name: feed\nkafka: {brokers: embedded}\nsource: {file: {path: '-'}}\nsink: {kafka: {topic: in}}\n")
	send := func(line string) {
		t.Helper()
		if err := feed.Run(ctx, pipeline.Deps{Logger: quiet, Embedded: embedded, Stdin: strings.NewReader(line + "\n")}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for !ok() {
			select {
			case <-tick.C:
			case err := <-ended:
				t.Fatalf("ended before %s: %v", what, err)
			}
		}
	}
	send("1")
	until("the first event is committed", func() bool {
		return counted(t, registry, "enricher_commits_total", map[string]string{"pipeline": "again", "outcome": "ok"}) > 0
	})

	other, leave := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() { left <- p.Run(other, pipeline.Deps{Logger: quiet, Embedded: embedded}) }()
	until("the failure", func() bool { return made.Load() > before+2 }) // other's is the second
	leave()
	if err := <-left; err != nil {
		t.Errorf("the other worker: %v", err)
	}
	send("2")
	until("the second event", func() bool { return runs.Status().Outputs == 2 })
	for name, want := range map[string]float64{"enricher_outputs_total": 2, "seen_total": 1} {
		if got := counted(t, registry, name, map[string]string{"pipeline": "again"}); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got := counted(t, registry, "enricher_restarts_total", map[string]string{"pipeline": "again", "reason": "group"}); got < 1 {
		t.Errorf("enricher_restarts_total for the group: got %v", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("after the stop: %v", err)
	}
}
