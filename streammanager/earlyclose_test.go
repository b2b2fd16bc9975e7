package streammanager_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// closed returns how many windows closed by reason, those alone that did.
func closed(t *testing.T, reg *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if n := int(m.GetCounter().GetValue()); f.GetName() == "enricher_windows_closed_total" && l.GetName() == "reason" && n > 0 {
					got[l.GetValue()] = n
				}
			}
		}
	}
	return got
}

// Windows that cannot fill, since the limits let no more in, would stand until their timeout.
func TestWindowsCloseEarlyAtALimit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits streammanager.Limits
	}{
		{name: "of events", limits: streammanager.Limits{InFlightEvents: 10}},
		{name: "of bytes", limits: streammanager.Limits{InFlightBytes: 100}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				h := newHarness(t, false, streammanager.Config{Limits: tt.limits, Metrics: reg}, func(b *streammanager.Builder) {
					b.Window(window.Config{Count: 10, Timeout: time.Hour}).Process(try(pass))
				})
				for i := range 100 {
					h.src.add(0, fmt.Sprintf("k%02d", i), "0123456789")
				}
				stop := h.serve(t)
				time.Sleep(time.Minute)
				if n := len(h.sink.values()); n < 90 {
					t.Errorf("%d outputs after a minute, want all but what fits the limit", n)
				}
				if by := closed(t, reg); by["limits"] < 90 || len(by) != 1 {
					t.Errorf("windows closed by %v, want all by limits", by)
				}
				stop()
				h.offsets(t, 100)
			})
		})
	}
}

func TestAnEagerWindowClosesWhenAWorkerIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		var calls notes
		h := newHarness(t, false, streammanager.Config{Workers: 1, Metrics: reg}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 10, Timeout: time.Hour, Eager: true}).WindowBy(together)
			b.Process(streammanager.Step{Name: "slow", Batch: event.BatchFuncOf(func(_ context.Context, evs []*event.Event) []event.Result {
				time.Sleep(time.Second)
				out := make([]event.Result, len(evs))
				for i, ev := range evs {
					out[i].Events = []*event.Event{ev}
				}
				calls.add(fmt.Sprint(len(evs)))
				return out
			})})
		})
		h.src.add(0, "k0", "0")
		stop := h.serve(t)
		for i := range 4 {
			h.src.add(0, fmt.Sprint("k", i+1), fmt.Sprint(i+1)) // gather while the worker is busy
		}
		time.Sleep(time.Minute)
		equal(t, "sizes of the batches", calls.all(), []string{"1", "4"})
		equal(t, "outputs", h.sink.values(), []string{"0", "1", "2", "3", "4"})
		if by := closed(t, reg); by["eager"] != 2 || len(by) != 1 {
			t.Errorf("windows closed by %v, want 2 by eager", by)
		}
		stop()
	})
}

func TestAWindowThatIsNotEagerWaitsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 10, Timeout: time.Minute}).Process(try(pass))
		})
		h.src.add(0, "k", "0")
		stop := h.serve(t)
		time.Sleep(59 * time.Second)
		equal(t, "outputs before the timeout", h.sink.values(), nil)
		time.Sleep(2 * time.Second)
		equal(t, "outputs after it", h.sink.values(), []string{"0"})
		if by := closed(t, reg); by["timeout"] != 1 || len(by) != 1 {
			t.Errorf("windows closed by %v, want 1 by timeout", by)
		}
		stop()
	})
}
