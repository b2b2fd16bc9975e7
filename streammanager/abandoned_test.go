package streammanager_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// hanging is a function that ignores its context: an event of value "hangs" keeps it for some time.
func hanging(timeout, hangs, others time.Duration) streammanager.Step {
	st := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		if string(ev.Value()) == "hangs" {
			time.Sleep(hangs)
		} else {
			time.Sleep(others)
		}
		return []*event.Event{ev}, nil
	})
	st.Timeout = timeout
	return st
}

func TestAnAbandonedCallDoesNotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var second notes
		h := newHarness(t, false, streammanager.Config{Workers: 4}, func(b *streammanager.Builder) {
			b.Process(hanging(time.Second, time.Minute, 0), streammanager.Step{Name: "two", Func: event.FuncOf(
				func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
					second.add(string(ev.Value()))
					return []*event.Event{ev}, nil
				})})
		})
		h.src.add(0, "a", "hangs")
		h.src.add(0, "a", "next")
		stop := h.serve(t)
		time.Sleep(5 * time.Minute)
		stop()
		equal(t, "error events", h.errs.values(), []string{"hangs"})
		equal(t, "outputs", h.sink.values(), []string{"next"})
		equal(t, "calls of the second function", second.all(), []string{"next"})
		h.offsets(t, 2)
	})
}

func TestAnAbandonedCallsWorkerIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 2}, func(b *streammanager.Builder) {
			b.Process(hanging(time.Second, time.Hour, 500*time.Millisecond))
		})
		h.src.add(0, "-", "hangs")
		stop := h.serve(t)
		time.Sleep(10 * time.Second)
		equal(t, "error events", h.errs.values(), []string{"hangs"})
		h.src.add(0, "-", "1")
		h.src.add(0, "-", "2")
		time.Sleep(700 * time.Millisecond)
		if n := len(h.sink.values()); n != 2 {
			t.Errorf("%d of 2 events went through at once beside a call that hangs", n)
		}
		time.Sleep(2 * time.Hour) // the call returns: there are two workers again
		for i := range 4 {
			h.src.add(0, "-", fmt.Sprint("later", i))
		}
		time.Sleep(700 * time.Millisecond)
		if n := len(h.sink.values()); n != 4 {
			t.Errorf("%d outputs, want 4: two calls at once of the last four", n)
		}
		time.Sleep(time.Minute)
		stop()
		h.offsets(t, 7)
	})
}

// A call that ignores its context keeps a worker until its deadline, and its key's lane.
func TestACallThatIgnoresItsContextLeavesTheOthersTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{
			Workers: 4, Limits: streammanager.Limits{InFlightEvents: 100}, ShutdownTimeout: 10 * time.Second,
		}, func(b *streammanager.Builder) {
			b.Process(hanging(time.Hour, 30*time.Minute, 10*time.Millisecond))
		})
		for i := range 1000 {
			h.src.add(0, "hang", "hangs")
			h.src.add(1, fmt.Sprint(i), fmt.Sprint(i))
			h.src.add(2, fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.serve(t)
		time.Sleep(10 * time.Second) // 2,000 calls of 10 ms on three workers take 6.7 s
		if got := len(h.sink.values()); got != 2000 {
			t.Errorf("got %d outputs of other keys, want 2000", got)
		}
		h.offsets(t, 0, 1000, 1000)
		if st := h.stream.Status(); st.InFlightEvents > 100 {
			t.Errorf("in flight: %d, want at most 100", st.InFlightEvents)
		}
		within(t, "the stop", 10*time.Second, stop)
		equal(t, "errors", h.errs.values(), nil)
		h.offsets(t, 0, 1000, 1000)
		time.Sleep(time.Hour) // the call returns
	})
}
