package streammanager_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// An event that waited for its key goes before what was read after it. Else the committed prefix stays
// behind by all that is in flight, once for each event before it in its lane, and a kill repeats that.
func TestTheEventThatWasReadFirstGetsTheNextWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var called []string
		h := newHarness(t, true, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				called = append(called, string(ev.Value()))
				return []*event.Event{ev}, nil
			}))
		})
		for _, ev := range [][2]string{{"a", "a1"}, {"a", "a2"}, {"a", "a3"}, {"b", "b"}, {"c", "c"}, {"d", "d"}, {"e", "e"}, {"f", "f"}} {
			h.src.add(0, ev[0], ev[1])
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		// While an output is on its way to the sink, its key is not free: one other event goes between.
		for name, latest := range map[string]int{"a2": 2, "a3": 4} {
			if at := slices.Index(called, name); at > latest {
				t.Errorf("%s was called as number %d of %v, want at most number %d", name, at, called, latest)
			}
		}
	})
}
