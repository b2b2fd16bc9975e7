package streammanager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// A partition that is given waits for no call of another: only a revoke waits.
func TestAPartitionThatIsGivenIsWorkedOnWhileCallsOfOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 2}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "long" {
					time.Sleep(50 * time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		h.src.add(0, "a", "long")
		stop := h.serve(t)
		time.Sleep(time.Second)
		h.src.add(1, "b", "quick")
		within(t, "giving a partition", 0, func() { h.src.assign(tp{"in", 1}) })
		time.Sleep(2 * time.Second)
		equal(t, "outputs", h.sink.values(), []string{"quick"})
		h.offsets(t, 0, 1)
		time.Sleep(time.Minute)
		equal(t, "outputs", h.sink.values(), []string{"quick", "long"})
		stop()
	})
}

// What a limit did while the stream was full must end with it: room, pauses, the estimate of outputs.
func TestAStreamThatWasFullIsAsFastAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 600
		cfg := streammanager.Config{Workers: 8, Limits: streammanager.Limits{InFlightEvents: 100, InFlightBytes: 200_000, UncommittedEvents: 300}}
		h := newHarness(t, false, cfg, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 5, Timeout: 50 * time.Millisecond}).Process(takes(10 * time.Millisecond))
		})
		for p := range int32(4) {
			h.src.logs[tp{"in", p}] = nil // assigned
		}
		stop, all := h.serve(t), 0
		add := func() {
			for i := range events {
				h.src.add(int32(i%4), fmt.Sprint(i%200), strings.Repeat("v", 100))
			}
			all += events
		}
		rate := func() time.Duration {
			add()
			from := time.Now()
			for h.sink.len() < all && time.Since(from) < time.Minute {
				time.Sleep(10 * time.Millisecond)
			}
			return time.Since(from)
		}
		first := rate()
		for range 2 {
			h.sink.mu.Lock()
			h.sink.hold = true
			h.sink.mu.Unlock()
			add()
			time.Sleep(10 * time.Minute)
			if st := h.stream.Status(); st.InFlightEvents < 90 {
				t.Fatalf("%d events are in flight, this test needs the stream full", st.InFlightEvents)
			}
			h.sink.let()
			time.Sleep(10 * time.Minute)
			if took := rate(); took > first+first/10 {
				t.Errorf("%d events took %v, %v before the stream was full", events, took, first)
			}
		}
		stop()
		if st := h.stream.Status(); st.InFlightEvents != 0 || st.InFlightBytes != 0 {
			t.Errorf("%d events and %d bytes are in flight at the end", st.InFlightEvents, st.InFlightBytes)
		}
	})
}

// Events that will fail at every try must not use up what the others need.
func TestKeysThatAlwaysFailLeaveTheOthersTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events, workers = 4_000, 4
		h := newHarness(t, false, streammanager.Config{Workers: workers}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(time.Millisecond)
				if strings.HasPrefix(string(ev.Key()), "bad") {
					return nil, event.Retry(errTest, 10*time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		for i := range events {
			key := fmt.Sprint("good", i)
			if i%20 == 0 {
				key = fmt.Sprint("bad", i)
			}
			h.src.add(int32(i%3), key, fmt.Sprint(i))
		}
		stop := h.serve(t)
		// Each bad event is called five times, the good ones once, a millisecond each.
		time.Sleep(2 * events / workers * time.Millisecond)
		if n := len(h.sink.values()); n != events*19/20 {
			t.Errorf("%d of %d good events are written after twice the time of their calls", n, events*19/20)
		}
		time.Sleep(time.Minute)
		if n := len(h.errs.values()); n != events/20 {
			t.Errorf("%d error events, want %d", n, events/20)
		}
		stop()
	})
}

// Of a BatchFunc, too, what is done early waits for what was read before it.
func TestOfABatchCallTheOutputsOfAKeyLeaveInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, tried := &notes{}, map[string]bool{}
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 6, Timeout: time.Second}).WindowBy(together).Process(bulk(calls, func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if v := string(ev.Value()); (v == "a1" || v == "b2") && !tried[v] {
					tried[v] = true
					return nil, event.Retry(errTest, time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 3 {
			h.src.add(0, "a", fmt.Sprint("a", i+1))
			h.src.add(0, "b", fmt.Sprint("b", i+1))
		}
		h.finish(t)
		for _, key := range []string{"a", "b"} {
			got := slices.DeleteFunc(h.sink.values(), func(v string) bool { return !strings.HasPrefix(v, key) })
			equal(t, "outputs of "+key, got, []string{key + "1", key + "2", key + "3"})
		}
		equal(t, "calls", calls.all(), []string{"a1 b1 a2 b2 a3 b3", "a1 b2"})
	})
}
