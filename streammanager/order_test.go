package streammanager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

func TestOrderOfAKeyIsKeptWhileItsCallsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		h := newHarness(t, true, streammanager.Config{Workers: 8}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 4, Timeout: time.Second}).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Duration(10-len(ev.Value())) * time.Second)
				running.Add(-1)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 8 {
			h.src.add(0, "k", strings.Repeat("x", i+1))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		var lens []string
		for _, v := range h.sink.values() {
			lens = append(lens, fmt.Sprint(len(v)))
		}
		equal(t, "order", lens, []string{"1", "2", "3", "4", "5", "6", "7", "8"})
		if most.Load() != 4 {
			t.Errorf("calls of one batch: got %d at once, want 4", most.Load())
		}
	})
}

func TestCallsOfAKeyNeverOverlapInKeySerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, tries atomic.Int32
		h := newHarness(t, true, streammanager.Config{Workers: 8, Order: streammanager.OrderKeySerial}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 4, Timeout: time.Second}).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if running.Add(1) > 1 {
					t.Error("two calls for one key at once")
				}
				defer running.Add(-1)
				time.Sleep(time.Second)
				if string(ev.Value()) == "1" && tries.Add(1) < 3 {
					return nil, event.Retry(errTest, 5*time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 6 {
			h.src.add(0, "k", fmt.Sprint(i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "order", h.sink.values(), []string{"0", "1", "2", "3", "4", "5"})
	})
}

func TestATombstoneIsABarrierWhereTheKeyIsReadFromTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.PartitionBy(func(_ context.Context, ev *event.Event) (streammanager.Key, error) {
				return streammanager.Key{Value: string(ev.Value())}, nil
			}).Window(window.Config{Count: 10, Timeout: time.Minute}).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(time.Duration(5-len(ev.Value())) * time.Second)
				return []*event.Event{ev}, nil
			}))
		})
		for _, v := range []string{"a", "aa", "-", "aaa", "-", "aaaa"} {
			h.src.add(0, "k", v)
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "order", h.sink.values(), []string{"aa", "a", "null", "aaa", "null", "aaaa"})
	})
}

func TestAChainWithoutCallsKeepsTheOrderOfThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(streammanager.Step{Name: "twice", Inline: true, Func: event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				switch string(ev.Value()) {
				case "3":
					return nil, nil
				case "5":
					return nil, errTest
				}
				second := ev.Clone()
				second.SetValue(append(second.Value(), '+'))
				return []*event.Event{ev, second}, nil
			})})
		})
		for i := range 7 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "outputs", h.sink.values(), []string{"0", "0+", "1", "1+", "2", "2+", "4", "4+", "6", "6+"})
		if st := h.stream.Status(); st.Outputs != 10 || st.Emitted != 5 || st.Dropped != 1 || st.Errors != 1 {
			t.Errorf("status: %+v", st)
		}
		equal(t, "errors", h.errs.values(), []string{"5"})
		if got := h.src.offset(0); got != 7 {
			t.Errorf("committed %d, want 7", got)
		}
	})
}

func TestNothingOfAKeyLeavesBehindTheEventThatEndsTheStream(t *testing.T) {
	fails := event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		if ev.Position().Offset == 2 {
			return nil, event.Fatal(errTest)
		}
		return []*event.Event{ev}, nil
	})
	stops := event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		if ev.Position().Offset == 2 {
			return nil, errTest
		}
		return []*event.Event{ev}, nil
	})
	for name, step := range map[string]streammanager.Step{
		"fatal without calls":          {Name: "f", Inline: true, Func: fails},
		"on_error: stop without calls": {Name: "f", Inline: true, Func: stops},
		"fatal in a window":            {Name: "f", Func: fails, Timeout: time.Second},
		"on_error: stop in a window":   {Name: "f", Func: stops, Timeout: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
					b.ErrorsTo(nil, nil).Window(window.Config{Count: 5, Timeout: time.Minute}).Process(step)
				})
				for i := range 5 {
					h.src.add(0, "k", fmt.Sprint(i))
				}
				if err := h.stream.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "offset 2") {
					t.Errorf("it ended with %v, want an error of offset 2", err)
				}
				// Calls under way may be given up.
				if got := h.sink.values(); !slices.Equal(got, []string{"0", "1"}[:min(len(got), 2)]) {
					t.Errorf("outputs: %q, want none behind offset 2", got)
				}
				if got := h.src.offset(0); got > 2 {
					t.Errorf("committed %d, want no more than 2", got)
				}
			})
		})
	}
}

func TestAKeyInTwoTopicsIsOneLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var atWork, most atomic.Int32
		h := newHarness(t, true, streammanager.Config{Order: streammanager.OrderKeySerial}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				most.Store(max(most.Load(), atWork.Add(1)))
				time.Sleep(time.Second)
				atWork.Add(-1)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 10 {
			h.src.addTo(tp{"one", 0}, "same", fmt.Sprint("one", i))
			h.src.addTo(tp{"two", 0}, "same", fmt.Sprint("two", i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := most.Load(); n != 1 {
			t.Errorf("%d calls for one key at once, want 1", n)
		}
		if n := len(h.sink.values()); n != 20 {
			t.Errorf("%d outputs, want 20", n)
		}
		if n := strings.Count(h.logged(), "one key on two partitions"); n != 1 {
			t.Errorf("warned %d times that a key is on two partitions, want once", n)
		}
	})
}

func TestEventsWithoutAKeyShareAWindowAndWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		h := newHarness(t, true, streammanager.Config{Workers: 8}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 5, Timeout: time.Second})
			b.Process(streammanager.Step{Name: "batch", Batch: event.BatchFuncOf(func(_ context.Context, evs []*event.Event) []event.Result {
				mu.Lock()
				sizes = append(sizes, len(evs))
				mu.Unlock()
				time.Sleep(time.Second)
				out := make([]event.Result, len(evs))
				for i, ev := range evs {
					out[i].Events = []*event.Event{ev}
				}
				return out
			})})
		})
		for i := range 20 {
			h.src.add(0, "-", fmt.Sprint(i))
		}
		from := time.Now()
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(from); took != time.Second {
			t.Errorf("4 batches took %v, want 1s: they do not wait for each other", took)
		}
		if !slices.Equal(sizes, []int{5, 5, 5, 5}) {
			t.Errorf("batches of %v, want 4 of 5", sizes)
		}
		if n := len(h.sink.values()); n != 20 {
			t.Errorf("%d outputs, want 20", n)
		}
	})
}

// A tombstone closes the windows before it, also those that a freed lane fills afterwards.
func TestATombstoneDoesNotWaitForAWindowsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 2, Timeout: time.Hour}).PartitionBy(firstLetter).Process(takes(time.Second))
		})
		for _, v := range []string{"a1", "a2", "a3", "-", "b1", "b2"} {
			h.src.add(0, "k", v)
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		equal(t, "outputs", h.sink.values(), []string{"a1", "a2", "a3", "null", "b1", "b2"})
		h.offsets(t, 6)
		stop()
	})
}

func TestKeySerialCallsInOrderWhereAFunctionFansOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var second notes
		h := newHarness(t, true, streammanager.Config{Order: streammanager.OrderKeySerial}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 2, Timeout: time.Second})
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) != "e1" {
					return []*event.Event{ev}, nil
				}
				x, y := ev.Clone(), ev.Clone()
				x.SetValue([]byte("e1x"))
				y.SetValue([]byte("e1y"))
				return []*event.Event{x, y}, nil
			}), streammanager.Step{Name: "two", Func: event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				second.add(string(ev.Value()))
				return []*event.Event{ev}, nil
			})})
		})
		h.src.add(0, "a", "e1")
		h.src.add(0, "a", "e2")
		h.finish(t)
		equal(t, "outputs", h.sink.values(), []string{"e1x", "e1y", "e2"})
		equal(t, "calls of the second function", second.all(), []string{"e1x", "e1y", "e2"})
	})
}

// Whoever has waited its time does not wait again behind all that came later.
func TestADueRetryGoesBeforeFreshCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls notes
		h := newHarness(t, true, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				calls.add(string(ev.Value()))
				time.Sleep(400 * time.Millisecond)
				if string(ev.Value()) == "a" && event.Attempt(ctx, ev).Number() == 1 {
					return nil, event.Retry(errTest, time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		for _, v := range []string{"a", "b", "c", "d", "e", "f"} {
			h.src.add(0, v, v)
		}
		h.finish(t)
		equal(t, "calls", calls.all(), []string{"a", "b", "c", "d", "a", "e", "f"})
	})
}

func TestAKeyOnTwoPartitionsIsWarnedOfOnce(t *testing.T) {
	tests := []struct {
		name   string
		a, b   tp
		window window.Config
		want   int
	}{
		{name: "without a window", a: tp{"in", 0}, b: tp{"in", 1}, want: 1},
		{name: "in a window", a: tp{"in", 0}, b: tp{"in", 1}, window: window.Config{Count: 3, Timeout: time.Second}, want: 1},
		{name: "in two topics", a: tp{"one", 0}, b: tp{"two", 0}, want: 1},
		{name: "not where the partition is the same", a: tp{"in", 0}, b: tp{"in", 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Window(tt.window).Process(takes(time.Second)) })
				h.src.logs[tt.a], h.src.logs[tt.b] = nil, nil // assigned, and empty
				stop := h.serve(t)
				for i := range 5 { // each is read before the next
					h.src.addTo(tt.a, "key", fmt.Sprint("p", i))
					synctest.Wait()
					h.src.addTo(tt.b, "key", fmt.Sprint("q", i))
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				stop()
				if n := strings.Count(h.logged(), "one key on two partitions"); n != tt.want {
					t.Errorf("warned %d times that a key is on two partitions, want %d:\n%s", n, tt.want, h.logged())
				}
				if n := len(h.sink.values()); n != 10 {
					t.Errorf("%d outputs, want 10", n)
				}
			})
		})
	}
}
