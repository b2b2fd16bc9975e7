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
		equal(t, "enricher_source_skipped_total", seen, []string{"0", "3", "7"})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
