package streammanager_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/streammanager"
)

// lossy is a source that has passed over records.
type lossy struct {
	*memSource
	skipped *atomic.Int64
}

func (s lossy) Skipped() int64 { return s.skipped.Load() }

func TestWhatTheSourcePassedOverIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, skipped := prometheus.NewRegistry(), &atomic.Int64{}
		h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) {
			b.From(lossy{newMemSource(false), skipped}).Process(try(pass))
		})
		stop := h.start(t)
		var seen []string
		for _, n := range []int64{0, 3, 4} {
			skipped.Add(n)
			time.Sleep(2 * time.Second)
			seen = append(seen, fmt.Sprint(metric(t, reg, "enricher_source_skipped_total")))
		}
		skipped.Add(5) // and it ends before anybody looks
		if err := stop(); err != nil {
			t.Error(err)
		}
		seen = append(seen, fmt.Sprint(metric(t, reg, "enricher_source_skipped_total")))
		equal(t, "enricher_source_skipped_total", seen, []string{"0", "3", "7", "12"})
	})
}

// ending is a source that knows where its logs end.
type ending struct {
	*memSource
	ends func() map[tp]int64
}

func (s ending) Ends() map[tp]int64 { return s.ends() }

// lags returns enricher_source_lag by partition.
func lags(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	synctest.Wait() // the loop may look at the same moment
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "enricher_source_lag" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "partition" {
					got[label.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return got
}

func TestTheLagOfAPartitionIsToldOnceItsEndIsKnownAlsoWhereNothingIsReadOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		var known atomic.Bool
		h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) {
			src := newMemSource(false)
			src.logs[tp{"in", 0}] = nil
			b.From(ending{src, func() map[tp]int64 {
				if known.Load() {
					return map[tp]int64{{Topic: "in", Partition: 0}: 60}
				}
				return nil
			}}).Process(try(pass))
		})
		stop := h.serve(t)
		time.Sleep(2 * time.Second)
		if got := lags(t, reg); len(got) > 0 {
			t.Errorf("while no end is known: %v, want none", got)
		}
		known.Store(true)
		time.Sleep(2 * time.Second)
		if got := lags(t, reg); got["0"] != 60 {
			t.Errorf("once the end is known: %v, want 60", got)
		}
		stop()
	})
}

func TestTheLagCountsFromWhatIsCommitted(t *testing.T) {
	reg := prometheus.NewRegistry()
	t.Run("in transactions", func(t *testing.T) {
		tx(t, time.Minute, streammanager.Config{Metrics: reg}, passes, func(t *testing.T, h *harness, m *memTx) {
			m.delay = 10 * time.Second
			for range 5 {
				h.src.add(0, "a", "1")
			}
			stop := h.serve(t)
			time.Sleep(5 * time.Second)
			if got := lags(t, reg); got["0"] != 5 {
				t.Errorf("while a transaction of which all is finished is committed: %v, want 5", got)
			}
			time.Sleep(10 * time.Second)
			h.offsets(t, 5)
			if got := lags(t, reg); got["0"] != 0 {
				t.Errorf("once it is committed: %v, want 0", got)
			}
			stop()
		})
	})
	t.Run("though commits fail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			h := newHarness(t, false, streammanager.Config{Metrics: reg}, passes)
			h.src.refuse(errTest)
			h.src.add(0, "a", "1")
			stop := h.serve(t)
			time.Sleep(5 * time.Second)
			if got := lags(t, reg); got["0"] != 1 {
				t.Errorf("while commits fail: %v, want 1", got)
			}
			h.src.refuse(nil)
			time.Sleep(5 * time.Second)
			if got := lags(t, reg); got["0"] != 0 {
				t.Errorf("once it is committed: %v, want 0", got)
			}
			stop()
		})
	})
}
