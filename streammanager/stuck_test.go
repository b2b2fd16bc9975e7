package streammanager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// What is read of a key that is stuck will have outputs one day. The room that is kept for them must not
// take the last quarter of the limit from the other partitions.
func TestAStuckKeyThatFillsItsPartitionsShareLeavesTheOthersGoing(t *testing.T) {
	for _, output := range []int{0, 10, 100, 2000} {
		t.Run(fmt.Sprintf("outputs of %d bytes", output), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, false, streammanager.Config{Limits: streammanager.Limits{InFlightBytes: 100_000}}, func(b *streammanager.Builder) {
					b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
						if string(ev.Key()) == "stuck" {
							return nil, event.Hold(errTest, time.Now().Add(time.Second))
						}
						if output == 0 {
							return nil, nil
						}
						ev.SetValue([]byte(strings.Repeat("o", output)))
						return []*event.Event{ev}, nil
					}))
				})
				h.src.logs[tp{"in", 0}] = nil // assigned too
				others := func() {
					for i := range 500 {
						h.src.add(1, fmt.Sprint(i), strings.Repeat("b", 100))
					}
				}
				others()
				stop := h.serve(t)
				time.Sleep(10 * time.Second) // now it is known how large outputs are
				for range 5000 {
					h.src.add(0, "stuck", strings.Repeat("a", 100))
				}
				time.Sleep(10 * time.Second)
				if !h.src.isPaused(0) {
					t.Error("the partition that fills the limit is not paused")
				}
				others()
				time.Sleep(10 * time.Minute)
				h.offsets(t, 0, 1000)
				if st := h.stream.Status(); st.InFlightBytes > 80_000 {
					t.Errorf("%d bytes in flight of one partition of two, limit 100,000", st.InFlightBytes)
				}
				stop()
			})
		})
	}
}
