package streammanager_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

func TestABatchFuncGetsTheEventsThatReachedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []int
		h := newHarness(t, true, streammanager.Config{Workers: 4}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 6, Timeout: time.Second}).WindowBy(func(context.Context, *event.Event) (string, error) { return "all", nil }).
				Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
					if string(ev.Value()) == "2" && event.Attempt(ctx, ev).Number() == 1 {
						return nil, event.Retry(errTest, time.Minute)
					}
					return []*event.Event{ev}, nil
				}), streammanager.Step{Name: "bulk", Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
					calls = append(calls, len(evs))
					out := make([]event.Result, len(evs))
					for i, ev := range evs {
						out[i].Events = []*event.Event{ev}
						if string(ev.Value()) == "4" && event.Attempt(ctx, ev).Number() == 1 {
							out[i] = event.Result{Err: event.Retry(errTest, time.Second)}
						}
						if string(ev.Value()) == "5" {
							out[i] = event.Result{Err: errTest}
						}
					}
					return out
				})})
		})
		for i := range 6 {
			h.src.add(0, fmt.Sprint("k", i%2), fmt.Sprint(i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(calls, []int{5, 1, 1}) {
			t.Errorf("calls of the batch function: got %v, want [5 1 1]", calls)
		}
		equal(t, "outputs", h.sink.values(), []string{"0", "1", "3", "2", "4"})
		equal(t, "errors", h.errs.values(), []string{"5"})
	})
}

func TestTheRetriesOfOneBatchCallGoTogetherWhenTheLatestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := map[string]time.Duration{"0": 2 * time.Second, "2": 3 * time.Second, "3": time.Second}
		var calls notes
		from := time.Now()
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 5, Timeout: time.Second}).WindowBy(together)
			b.Process(streammanager.Step{Name: "bulk", Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
				call := time.Since(from).String()
				out := make([]event.Result, len(evs))
				for i, ev := range evs {
					call += " " + string(ev.Value())
					out[i].Events = []*event.Event{ev}
					if wait := waits[string(ev.Value())]; wait > 0 && event.Attempt(ctx, ev).Number() == 1 {
						out[i] = event.Result{Err: event.Retry(errTest, wait)}
					}
				}
				calls.add(call)
				return out
			})})
		})
		for i := range 5 {
			h.src.add(0, fmt.Sprint("k", i), fmt.Sprint(i))
		}
		h.finish(t)
		equal(t, "calls", calls.all(), []string{"0s 0 1 2 3 4", "3s 0 2 3"})
		equal(t, "outputs", h.sink.values(), []string{"1", "4", "0", "2", "3"})
		h.offsets(t, 5)
	})
}

func TestANilEventOfABatchFuncIsTheFaultOfItsOwnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 3, Timeout: time.Second})
			b.Process(bulk(&notes{}, func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "a1" {
					return []*event.Event{nil}, nil
				}
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 3 {
			h.src.add(0, "a", fmt.Sprint("a", i))
		}
		h.finish(t)
		equal(t, "outputs", h.sink.values(), []string{"a0", "a2"})
		equal(t, "errors", h.errs.values(), []string{"a1"})
		if got := h.errs.header(0, "enricher.error.type"); got != "function" {
			t.Errorf("type: got %q, want function", got)
		}
		h.offsets(t, 3)
	})
}

// With key_serial an event that has reached a BatchFunc waits for one of its key that is between two tries.
func TestABatchCallNeverOverlapsACallOfItsKeyInKeySerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		enter := func() {
			if running.Add(1) > 1 {
				t.Error("two calls for one key at once")
			}
		}
		var calls notes
		h := newHarness(t, true, streammanager.Config{Order: streammanager.OrderKeySerial}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 2, Timeout: time.Second})
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				enter()
				defer running.Add(-1)
				time.Sleep(time.Second)
				if string(ev.Value()) == "1" && event.Attempt(ctx, ev).Number() == 1 {
					return nil, event.Retry(errTest, 5*time.Second)
				}
				return []*event.Event{ev}, nil
			}), streammanager.Step{Name: "bulk", Batch: event.BatchFuncOf(func(_ context.Context, evs []*event.Event) []event.Result {
				enter()
				defer running.Add(-1)
				time.Sleep(20 * time.Second)
				out := make([]event.Result, len(evs))
				for i, ev := range evs {
					out[i].Events = []*event.Event{ev}
				}
				calls.add(fmt.Sprint(len(evs)))
				return out
			})})
		})
		h.src.add(0, "k", "0")
		h.src.add(0, "k", "1")
		h.finish(t)
		equal(t, "outputs", h.sink.values(), []string{"0", "1"})
		equal(t, "sizes of the batch calls", calls.all(), []string{"2"})
		h.offsets(t, 2)
	})
}
