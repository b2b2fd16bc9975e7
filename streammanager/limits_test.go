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

func TestInFlightStaysWithinTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Limits: streammanager.Limits{InFlightEvents: 50, InFlightBytes: 1000}}, func(b *streammanager.Builder) {
			b.Process(try(pass))
		})
		h.sink.hold = true
		for i := range 400 {
			h.src.add(int32(i%4), fmt.Sprint(i), strings.Repeat("v", 40))
		}
		h.src.add(0, "big", strings.Repeat("v", 5000))
		stop := h.start(t)
		time.Sleep(time.Minute)
		st := h.stream.Status()
		if st.InFlightEvents == 0 || st.InFlightEvents > 50 || st.InFlightBytes > 2*1000+100 {
			t.Errorf("in flight: %d events, %d bytes", st.InFlightEvents, st.InFlightBytes)
		}
		h.sink.let()
		time.Sleep(time.Minute)
		if got := len(h.sink.values()); got != 401 {
			t.Errorf("got %d outputs, want 401", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAHangingKeyLeavesTheOthersTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 4, Limits: streammanager.Limits{InFlightEvents: 100}, ShutdownTimeout: 5 * time.Second}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Key()) == "hang" {
					return nil, event.Hold(errTest, time.Now().Add(time.Second))
				}
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 1000 {
			h.src.add(0, "hang", fmt.Sprint(i))
			h.src.add(1, fmt.Sprint(i), fmt.Sprint(i))
			h.src.add(2, fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.start(t)
		time.Sleep(time.Minute)
		if got := len(h.sink.values()); got != 2000 {
			t.Errorf("got %d outputs of other keys, want 2000", got)
		}
		if st := h.stream.Status(); st.InFlightEvents > 100 {
			t.Errorf("in flight: %d, want at most 100", st.InFlightEvents)
		}
		from := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}
