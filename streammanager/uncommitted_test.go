package streammanager_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// plain is a source without the abilities to rewind and to pause.
type plain struct{ m *memSource }

func (p plain) Open(ctx context.Context, a streammanager.Assignments) error { return p.m.Open(ctx, a) }

func (p plain) Poll(ctx context.Context, n int) (streammanager.Polled, error) {
	return p.m.Poll(ctx, n)
}

func (p plain) Commit(ctx context.Context, o map[tp]streammanager.Position) error {
	return p.m.Commit(ctx, o)
}

func (p plain) Close(context.Context) {}

// pauseOnly can pause, and not rewind.
type pauseOnly struct{ plain }

func (p pauseOnly) Pause(tps ...tp) { p.m.Pause(tps...) }

func (p pauseOnly) Resume(tps ...tp) { p.m.Resume(tps...) }

// gate is a function that holds events of key "stuck" until it is opened.
type gate struct{ open atomic.Bool }

func (g *gate) step() streammanager.Step {
	return try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		if string(ev.Key()) == "stuck" && !g.open.Load() {
			return nil, event.Hold(errTest, time.Now().Add(time.Second))
		}
		return []*event.Event{ev}, nil
	})
}

func TestASourceThatCannotPauseStopsAtTheUncommittedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		const atOnce, uncommitted = 5, 20
		src := newMemSource(false)
		h := newHarnessOver(t, src, plain{src}, streammanager.Config{
			Limits: streammanager.Limits{InFlightEvents: atOnce, UncommittedEvents: uncommitted},
		}, func(b *streammanager.Builder) { b.Process(g.step()) })
		h.src.add(0, "stuck", "stuck")
		for i := range 99 {
			h.src.add(0, fmt.Sprint(i), "v")
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		if n := h.stream.Status().Read; n < uncommitted || n >= uncommitted+atOnce {
			t.Errorf("read %d events behind one that is stuck, want %d, and less than one poll more", n, uncommitted)
		}
		g.open.Store(true)
		time.Sleep(time.Minute)
		h.offsets(t, 100)
		stop()
	})
}

func TestAPartitionAtTheUncommittedEventsIsPausedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		const atOnce, uncommitted = 8, 20
		h := newHarness(t, false, streammanager.Config{
			Limits: streammanager.Limits{InFlightEvents: atOnce, UncommittedEvents: uncommitted},
		}, func(b *streammanager.Builder) { b.Process(g.step()) })
		h.src.add(0, "stuck", "stuck")
		for i := range 99 {
			h.src.add(0, fmt.Sprint("a", i), "a")
			h.src.add(1, fmt.Sprint("b", i), "b")
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		if a, b := h.src.isPaused(0), h.src.isPaused(1); !a || b {
			t.Errorf("paused: partition 0 %v, partition 1 %v; want only partition 0", a, b)
		}
		outputs := strings.Join(h.sink.values(), "")
		if n := strings.Count(outputs, "a"); n < uncommitted-1 || n >= uncommitted-1+atOnce {
			t.Errorf("%d outputs of the partition of which one event is stuck, want %d, and less than one poll more", n, uncommitted-1)
		}
		h.offsets(t, 0, 99)
		g.open.Store(true)
		time.Sleep(time.Minute)
		if h.src.isPaused(0) {
			t.Error("partition 0 is paused though nothing is uncommitted")
		}
		h.offsets(t, 100, 99)
		stop()
	})
}

// What one poll brought of a partition could fill the last quarter of a limit after its pause.
func TestRecordsOfAPausedPartitionThatWereFetchedAreNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		h := newHarness(t, false, streammanager.Config{Limits: streammanager.Limits{InFlightBytes: 1000}}, func(b *streammanager.Builder) {
			b.Process(g.step(), streammanager.Step{Name: "shorten", Func: event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				ev.SetValue([]byte("8 bytes."))
				return []*event.Event{ev}, nil
			})})
		})
		h.src.logs[tp{"in", 0}] = nil // assigned too
		for i := range 100 {
			h.src.add(1, fmt.Sprint(i), "v")
		}
		stop := h.serve(t)
		time.Sleep(10 * time.Second) // now it is known how large outputs are
		for range 20 {
			h.src.add(0, "stuck", strings.Repeat("a", 93))
		}
		time.Sleep(10 * time.Second)
		if !h.src.isPaused(0) {
			t.Fatal("the partition that fills the limit is not paused: this test needs it so")
		}
		for i := range 20 {
			h.src.add(1, fmt.Sprint(i), "b")
		}
		time.Sleep(time.Minute)
		h.offsets(t, 0, 120)
		if st := h.stream.Status(); st.InFlightBytes > 750 {
			t.Errorf("%d bytes in flight of a paused partition, want no more than three quarters of the limit of 1,000", st.InFlightBytes)
		}
		g.open.Store(true)
		time.Sleep(time.Minute)
		h.offsets(t, 20, 120)
		stop()
	})
}

func TestASourceThatPausesButCannotRewindLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource(false)
		h := newHarnessOver(t, src, pauseOnly{plain{src}}, streammanager.Config{
			Limits: streammanager.Limits{InFlightEvents: 100, InFlightBytes: 400},
		}, func(b *streammanager.Builder) { b.Process(takes(time.Second)) })
		for i := range 60 {
			h.src.add(0, "a", fmt.Sprintf("a%02d-xxxxxxxxxxxxxxxx", i))
		}
		h.src.add(1, "b", "b1")
		stop := h.serve(t)
		time.Sleep(time.Hour)
		h.src.add(0, "a", "last")
		time.Sleep(time.Hour)
		if n := len(h.sink.values()); n != 62 {
			t.Errorf("%d outputs of 62", n)
		}
		h.offsets(t, 61, 1)
		stop()
	})
}

func TestOffsetsThatAreDeliveredTwiceAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		for i := range 3 {
			h.src.add(0, "a", fmt.Sprint(i))
		}
		log := h.src.logs[tp{"in", 0}]
		h.src.logs[tp{"in", 0}] = append(log, log[1], log[2])
		h.finish(t)
		equal(t, "outputs", h.sink.values(), []string{"0", "1", "2"})
		h.offsets(t, 3)
	})
}
