package streammanager_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// part is the share of its time that a stage was idle, busy and backpressured.
type part struct{ idle, busy, back float64 }

func share(f streammanager.Flow) part {
	d := float64(f.Time())
	return part{float64(f.Idle) / d, float64(f.Busy) / d, float64(f.Backpressured) / d}
}

// like compares shares to a twelfth.
func like(t *testing.T, what string, f streammanager.Flow, want part) {
	t.Helper()
	got := share(f)
	near := func(a, b float64) bool { return a-b < 0.08 && b-a < 0.08 }
	if !near(got.idle, want.idle) || !near(got.busy, want.busy) || !near(got.back, want.back) {
		t.Errorf("%s: got %.2f, want %.2f", what, got, want)
	}
}

func TestAStreamTellsHowItsStagesSpendTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 2, Limits: streammanager.Limits{InFlightEvents: 4}},
			func(b *streammanager.Builder) { b.Process(takes(time.Second)) })
		h.src.logs[tp{"in", 0}] = nil
		defer h.serve(t)()
		stages := func() streammanager.Stages { synctest.Wait(); return h.stream.Status().Stages }

		time.Sleep(100 * time.Millisecond)
		if s := stages(); s.Source.Last.Time() > 0 {
			t.Errorf("after a moment: %+v, want nothing yet", s.Source.Last)
		}
		time.Sleep(20 * time.Second)
		s := stages()
		like(t, "source without records", s.Source.Last, part{idle: 1})
		like(t, "process without records", s.Process.Last, part{idle: 1})
		like(t, "sink without records", s.Sink.Last, part{idle: 1})
		if d := s.Source.Last.Time(); d < 5*time.Second || d > 10*time.Second {
			t.Errorf("the last is of %v, want 5s or a little more", d)
		}

		for range 12 { // every two seconds a call of one, on one of two workers
			h.src.add(0, "k", "value")
			time.Sleep(2 * time.Second)
		}
		like(t, "process with a quarter of its workers at work", stages().Process.Last, part{idle: 0.75, busy: 0.25})

		for range 100 {
			h.src.add(0, "k", "value")
		}
		time.Sleep(20 * time.Second)
		s = stages()
		like(t, "source behind a limit", s.Source.Last, part{back: 1})
		like(t, "process of one key", s.Process.Last, part{idle: 0.5, busy: 0.5})
		if got := s.Process.Last.RecordsOut; got < 5 || got > 10 {
			t.Errorf("%d outputs in the last seconds, want one a second", got)
		}
		time.Sleep(2 * time.Minute)

		h.sink.mu.Lock()
		h.sink.hold = true
		h.sink.mu.Unlock()
		h.src.add(0, "k", "value")
		time.Sleep(20 * time.Second)
		s = stages()
		like(t, "sink with a write that is not answered", s.Sink.Last, part{busy: 1})
		h.sink.let()
		s = stages()
		want := streammanager.Flow{RecordsIn: 113, RecordsOut: 113, BytesIn: 113 * 6, BytesOut: 113 * 6}
		for name, f := range map[string]streammanager.Flow{"source": s.Source.Total, "process": s.Process.Total, "sink": s.Sink.Total} {
			if f.Busy, f.Idle, f.Backpressured = 0, 0, 0; f != want {
				t.Errorf("%s in all: %+v, want %+v", name, f, want)
			}
		}
	})
}

func TestAProcessWithoutRoomForOutputsIsBackpressured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 1, Limits: streammanager.Limits{InFlightBytes: 4000}}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(time.Millisecond)
				ev.SetValue(bytes.Repeat([]byte("x"), 1000))
				return []*event.Event{ev}, nil
			}))
		})
		h.src.logs[tp{"in", 0}] = nil
		for range 20 { // small ones, so that they are read before it is known what becomes of them
			h.src.add(0, "-", "1")
		}
		h.sink.hold = true
		defer h.serve(t)()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		s := h.stream.Status().Stages
		like(t, "process", s.Process.Last, part{back: 1})
		like(t, "sink", s.Sink.Last, part{busy: 1})
		h.sink.let()
	})
}
