package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

// flaky is a function that fails events as it is told. It is used by name: fails: {}.
type flaky struct {
	mu   sync.Mutex // guards with
	with map[string]event.Type
}

// fail has events fail from now on: id to type.
func (f *flaky) fail(with map[string]event.Type) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.with = with
}

func (f *flaky) spec() functions.Spec {
	return functions.New("fails", "fails", func(_ functions.Env, _ struct{}) (event.Func, error) {
		return event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if typ := f.with[strings.Split(string(ev.Value()), `"`)[3]]; typ != "" {
				return nil, event.Reject(typ, errors.New("as told"))
			}
			return []*event.Event{ev}, nil
		}), nil
	})
}

// replaying is a job on the embedded broker that has written error events.
type replaying struct {
	t        *testing.T
	flaky    *flaky
	embedded *pipeline.Embedded
	job      *pipeline.Pipeline
	fill     *pipeline.Pipeline
	dead     *pipeline.Pipeline
}

const jobFile = `name: job
kafka: {brokers: embedded, data_dir: %q, options: {linger.ms: 1, fetch.max.wait.ms: 50, heartbeat.interval.ms: 100}}
commit_interval: 20ms
source: {kafka: {topics: [events]}}
partition_by: .id
filter: .id != "dropped"
process:
  - name: look
    fails: {}
  - jq: .at = [$topic, $partition, $offset, $timestamp, $key, ($headers | keys)]
sink: {file: {path: "-"}}
error_sink: {%s kafka: {topic: job.error}}
`

func newReplaying(t *testing.T, format string) *replaying {
	t.Helper()
	r := &replaying{t: t, flaky: &flaky{}, embedded: &pipeline.Embedded{}}
	t.Cleanup(func() { _ = r.embedded.Close() })
	dir := t.TempDir()
	load := func(text string) *pipeline.Pipeline {
		p, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{Getenv: testEnv, Specs: []functions.Spec{r.flaky.spec()}})
		if err != nil {
			t.Fatalf("loading:\n%v", err)
		}
		return p
	}
	r.job = load(fmt.Sprintf(jobFile, dir, format))
	r.fill = load(fmt.Sprintf("name: fill\nkafka: {brokers: embedded, data_dir: %q}\nsource: {file: {path: \"-\"}}\nsink: {kafka: {topic: events, key: .id}}\n", dir))
	r.dead = load(fmt.Sprintf("name: dead\nkafka: {brokers: embedded, data_dir: %q, options: {fetch.max.wait.ms: 50}}\nsource: {kafka: {topics: [job.error], until: latest}}\nprocess:\n  - jq: '{value: ., key: $key, headers: $headers}'\nsink: {file: {path: \"-\"}}\n", dir))
	if err := r.embedded.Prepare(r.job, r.fill, r.dead); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replaying) deps(out *lineWriter, in string) pipeline.Deps {
	return pipeline.Deps{Logger: quiet, Embedded: r.embedded, Stdin: strings.NewReader(in), Stdout: out}
}

// write gives the job events and has it run over them.
func (r *replaying) write(with map[string]event.Type) {
	r.t.Helper()
	var in strings.Builder
	for _, id := range slices.Sorted(maps.Keys(with)) {
		fmt.Fprintf(&in, "{\"id\":%q}\n", id)
	}
	if err := r.fill.Run(r.t.Context(), r.deps(&lineWriter{}, in.String())); err != nil {
		r.t.Fatal(err)
	}
	r.flaky.fail(with)
	r.finish(r.job, len(with), &lineWriter{})
	r.flaky.fail(nil)
}

// finish runs p until it has finished n events.
func (r *replaying) finish(p *pipeline.Pipeline, n int, out *lineWriter) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	s, err := p.Supervise(r.deps(out, ""))
	if err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if st := s.Status(); st.Emitted+st.Dropped+st.Errors >= int64(n) {
			cancel()
		}
		<-tick.C
	}
	if err := <-ended; err != nil {
		r.t.Fatal(err)
	}
}

// replay runs one replay to its end, and returns the ids that it has sent, sorted, and what it counted.
func (r *replaying) replay(o pipeline.ReplayOptions) ([]string, pipeline.Tally) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	again, err := r.job.Replay(o)
	if err != nil {
		r.t.Fatal(err)
	}
	out := &lineWriter{}
	s, err := again.Supervise(r.deps(out, ""))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := s.Run(ctx); err != nil || ctx.Err() != nil || !again.Over() {
		r.t.Fatalf("replaying %+v: %v, %v, over %v", o, err, ctx.Err(), again.Over())
	}
	return idsOf(out), again.Tally()
}

func idsOf(out *lineWriter) []string {
	var ids []string
	for _, line := range out.lines() {
		if line != "" {
			ids = append(ids, strings.Split(line, `"`)[3])
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *replaying) sends(o pipeline.ReplayOptions, want ...string) pipeline.Tally {
	r.t.Helper()
	got, tally := r.replay(o)
	if !slices.Equal(got, want) {
		r.t.Errorf("replaying %+v: sent %q, want %q; %+v", o, got, want, tally)
	}
	return tally
}

func TestRunsWithDifferentFiltersLeaveNoEventUnsent(t *testing.T) {
	r := newReplaying(t, "")
	r.write(map[string]event.Type{"a": "not_found", "b": "timeout", "c": "timeout", "d": "other", "ok": ""})
	notFound, timeout := pipeline.ReplayOptions{Types: []string{"not_found"}}, pipeline.ReplayOptions{Types: []string{"timeout"}}
	tally := r.sends(notFound, "a")
	if tally.Looked != 4 || tally.PassedOver["timeout"] != 2 || tally.PassedOver["other"] != 1 {
		t.Errorf("counted %+v", tally)
	}
	r.sends(timeout, "b", "c")
	r.sends(notFound)
	r.sends(timeout)
	// Without a filter it has a position of its own: it sends all that it has not sent itself.
	r.sends(pipeline.ReplayOptions{}, "a", "b", "c", "d")
	r.sends(pipeline.ReplayOptions{})

	// What came since is in the next run of each.
	r.write(map[string]event.Type{"e": "timeout", "f": "not_found"})
	r.sends(timeout, "e")
	r.sends(notFound, "f")
	r.sends(pipeline.ReplayOptions{Types: []string{" timeout , not_found"}}, "a", "b", "c", "e", "f")
	r.sends(pipeline.ReplayOptions{Types: []string{"not_found", "timeout", "timeout"}})
	r.sends(pipeline.ReplayOptions{}, "e", "f")
}

func TestAnEventThatFailsAgainIsForTheNextRunAndKeepsItsOrigin(t *testing.T) {
	for _, format := range []string{"", "format: event_platform, stream: errors,"} {
		t.Run(format, func(t *testing.T) {
			r := newReplaying(t, format)
			r.write(map[string]event.Type{"a": "not_found", "b": "timeout"})
			r.flaky.fail(map[string]event.Type{"a": "timeout"})
			r.sends(pipeline.ReplayOptions{}, "b")
			r.flaky.fail(nil)
			out := &lineWriter{}
			if err := r.dead.Run(t.Context(), r.deps(out, "")); err != nil {
				t.Fatal(err)
			}
			lines := out.lines()
			if len(lines) != 3 {
				t.Fatalf("got %d error events, want 2 and the new one: %q", len(lines), lines)
			}
			origins := map[string]int{}
			for _, line := range lines {
				if strings.Count(line, `"enricher.error.type"`) != 1 {
					t.Errorf("headers of two failures: %s", line)
				}
				if i := strings.Index(line, `"enricher.error.offset"`); strings.Contains(line, `"key":"a"`) {
					if !strings.Contains(line, `"enricher.error.topic":"events"`) {
						t.Errorf("origin: got %s", line)
					}
					origins[line[i:i+40]]++
				}
			}
			if len(origins) != 1 {
				t.Errorf("the two error events of one event tell of different places: %v", origins)
			}
			r.sends(pipeline.ReplayOptions{}, "a")
			r.sends(pipeline.ReplayOptions{})
		})
	}
}

func TestAReplayedEventIsWhatItWas(t *testing.T) {
	for _, format := range []string{"", "format: event_platform, stream: errors,"} {
		r := newReplaying(t, format)
		var in strings.Builder
		for i := range 20 {
			fmt.Fprintf(&in, "{\"id\":\"%d\"}\n", i)
		}
		if err := r.fill.Run(t.Context(), r.deps(&lineWriter{}, in.String())); err != nil {
			t.Fatal(err)
		}
		plain := &lineWriter{}
		r.finish(r.job, 20, plain)
		all := map[string]event.Type{}
		for i := range 20 {
			all[fmt.Sprint(i)] = "not_found"
		}
		// The same events once more, by a group that has not read them.
		second, err := pipeline.Load(r.job.File(), pipeline.Options{Getenv: testEnv, Specs: []functions.Spec{r.flaky.spec()}, Set: []string{"source.kafka.group=second"}})
		if err != nil {
			t.Fatal(err)
		}
		r.flaky.fail(all)
		r.finish(second, 20, &lineWriter{})
		r.flaky.fail(nil)
		again, err := second.Replay(pipeline.ReplayOptions{Where: `$topic == "events" and .id != null`})
		if err != nil {
			t.Fatal(err)
		}
		if got := again.Group(); !strings.HasPrefix(got, "second-replay-") {
			t.Errorf("group %q", got)
		}
		replayed := &lineWriter{}
		s, err := again.Supervise(r.deps(replayed, ""))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want, got := plain.lines(), replayed.lines()
		slices.Sort(want)
		slices.Sort(got)
		if len(want) != 20 || !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", format, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestADryRunCountsAndCommitsNothing(t *testing.T) {
	r := newReplaying(t, "")
	r.write(map[string]event.Type{"a": "not_found", "b": "timeout", "c": "timeout"})
	count := func() pipeline.Tally {
		t.Helper()
		again, err := r.job.Replay(pipeline.ReplayOptions{Types: []string{"timeout"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Count(t.Context(), r.deps(&lineWriter{}, "")); err != nil {
			t.Fatal(err)
		}
		return again.Tally()
	}
	for range 2 {
		if got := count(); got.Looked != 3 || got.Chosen["timeout"] != 2 || got.PassedOver["not_found"] != 1 {
			t.Errorf("before: %+v", got)
		}
	}
	r.sends(pipeline.ReplayOptions{Types: []string{"timeout"}}, "b", "c")
	if got := count(); got.Looked != 0 {
		t.Errorf("after the run: %+v", got)
	}
	r.write(map[string]event.Type{"d": "timeout"})
	if got := count(); got.Looked != 1 || got.Chosen["timeout"] != 1 {
		t.Errorf("after one more error event: %+v", got)
	}
}

func TestAReplayCanBeginAnew(t *testing.T) {
	r := newReplaying(t, "")
	r.write(map[string]event.Type{"a": "not_found", "b": "timeout"})
	r.sends(pipeline.ReplayOptions{}, "a", "b")
	again, err := r.job.Replay(pipeline.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Forget(t.Context(), r.deps(&lineWriter{}, "")); err != nil {
		t.Fatal(err)
	}
	r.sends(pipeline.ReplayOptions{}, "a", "b")
	r.sends(pipeline.ReplayOptions{})
}

func TestAReplayGoesWithoutTheRepartitionTopic(t *testing.T) {
	r := newReplaying(t, "")
	r.write(map[string]event.Type{"a": "not_found", "b": "timeout"})
	led, err := pipeline.Load(r.job.File(), pipeline.Options{
		Getenv: testEnv, Specs: []functions.Spec{r.flaky.spec()}, Set: []string{"repartition.topic=job.between", "repartition.partitions=4"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.job = led
	r.sends(pipeline.ReplayOptions{}, "a", "b") // a stream that opens records and leads them through a topic could not even be built
}
