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

// gathered returns the values of counters and gauges, and the sums of histograms, by name.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return got
}

func TestGaugesAndDurationsTellWhatIsGoingOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h := newHarness(t, false, streammanager.Config{Workers: 2, Metrics: reg}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 2, Timeout: time.Hour}).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(10 * time.Second)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 6 {
			h.src.add(0, fmt.Sprint(i/2), "v") // three batches of two, for two workers
		}
		h.src.add(0, "alone", "v") // its window stays open
		stop := h.start(t)
		check := func(when string, want map[string]float64) {
			t.Helper()
			synctest.Wait() // the loop may look at the same moment
			got := gathered(t, reg)
			for name, v := range want {
				if got[name] != v {
					t.Errorf("%s: %s is %v, want %v", when, name, got[name], v)
				}
			}
		}
		time.Sleep(5 * time.Second)
		check("with two calls at work", map[string]float64{
			"enricher_lanes": 4, "enricher_windows_open": 1, "enricher_workers": 2, "enricher_workers_busy": 2, "enricher_in_flight_events": 7,
			"enricher_in_flight_bytes": 6*2 + 6, "enricher_source_lag": 7, "enricher_source_lag_seconds": 5, "enricher_event_latency_seconds": 0,
		})
		time.Sleep(time.Minute)
		check("with one window open", map[string]float64{
			"enricher_lanes": 1, "enricher_windows_open": 1, "enricher_workers_busy": 0, "enricher_in_flight_events": 1, "enricher_source_lag": 1,
			// Six calls of ten seconds on two workers: each batch takes from its dispatch to its second call's end.
			"enricher_batch_duration_seconds": 10 + 20 + 30, "enricher_event_latency_seconds": 2*10 + 2*20 + 2*30,
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheSeriesOfAnIdlePartitionBeginAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.src.logs[tp{"in", 0}] = nil
		stop := h.start(t)
		time.Sleep(time.Second)
		got := gathered(t, reg)
		if v, ok := got["enricher_events_read_total"]; !ok || v != 0 {
			t.Errorf("enricher_events_read_total is %v, %v; want 0", v, ok)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
