package streammanager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

func TestRevokeWaitsForRunningWorkAndDropsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 2}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(2 * time.Second)
				return []*event.Event{ev}, nil
			}))
		})
		h.src.logs[tp{"in", 1}] = nil // assigned too
		for i := range 6 {
			h.src.add(0, fmt.Sprint("a", i), fmt.Sprint("a", i))
		}
		stop := h.start(t)
		time.Sleep(time.Second)
		for i := range 6 {
			h.src.add(1, fmt.Sprint("b", i), fmt.Sprint("b", i))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		h.src.revoke(ctx, tp{"in", 0})
		cancel()
		committed := h.src.offset(0)
		done := 0
		for _, v := range h.sink.values() {
			if strings.HasPrefix(v, "a") {
				done++
			}
		}
		if int64(done) != committed {
			t.Errorf("%d outputs of the revoked partition and offset %d committed, want as many", done, committed)
		}
		if done != 2 {
			t.Errorf("%d events of the revoked partition were finished, want the 2 that were in a call", done)
		}
		time.Sleep(time.Minute)
		for _, v := range h.sink.values() {
			if strings.HasPrefix(v, "a") {
				done--
			}
		}
		if done != 0 {
			t.Errorf("%d outputs of the revoked partition after the revoke, want none", -done)
		}
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		got := h.sink.values()
		slices.Sort(got)
		equal(t, "outputs", got, []string{"a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1", "b2", "b3", "b4", "b5"})
	})
}

func TestAPartitionThatWasLostIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(3 * time.Second)
				return []*event.Event{ev}, nil
			}))
		})
		h.src.add(0, "a", "0")
		stop := h.start(t)
		time.Sleep(time.Second)
		h.src.a.Lost([]tp{{"in", 0}})
		time.Sleep(time.Minute)
		if got := h.src.offset(0); got != 0 || len(h.sink.values()) != 0 {
			t.Errorf("after the loss: committed %d, outputs %q; want none", got, h.sink.values())
		}
		if st := h.stream.Status(); st.InFlightEvents != 0 {
			t.Errorf("in flight: %d, want 0", st.InFlightEvents)
		}
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Minute)
		equal(t, "outputs", h.sink.values(), []string{"0"})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAPausedPartitionThatWasTakenAwayIsReadWhenItComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Bool
		h := newHarness(t, false, streammanager.Config{Limits: streammanager.Limits{InFlightEvents: 40}}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if held.Load() && string(ev.Key()) == "held" {
					return nil, event.Hold(errTest, time.Now().Add(time.Second))
				}
				return []*event.Event{ev}, nil
			}))
		})
		held.Store(true)
		for i := range 200 {
			h.src.add(0, "held", fmt.Sprint("a", i))
			h.src.add(1, fmt.Sprint(i), fmt.Sprint("b", i))
			h.src.add(2, fmt.Sprint(i), fmt.Sprint("c", i))
		}
		stop := h.start(t)
		time.Sleep(time.Minute)
		if !h.src.isPaused(0) {
			t.Fatal("the partition that fills the limit is not paused: this test needs it so")
		}
		h.src.lose(tp{"in", 0})
		held.Store(false)
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Minute)
		if h.src.isPaused(0) || h.src.offset(0) != 200 {
			t.Errorf("paused: %v, committed %d of 200", h.src.isPaused(0), h.src.offset(0))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A counter that is not lowered for what a rebalance takes away stops the polling in the end.
func TestInFlightReturnsToZeroAfterManyRebalances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 4, Limits: streammanager.Limits{InFlightEvents: 50}}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(700 * time.Millisecond)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 1000 {
			h.src.add(int32(i%4), fmt.Sprint(i%7), fmt.Sprint(i))
		}
		stop := h.start(t)
		for i := range 200 {
			at := tp{"in", int32(i % 4)}
			time.Sleep(300 * time.Millisecond)
			if i%3 == 0 {
				h.src.lose(at)
			} else {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				h.src.revoke(ctx, at)
				cancel()
			}
			h.src.assign(at)
		}
		time.Sleep(10 * time.Minute)
		if st := h.stream.Status(); st.InFlightEvents != 0 || st.InFlightBytes != 0 {
			t.Errorf("in flight when idle: %d events, %d bytes", st.InFlightEvents, st.InFlightBytes)
		}
		for p := range int32(4) {
			if got := h.src.offset(p); got != 250 {
				t.Errorf("partition %d: committed %d, want 250", p, got)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// roomless is a sink whose first Produce waits for room.
type roomless struct {
	*memSink
	room chan struct{}
}

func (s roomless) Produce(ctx context.Context, r *streammanager.Record, done func(error)) {
	<-s.room
	s.memSink.Produce(ctx, r, done)
}

func TestNothingMoreOfAnEventIsSentOnceItsPartitionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := roomless{memSink: &memSink{}, room: make(chan struct{})}
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.To(sink).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				return []*event.Event{ev, ev.Clone()}, nil
			}))
		})
		h.src.add(0, "a", "twice")
		stop := h.start(t)
		time.Sleep(time.Second)
		h.src.lose(tp{"in", 0})
		close(sink.room)
		time.Sleep(time.Minute)
		equal(t, "outputs", sink.values(), []string{"twice"})
		if err := h.stream.Status().Ready; err != nil {
			t.Errorf("status: %v, want ready: the sink has not failed", err)
		}
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Minute)
		equal(t, "outputs after it was given back", sink.values(), []string{"twice", "twice", "twice"})
		if got := h.src.offset(0); got != 1 {
			t.Errorf("committed %d, want 1", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestNothingOfAnEventIsSentWhosePartitionWasLostWhileTheSinkWasAskedWhatItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &memSink{check: func(*streammanager.Record) error { // as one whose brokers do not answer
			time.Sleep(5 * time.Second)
			return nil
		}}
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.To(sink).Process(try(pass)) })
		h.src.add(0, "a", "late")
		stop := h.start(t)
		time.Sleep(time.Second)
		h.src.lose(tp{"in", 0})
		time.Sleep(time.Minute)
		equal(t, "outputs", sink.values(), []string(nil))
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Minute)
		equal(t, "outputs after it was given back", sink.values(), []string{"late"})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestARevokeDoesNotWaitForWhatOnlyWaitsForItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 2, Timeout: time.Second}).WindowBy(together)
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "slow" {
					time.Sleep(30 * time.Second)
				}
				return []*event.Event{ev}, nil
			}), bulk(&notes{}, pass))
		})
		h.src.add(0, "a", "quick")
		h.src.add(1, "b", "slow")
		stop := h.serve(t)
		time.Sleep(time.Second)
		within(t, "the revoke of a partition of which no call runs", 0, func() { h.src.revoke(t.Context(), tp{"in", 0}) })
		time.Sleep(time.Minute)
		equal(t, "outputs", h.sink.values(), []string{"slow"})
		h.offsets(t, 0, 1)
		stop()
	})
}

func TestARevokeWaitsForACallAndNotForItsRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(2 * time.Second)
				if event.Attempt(ctx, ev).Number() == 1 {
					return nil, event.Retry(errTest, 3*time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		h.src.add(0, "a", "0")
		stop := h.serve(t)
		time.Sleep(time.Second)
		within(t, "the revoke, one second before the call returns,", time.Second, func() { h.src.revoke(t.Context(), tp{"in", 0}) })
		time.Sleep(time.Minute)
		equal(t, "outputs", h.sink.values(), nil)
		h.offsets(t, 0)
		stop()
	})
}

func TestARevokeGivesUpWhatWaitsForACallOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 1, Order: streammanager.OrderKeySerial}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 3, Timeout: time.Second})
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "slow" {
					time.Sleep(30 * time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		h.src.logs[tp{"in", 0}] = nil
		h.src.add(1, "b", "slow")
		stop := h.serve(t)
		time.Sleep(2 * time.Second)
		h.src.add(0, "a", "1")
		h.src.add(0, "a", "2")
		h.src.add(0, "a", "3")
		time.Sleep(2 * time.Second)
		within(t, "the revoke of a partition of which no call runs", 0, func() { h.src.revoke(t.Context(), tp{"in", 0}) })
		stop()
	})
}

func TestARevokeGivesUpWhatWaitsForAQueuedPartOfItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 2, Timeout: 10 * time.Millisecond}).WindowBy(func(_ context.Context, ev *event.Event) (string, error) {
				if string(ev.Value()) == "retry" {
					return "other", nil
				}
				return "all", nil
			})
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				switch string(ev.Value()) {
				case "retry":
					if event.Attempt(ctx, ev).Number() == 1 {
						return nil, event.Retry(errTest, time.Second)
					}
					time.Sleep(30 * time.Second)
				case "quick":
					time.Sleep(2 * time.Second)
				}
				return []*event.Event{ev}, nil
			}), bulk(&notes{}, pass))
		})
		h.src.logs[tp{"in", 0}] = nil
		h.src.add(1, "r", "retry")
		stop := h.serve(t)
		time.Sleep(100 * time.Millisecond)
		h.src.add(0, "a", "quick")
		time.Sleep(time.Millisecond)
		h.src.add(1, "b", "slow")
		time.Sleep(3 * time.Second)
		within(t, "the revoke of a partition of which no call runs", 0, func() { h.src.revoke(t.Context(), tp{"in", 0}) })
		time.Sleep(time.Minute)
		stop()
	})
}

// The sink has what it acknowledges after the partition was lost. It will be there twice, and is counted twice.
func TestWhatIsAcknowledgedAfterThePartitionWasLostIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				return []*event.Event{ev, ev.Clone()}, nil
			}))
		})
		h.sink.hold = true
		h.src.add(0, "a", "0")
		stop := h.serve(t)
		time.Sleep(time.Second)
		h.src.lose(tp{"in", 0})
		synctest.Wait()
		h.sink.let()
		time.Sleep(time.Second)
		if status := h.stream.Status(); status.Outputs != 2 || status.Emitted != 0 {
			t.Errorf("%d outputs and %d emitted events are counted after a late answer, want 2 and none", status.Outputs, status.Emitted)
		}
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Second)
		if status, n := h.stream.Status(), h.sink.len(); int(status.Outputs) != n || n != 4 || status.Emitted != 1 {
			t.Errorf("%d outputs and %d emitted events are counted, want the %d that the sink has, and 1", status.Outputs, status.Emitted, n)
		}
		stop()
	})
}
