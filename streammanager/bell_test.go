package streammanager_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// holdsFor has each event wait for a bell, for an hour at most, until it has waited once.
func holdsFor(bell *event.Bell) event.FuncOf {
	return func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		tries := event.Attempt(ctx, ev)
		if tries.Slot() == nil {
			tries.SetSlot(true)
			return nil, event.HoldFor(errTest, time.Now().Add(time.Hour), bell)
		}
		return []*event.Event{ev}, nil
	}
}

func TestAnEventThatIsHeldForABellIsCalledAgainWhenItRings(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rings time.Duration // 0: before it is held; negative: never
		want  time.Duration
	}{{"while it waits", time.Minute, time.Minute}, {"before", 0, 0}, {"never", -1, time.Hour}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bell := new(event.Bell)
				h := newHarness(t, false, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) { b.Process(try(holdsFor(bell))) })
				for _, key := range []string{"a", "b", "a"} {
					h.src.add(0, key, key)
				}
				if tc.rings == 0 {
					bell.Ring()
				}
				stop := h.start(t)
				if tc.rings > 0 {
					time.AfterFunc(tc.rings, bell.Ring)
				}
				time.Sleep(tc.want - time.Millisecond)
				if n := h.sink.len(); tc.want > 0 && n > 0 {
					t.Errorf("%d events ended before", n)
				}
				time.Sleep(2 * time.Millisecond)
				if n := h.sink.len(); n != 3 && tc.want < time.Hour {
					t.Errorf("%d events ended, want all three", n)
				}
				bell.Ring()
				if err := stop(); err != nil {
					t.Error(err)
				}
				bell.Ring() // the stream is gone
			})
		})
	}
}

// A bell that rings for events of a batch wakes none of them: they are called again together.
func TestEventsOfABatchThatAreHeldForABellWaitTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bell := new(event.Bell)
		h := newHarness(t, false, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) {
			b.Process(streammanager.Step{Name: "two", Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
				out := make([]event.Result, len(evs))
				for i, ev := range evs {
					out[i].Events, out[i].Err = holdsFor(bell)(ctx, ev)
				}
				return out
			})}).Window(window.Config{Count: 2, Timeout: time.Second})
		})
		h.src.add(0, "a", "1")
		h.src.add(0, "a", "2")
		stop := h.start(t)
		time.Sleep(time.Minute)
		bell.Ring()
		time.Sleep(time.Minute)
		if n := h.sink.len(); n > 0 {
			t.Errorf("%d events ended before their time", n)
		}
		time.Sleep(time.Hour)
		if n := h.sink.len(); n != 2 {
			t.Errorf("%d events ended, want both", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
