package streammanager_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// calling is a stream whose first event is in a call of a minute, while the second waits in an open window.
func calling(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 5 * time.Minute}, func(b *streammanager.Builder) {
		b.Window(window.Config{Count: 2, Timeout: time.Hour})
		b.Process(oneByOne())
	})
	h.src.add(0, "a", "1")
	h.src.add(0, "a", "2")
	h.src.add(0, "b", "3")
	return h
}

func TestAStreamEndsAsItIsAsked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ends   []streammanager.Ending
		want   []string
		offset int64
		left   int64
		within time.Duration
	}{
		{"drained: all that was read is finished, open windows too", []streammanager.Ending{streammanager.Drained}, []string{"1", "2", "3"}, 3, 0, 25 * time.Second},
		{"suspended: what is in calls is finished, open windows are dropped", []streammanager.Ending{streammanager.Suspended}, []string{"1", "2"}, 2, 1, 25 * time.Second},
		{"cancelled: at once", []streammanager.Ending{streammanager.Cancelled}, nil, 0, 3, 0},
		{"cancelled while it drains", []streammanager.Ending{streammanager.Drained, streammanager.Cancelled}, nil, 0, 3, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := calling(t)
				done := make(chan error, 1)
				go func() { done <- h.stream.Run(context.Background()) }()
				synctest.Wait()
				for _, how := range tc.ends {
					h.stream.End(how)
					synctest.Wait()
				}
				within(t, "the end", tc.within, func() {
					if err := <-done; err != nil {
						t.Errorf("Run: %v", err)
					}
				})
				equal(t, "outputs", slices.Sorted(slices.Values(h.sink.values())), tc.want)
				h.offsets(t, tc.offset)
				if got := h.stream.Status().Unfinished; got != tc.left {
					t.Errorf("unfinished %d, want %d", got, tc.left)
				}
			})
		})
	}
}

func TestASupervisorThatIsAskedToEndStartsNoStreamAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := supervise(t, streammanager.Restart{Initial: time.Hour, Max: time.Hour}, try(pass), once(0, errTest), well)
		var told []string
		h.s.Watch(func() { told = append(told, "started") }, func(err error) { told = append(told, fmt.Sprintf("failed: %v", err != nil)) })
		stop := h.start()
		h.s.End(streammanager.Cancelled)
		within(t, "the end", 0, func() {
			if err := stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		equal(t, "told", told, []string{"started", "failed: true"})
		if len(h.starts) != 1 || h.closed != 2 {
			t.Errorf("%d streams were made and %d things closed, want 1 and 2", len(h.starts), h.closed)
		}
	})
}

func TestASupervisorThatWasAskedToEndBeforeItRanEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := supervise(t, streammanager.Restart{}, try(pass), well)
		h.s.End(streammanager.Drained)
		if err := h.s.Run(t.Context()); err != nil || h.closed != 2 {
			t.Errorf("Run: %v, closed %d; want no error and 2", err, h.closed)
		}
	})
}

func TestWorkersChangeWhileCallsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, most := make(chan int, 100_000), 0
		var running int
		lock := make(chan struct{}, 1)
		step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
			lock <- struct{}{}
			running++
			busy <- running
			<-lock
			time.Sleep(time.Second)
			lock <- struct{}{}
			running--
			<-lock
			return []*event.Event{ev}, nil
		})
		h := newHarness(t, false, streammanager.Config{Workers: 2}, func(b *streammanager.Builder) { b.Process(step) })
		h.src.logs[tp{"in", 0}] = nil
		defer h.serve(t)()
		seen := func() int {
			synctest.Wait()
			most = 0
			for len(busy) > 0 {
				most = max(most, <-busy)
			}
			return most
		}
		add := func(n int) {
			for i := range n {
				h.src.add(0, fmt.Sprintf("%d-%d", h.sink.len(), i), "v")
			}
		}
		for _, want := range []int{2, 1000, 3} {
			h.stream.Resize(want)
			synctest.Wait()
			add(4 * want)
			synctest.Wait()
			if got := seen(); got != want {
				t.Errorf("with %d workers %d calls ran at once", want, got)
			}
			if s := h.stream.Status(); s.Workers != want || s.Busy != want {
				t.Errorf("status has %d workers, %d busy; want %d", s.Workers, s.Busy, want)
			}
			time.Sleep(10 * time.Second)
			seen()
		}
		h.stream.Resize(0)
		synctest.Wait()
		if got := h.stream.Status().Workers; got != 1 {
			t.Errorf("0 workers became %d, want 1", got)
		}
	})
}

// With transactions what was written in the open one is not seen: its positions say nothing of what was dropped.
func TestATransactionIsAbortedWhereTheStreamDropsWhatItHasRead(t *testing.T) {
	for _, how := range []streammanager.Ending{streammanager.Suspended, streammanager.Cancelled} {
		slow := func(b *streammanager.Builder) { b.Process(oneByOne()) }
		tx(t, time.Minute, streammanager.Config{Workers: 3}, slow, func(t *testing.T, h *harness, m *memTx) {
			h.src.add(0, "a", "0")
			done := make(chan error, 1)
			go func() { done <- h.stream.Run(context.Background()) }()
			time.Sleep(20 * time.Second) // the first is committed
			for range 3 {                // the second waits for the first, of its key
				h.src.add(0, "a", "v")
			}
			time.Sleep(time.Second)
			h.stream.End(how)
			within(t, "the end", 30*time.Second, func() {
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			equal(t, "seen", h.sink.values(), []string{"0"})
			h.offsets(t, 1)
			if got := h.stream.Status(); got.Emitted != 1 || got.Read != got.Emitted+got.Unfinished+got.Returned {
				t.Errorf("ending %d: status %+v", how, got)
			}
		})
	}
}

// oneByOne takes ten seconds for each event.
func oneByOne() streammanager.Step {
	return try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return []*event.Event{ev}, nil
	})
}
