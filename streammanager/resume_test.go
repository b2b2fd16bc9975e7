package streammanager_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// callNotes passes events on and notes them, save for the value "stuck", which waits for its context.
func callNotes(called *notes) streammanager.Step {
	return try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		called.add(string(ev.Value()))
		if string(ev.Value()) == "stuck" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []*event.Event{ev}, nil
	})
}

// crash ends a stream as a kill does: it may commit no more.
func crash(h *harness, stop func() error) {
	h.src.refuse(errTest)
	_ = stop() // what it says is heard by nobody
	h.src.refuse(nil)
}

func TestWhatIsFinishedBehindAStuckEventIsNotCalledAgainAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := &notes{}
		shape := func(b *streammanager.Builder) { b.Process(callNotes(called)) }
		cfg := streammanager.Config{Workers: 8}
		h := newHarness(t, false, cfg, shape)
		h.src.add(0, "a", "stuck")
		for _, v := range []string{"1", "2", "3", "4"} {
			h.src.add(0, "k"+v, v)
		}
		h.src.add(0, "a", "behind")
		h.src.add(0, "k1", "5")
		stop := h.start(t)
		time.Sleep(3 * time.Second)
		h.offsets(t, 0)
		want := []streammanager.Range{{From: 1, To: 5}, {From: 6, To: 7}}
		if got := h.src.beyond(0); !slices.Equal(got, want) {
			t.Fatalf("finished beyond 0: %v, want %v", got, want)
		}
		crash(h, stop)

		called.got = nil
		again := newHarnessOver(t, h.src, h.src, cfg, shape)
		stop = again.start(t)
		h.src.add(0, "k2", "6")
		time.Sleep(3 * time.Second)
		equal(t, "called again", called.all(), []string{"stuck", "6"})
		equal(t, "written again", again.sink.values(), []string{"6"})
		if st := again.stream.Status(); st.PassedOver != 5 || st.Read != 3 {
			t.Errorf("%d passed over and %d read, want 5 and 3", st.PassedOver, st.Read)
		}
		want = []streammanager.Range{{From: 1, To: 5}, {From: 6, To: 8}}
		if got := h.src.beyond(0); !slices.Equal(got, want) {
			t.Errorf("finished beyond 0 after the second run: %v, want %v", got, want)
		}
		crash(again, stop)
	})
}

// What is read again stands behind what was written before. Of one key that must never be for good.
func TestOfOneKeyNothingIsPassedOverBehindWhatWillBeSentAgain(t *testing.T) {
	for _, order := range []streammanager.Order{streammanager.OrderKey, streammanager.OrderNone} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := &notes{}
				shape := func(b *streammanager.Builder) {
					b.Window(window.Config{Count: 3, Timeout: time.Second}).Process(callNotes(called))
				}
				h := newHarness(t, false, streammanager.Config{Order: order, Workers: 4}, shape)
				h.sink.hold = true
				for _, v := range []string{"1", "2", "3"} {
					h.src.add(0, "k", v)
				}
				stop := h.start(t)
				time.Sleep(3 * time.Second)
				h.sink.mu.Lock()
				second := slices.Index(values(h.sink.got), "2")
				done := h.sink.held[second]
				h.sink.held = slices.Delete(h.sink.held, second, second+1)
				h.sink.mu.Unlock()
				done() // the second is written before the first is
				time.Sleep(3 * time.Second)
				got := h.src.beyond(0)
				if order == streammanager.OrderNone && !slices.Equal(got, []streammanager.Range{{From: 1, To: 2}}) || order != streammanager.OrderNone && len(got) > 0 {
					t.Errorf("finished beyond 0: %v", got)
				}
				h.sink.let()
				time.Sleep(3 * time.Second)
				h.offsets(t, 3)
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func values(rs []streammanager.Record) (out []string) {
	for _, r := range rs {
		out = append(out, string(r.Value))
	}
	return out
}

func TestGoingBackAfterASinkFailureDoesNotRepeatWhatIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := &notes{}
		h := newHarness(t, false, streammanager.Config{Workers: 4}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				called.add(string(ev.Value()))
				if string(ev.Value()) == "late" {
					time.Sleep(2 * time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		down := true
		h.sink.refuse = func(r *streammanager.Record) error {
			if string(r.Value) == "late" && down {
				down = false
				return errors.New("the sink is away")
			}
			return nil
		}
		h.src.add(0, "a", "late")
		h.src.add(0, "b", "b")
		h.src.add(0, "c", "c")
		stop := h.serve(t)
		time.Sleep(time.Minute)
		stop()
		equal(t, "called", slices.Sorted(slices.Values(called.all())), []string{"b", "c", "late", "late"})
		equal(t, "written", slices.Sorted(slices.Values(h.sink.values())), []string{"b", "c", "late"})
		h.offsets(t, 3)
	})
}

func TestRangesBeyondTheNewPartitionAreKeptUntilTheyAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := &notes{}
		h := newHarness(t, false, streammanager.Config{Workers: 4, Limits: streammanager.Limits{InFlightEvents: 2}}, func(b *streammanager.Builder) {
			b.Process(callNotes(called))
		})
		for _, v := range []string{"stuck", "done", "stuck", "x", "done", "done", "new"} {
			h.src.add(0, "-", v)
		}
		h.src.finished[tp{"in", 0}] = []streammanager.Range{{From: 1, To: 2}, {From: 4, To: 6}}
		stop := h.start(t)
		time.Sleep(3 * time.Second)
		want := []streammanager.Range{{From: 1, To: 2}, {From: 4, To: 6}}
		if got := h.src.beyond(0); !slices.Equal(got, want) {
			t.Errorf("finished beyond 0: %v, want %v", got, want)
		}
		if got := strings.Join(called.all(), " "); got != "stuck stuck" {
			t.Errorf("called %q", got)
		}
		_ = stop()
	})
}
