package streammanager_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// The runtime begins to collect when a piece is there already, and on a busy machine several are there by then.
func TestGarbageIsCollectedBeforeALargePieceOfAnAnswerGoesOverTheMemoryLimit(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // so that nothing but the limit has garbage collected
	for _, c := range []struct {
		name           string
		garbage, piece int64 // MiB
		collected      bool
	}{
		{"a piece that goes over the limit", 64, 100, true},
		{"a piece that fits", 64, 40, false},
		{"a piece that goes over the limit, and little garbage", 10, 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
				b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
					runtime.ReadMemStats(&before)
					defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(before.HeapAlloc) + 160<<20))
					runtime.KeepAlive(make([]byte, c.garbage<<20)) // it is garbage after this line
					err := event.Reserve(ctx, c.piece<<20)
					runtime.ReadMemStats(&after)
					return []*event.Event{ev}, err
				}))
			})
			h.src.add(0, "a", "a")
			h.finish(t)
			if got := after.NumGC > before.NumGC; got != c.collected {
				t.Errorf("%d MiB of garbage and a piece of %d: collected %v, want %v", c.garbage, c.piece, got, c.collected)
			}
		})
	}
}
