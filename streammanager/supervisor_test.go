package streammanager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// failing is a source whose polls fail as its test says.
type failing struct {
	*memSource
	fail func() error // nil: go on
}

func (s failing) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	if err := s.fail(); err != nil {
		return streammanager.Polled{}, err
	}
	return s.memSource.Poll(ctx, limit)
}

// supervised runs streams over one log. Each gets the next of fails, the last of them for ever.
type supervised struct {
	log    journal
	reg    *prometheus.Registry
	src    *memSource
	sink   *memSink
	starts []time.Time
	closed int
	s      *streammanager.Supervisor
}

func supervise(t *testing.T, restart streammanager.Restart, step streammanager.Step, fails ...func() error) *supervised {
	t.Helper()
	h := &supervised{reg: prometheus.NewRegistry(), src: newMemSource(false), sink: &memSink{}}
	h.src.logs[tp{"in", 0}] = nil
	log := slog.New(slog.NewTextHandler(&h.log, nil))
	var err error
	h.s, err = streammanager.NewSupervisor(streammanager.SupervisorConfig{
		Name: "test", Restart: restart, Logger: log, Metrics: h.reg, Close: func() error { h.closed++; return nil },
	}, func() (streammanager.Made, error) {
		h.starts = append(h.starts, time.Now())
		fail := fails[min(len(h.starts), len(fails))-1]
		made, err := streammanager.New(streammanager.Config{Name: "test", Logger: log, Metrics: h.reg}).
			From(failing{h.src, fail}).To(h.sink).Process(step).Build()
		return streammanager.Made{Stream: made, Close: func() error { h.closed++; return nil }}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *supervised) start() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.s.Run(ctx) }()
	synctest.Wait()
	return func() error { cancel(); return <-done }
}

// restarts returns what is counted for a reason; all of them begin at 0.
func (h *supervised) restarts(t *testing.T, reason string) float64 {
	t.Helper()
	return labelled(t, h.reg, "enricher_restarts_total", "reason", reason)
}

// labelled returns the counter whose label has the value.
func labelled(t *testing.T, reg *prometheus.Registry, name, label, value string) float64 {
	t.Helper()
	found, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("no series of %s for %q", name, value)
	return 0
}

func well() error { return nil }

// once fails the first poll after d.
func once(d time.Duration, err error) func() error {
	return func() error { time.Sleep(d); return err }
}

func TestAFailureThatMayPassStartsTheStreamAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := supervise(t, streammanager.Restart{}, try(pass), once(0, errTest), once(0, errTest), once(0, errTest), well)
		h.src.add(0, "k", "a")
		stop := h.start()
		if err := h.s.Status().Ready; err == nil || !strings.Contains(err.Error(), "test failure") || !strings.Contains(err.Error(), "(source)") {
			t.Errorf("while it waits: ready %v, want the reason and the cause", err)
		}
		time.Sleep(10 * time.Second)
		equal(t, "outputs", h.sink.values(), []string{"a"})
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			if waited := h.starts[i+1].Sub(h.starts[i]); waited < most/2 || waited > most {
				t.Errorf("wait %d took %v, want between half and all of %v", i, waited, most)
			}
		}
		if err := h.s.Status().Ready; err != nil {
			t.Errorf("when it runs again: %v, want ready", err)
		}
		if got := h.restarts(t, "source"); got != 3 {
			t.Errorf("restarts counted: %v, want 3", got)
		}
		if n := strings.Count(h.log.String(), "the pipeline failed and is started again"); n != 3 {
			t.Errorf("said %d times, want 3:\n%s", n, h.log.String())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if h.closed != len(h.starts)+1 {
			t.Errorf("%d of %d closed, and what was shared", h.closed, len(h.starts))
		}
	})
}

func TestALongRunEndsTheMemoryOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := streammanager.Restart{Initial: time.Second, Max: 10 * time.Second, ResetAfter: time.Minute, Attempts: 2}
		h := supervise(t, cfg, try(pass), once(0, errTest), once(0, errTest), once(time.Minute, errTest), once(0, errTest), once(0, errTest))
		err := <-func() chan error {
			done := make(chan error, 1)
			go func() { done <- h.s.Run(t.Context()) }()
			return done
		}()
		if !errors.Is(err, errTest) || !strings.Contains(err.Error(), "restart.attempts is 2") {
			t.Errorf("ended with %v, want the failure and the bound", err)
		}
		if len(h.starts) != 5 { // two more after the third, whose run was long
			t.Errorf("started %d times, want 5", len(h.starts))
		}
	})
}

func TestWhatIsForGoodIsNotStartedAgain(t *testing.T) {
	rejects := try(func(context.Context, *event.Event) ([]*event.Event, error) { return nil, event.Reject("bad", errTest) })
	for _, test := range []struct {
		name string
		step streammanager.Step
		fail func() error
		want string
	}{
		{name: "an error event under on_error: stop", step: rejects, fail: well, want: `event at topic "in" partition 0 offset 0 failed`},
		{name: "a fatal error of a function", fail: well, want: "for ever", step: try(func(context.Context, *event.Event) ([]*event.Event, error) {
			return nil, event.Fatal(errors.New("for ever"))
		})},
		{name: "a fatal error of the source", step: try(pass), fail: once(0, event.Fatal(errTest)), want: "test failure"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := supervise(t, streammanager.Restart{}, test.step, test.fail)
				h.src.add(0, "k", "a")
				err := h.s.Run(t.Context())
				var fatal *event.FatalError
				if !errors.As(err, &fatal) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("ended with %v, want a fatal error with %q", err, test.want)
				}
				if len(h.starts) != 1 {
					t.Errorf("started %d times", len(h.starts))
				}
			})
		})
	}
}

func TestAFailureAtOnePlaceNeverLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(offset int64) func() error {
			return once(0, &streammanager.FailedError{
				Reason: streammanager.ReasonUnreadable, At: &event.Position{Topic: "in", Offset: offset}, Err: fmt.Errorf("at %d: %w", offset, errTest),
			})
		}
		h := supervise(t, streammanager.Restart{}, try(pass), at(7), at(8), once(0, errTest), at(8), once(0, errTest), at(8))
		err := h.s.Run(t.Context())
		if !errors.Is(err, errTest) || !strings.Contains(err.Error(), `3 times in a row at topic "in" partition 0 offset 8`) {
			t.Errorf("ended with %v, want the place", err)
		}
		if len(h.starts) != 6 {
			t.Errorf("started %d times, want 6", len(h.starts))
		}
		if !strings.Contains(h.log.String(), "topic=in partition=0 offset=8 failures_there=2") {
			t.Errorf("the place was not logged:\n%s", h.log.String())
		}
		if got := h.restarts(t, "unreadable"); got != 3 {
			t.Errorf("restarts counted: %v, want 3", got)
		}
	})
}

// A failure elsewhere says nothing of a place that has failed: the events there are read again after each start.
func TestFailuresAtPlacesOfSeveralPartitionsByTurnsNeverLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails []func() error
		for i := range 1000 {
			fails = append(fails, once(0, &streammanager.FailedError{
				Reason: streammanager.ReasonUnreadable, At: &event.Position{Topic: "in", Partition: int32(i % 3), Offset: 7}, Err: errTest,
			}))
		}
		h := supervise(t, streammanager.Restart{}, try(pass), fails...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := h.s.Run(ctx); !errors.Is(err, errTest) || !strings.Contains(err.Error(), `3 times in a row at topic "in" partition 0 offset 7`) {
			t.Errorf("ended with %v, want the place", err)
		}
		if len(h.starts) != 7 {
			t.Errorf("started %d times, want 7", len(h.starts))
		}
	})
}

func TestCountsGoOnOverAHundredRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		polls := 0
		everyThird := func() error { // a stream polls for its event, then for the next, and fails
			if polls++; polls%2 == 0 {
				time.Sleep(time.Second)
				return errTest
			}
			return nil
		}
		h := supervise(t, streammanager.Restart{Max: time.Second}, try(pass), everyThird)
		stop := h.start()
		last := 0.0
		for i := range n {
			h.src.add(0, "k", fmt.Sprint(i))
			time.Sleep(3 * time.Second)
			now := metric(t, h.reg, "enricher_outputs_total")
			if now < last {
				t.Fatalf("enricher_outputs_total went back from %v to %v", last, now)
			}
			last = now
		}
		if got := len(h.starts); got < n {
			t.Errorf("started %d times, want %d at least", got, n)
		}
		st := h.s.Status()
		if int(last) != len(h.sink.values()) || st.Outputs != int64(last) || st.Emitted < n {
			t.Errorf("counted %v, status %+v, wrote %d", last, st, len(h.sink.values()))
		}
		got := h.sink.values()
		for i := range n {
			if !slices.Contains(got, fmt.Sprint(i)) {
				t.Fatalf("event %d is lost", i)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAStopEndsTheWaitForTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := supervise(t, streammanager.Restart{Initial: time.Hour, Max: time.Hour}, try(pass), once(0, errTest))
		stop := h.start()
		within(t, "the stop", time.Second, func() {
			if err := stop(); err != nil {
				t.Errorf("stopped while it waits: %v, want no error", err)
			}
		})
	})
}

func TestWhatARestartReadsAgainIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		thirdTime := func() error { // the event is read, then the poll fails
			if polls++; polls == 2 || polls == 4 {
				time.Sleep(time.Second)
				return errTest
			}
			return nil
		}
		h := supervise(t, streammanager.Restart{Initial: time.Second, Max: time.Second}, try(sticks), thirdTime)
		h.src.add(0, "k", "stuck")
		stop := h.start()
		for range 100 {
			balanced(t, "meanwhile", h.s.Status())
			time.Sleep(100 * time.Millisecond)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		st := h.s.Status()
		balanced(t, "at the end", st)
		if st.Returned != 2 || st.Unfinished != 1 || st.Read != 3 {
			t.Errorf("%d read, %d returned and %d unfinished, want 3, 2 and 1", st.Read, st.Returned, st.Unfinished)
		}
	})
}
