package streammanager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

func TestRevokeWaitsForRunningWorkAndDropsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 2}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(2 * time.Second)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 6 {
			h.src.add(0, fmt.Sprint("a", i), fmt.Sprint("a", i))
			h.src.add(1, fmt.Sprint("b", i), fmt.Sprint("b", i))
		}
		stop := h.start(t)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		h.src.revoke(ctx, tp{"in", 0})
		cancel()
		committed := h.src.offset(0)
		done := 0
		for _, v := range h.sink.values() {
			if strings.HasPrefix(v, "a") {
				done++
			}
		}
		if int64(done) != committed {
			t.Errorf("%d outputs of the revoked partition and offset %d committed, want as many", done, committed)
		}
		time.Sleep(time.Minute)
		for _, v := range h.sink.values()[done:] {
			if strings.HasPrefix(v, "a") && int64(done) == committed && !slices.Contains(h.sink.values()[:done+2], v) {
				t.Errorf("output %q after the revoke", v)
			}
		}
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		got := h.sink.values()
		slices.Sort(got)
		equal(t, "outputs", got, []string{"a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1", "b2", "b3", "b4", "b5"})
	})
}

func TestAPartitionThatWasLostIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(3 * time.Second)
				return []*event.Event{ev}, nil
			}))
		})
		h.src.add(0, "a", "0")
		stop := h.start(t)
		time.Sleep(time.Second)
		h.src.a.Lost([]tp{{"in", 0}})
		time.Sleep(time.Minute)
		if got := h.src.offset(0); got != 0 || len(h.sink.values()) != 0 {
			t.Errorf("after the loss: committed %d, outputs %q; want none", got, h.sink.values())
		}
		if st := h.stream.Status(); st.InFlightEvents != 0 {
			t.Errorf("in flight: %d, want 0", st.InFlightEvents)
		}
		h.src.assign(tp{"in", 0})
		time.Sleep(time.Minute)
		equal(t, "outputs", h.sink.values(), []string{"0"})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAFailedSinkTakesTheStreamBackToItsOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		var down atomic.Bool
		h.sink.refuse = func(*streammanager.Record) error {
			if down.Load() {
				return errTest
			}
			return nil
		}
		h.src.add(0, "first", "first")
		stop := h.start(t)
		down.Store(true)
		for i := range 20 {
			h.src.add(0, fmt.Sprint("k", i%3), fmt.Sprint(i))
		}
		time.Sleep(5 * time.Second)
		if st := h.stream.Status(); st.Ready == nil || !errors.Is(st.Ready, errTest) {
			t.Errorf("status while the sink is down: %v, want the cause", st.Ready)
		}
		down.Store(false)
		time.Sleep(2 * time.Minute)
		if st := h.stream.Status(); st.Ready != nil || st.InFlightEvents != 0 {
			t.Errorf("status afterwards: %+v", st)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		got := map[string]int{}
		for _, v := range h.sink.values() {
			got[v]++
		}
		if len(got) != 21 || len(h.errs.values()) != 0 {
			t.Errorf("got %d of 21 outputs and %d error events", len(got), len(h.errs.values()))
		}
		if got := h.src.offset(0); got != 21 {
			t.Errorf("committed %d, want 21", got)
		}
	})
}
