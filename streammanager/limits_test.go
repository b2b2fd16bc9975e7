package streammanager_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// What waits for a sink was enlarged by the functions; no more of it is made than fits.
func TestOutputsBehindAStoppedSinkStayWithinTheLimit(t *testing.T) {
	for _, inline := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const limit, output, workers = 100_000, 2_000, 4
			h := newHarness(t, false, streammanager.Config{Workers: workers, Limits: streammanager.Limits{InFlightBytes: limit}}, func(b *streammanager.Builder) {
				step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
					ev.SetValue([]byte(strings.Repeat("o", output)))
					return []*event.Event{ev}, nil
				})
				step.Inline = inline
				b.Process(step)
			})
			h.sink.hold = true
			for i := range 1000 {
				h.src.add(int32(i%4), fmt.Sprint(i), "small")
			}
			stop := h.start(t)
			time.Sleep(time.Minute)
			most := int64(limit + workers*output)
			if inline {
				most = limit + workers*256*output // a task takes up to 256 events
			}
			if st := h.stream.Status(); st.InFlightBytes < limit/2 || st.InFlightBytes > most {
				t.Errorf("inline %v: %d bytes in flight behind a stopped sink, want about the limit of %d", inline, st.InFlightBytes, limit)
			}
			h.sink.let()
			time.Sleep(time.Minute)
			if got := len(h.sink.values()); got != 1000 {
				t.Errorf("inline %v: got %d outputs, want 1000", inline, got)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A partition that is over its share with events that are stuck goes on while there is room.
func TestABacklogThatFitsLeavesItsPartitionGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Limits: streammanager.Limits{InFlightEvents: 1000}, ShutdownTimeout: 5 * time.Second}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Key()) == "hang" {
					return nil, event.Hold(errTest, time.Now().Add(time.Second))
				}
				time.Sleep(10 * time.Millisecond)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 300 {
			h.src.add(0, "hang", fmt.Sprint("hang", i))
		}
		for i := range 16_000 {
			h.src.add(int32(i%8), fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.start(t)
		time.Sleep(time.Minute)
		if got := len(h.sink.values()); got != 16_000 {
			t.Errorf("got %d outputs of other keys, want 16,000: 300 stuck events of one partition fit a limit of 1,000", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestTimeAtALimitCountsWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h := newHarness(t, false, streammanager.Config{Limits: streammanager.Limits{InFlightEvents: 10}, Metrics: reg}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.sink.hold = true
		for i := range 100 {
			h.src.add(0, fmt.Sprint(i), "v")
		}
		stop := h.start(t)
		time.Sleep(time.Minute)
		if got := metric(t, reg, "enricher_paused_seconds_total"); got < 50 || got > 61 {
			t.Errorf("enricher_paused_seconds_total: %v after a minute at the limit", got)
		}
		h.sink.let()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAPartitionThatStandsStillIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "stuck" && !healed.Load() {
					return nil, event.Hold(errTest, time.Now().Add(time.Second))
				}
				return []*event.Event{ev}, nil
			}))
		})
		h.src.add(0, "a", "stuck")
		h.src.add(1, "b", "fine")
		stop := h.start(t)
		time.Sleep(4 * time.Minute)
		if err := h.stream.Status().Ready; err != nil {
			t.Errorf("after four minutes: %v, want ready", err)
		}
		time.Sleep(2 * time.Minute)
		if err := h.stream.Status().Ready; err == nil || !strings.Contains(err.Error(), `topic "in" partition 0 stands still at offset 0`) {
			t.Errorf("after six minutes: %v, want the partition and offset", err)
		}
		healed.Store(true)
		time.Sleep(time.Minute)
		if err := h.stream.Status().Ready; err != nil {
			t.Errorf("afterwards: %v, want ready, also when idle", err)
		}
		time.Sleep(time.Hour)
		if err := h.stream.Status().Ready; err != nil {
			t.Errorf("idle for an hour: %v, want ready", err)
		}
		if n := strings.Count(h.log.String(), "partition stalled"); n != 1 {
			t.Errorf("said %d times that a partition stalled, want once", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// metric returns what gathered does for one name.
func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	return gathered(t, reg)[name]
}

func TestOutputsCountInTheBytesInFlightUntilTheyAreAcknowledged(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprint("inline ", inline), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
					step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
						ev.SetValue([]byte(strings.Repeat("o", 1000)))
						return []*event.Event{ev, ev.Clone()}, nil
					})
					step.Inline = inline
					b.Process(step)
				})
				h.sink.hold = true
				for i := range 3 {
					h.src.add(0, fmt.Sprint("key", i), "0123456789")
				}
				stop := h.serve(t)
				const input, output = 4 + 10, 4 + 1000
				if got, want := h.stream.Status().InFlightBytes, int64(3*(input+2*output)); got != want {
					t.Errorf("%d bytes in flight at the sink, want %d", got, want)
				}
				h.sink.let()
				synctest.Wait()
				if got := h.stream.Status().InFlightBytes; got != 0 {
					t.Errorf("%d bytes in flight afterwards, want 0", got)
				}
				stop()
			})
		})
	}
}

// What is given up says nothing of how large outputs are.
func TestAFailureOfTheSinkLeavesRoomForOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, output, workers = 1_000_000, 2_000, 4
		var down atomic.Bool
		h := newHarness(t, false, streammanager.Config{Workers: workers, Limits: streammanager.Limits{InFlightBytes: limit, InFlightEvents: 100000}}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(time.Millisecond)
				ev.SetValue([]byte(strings.Repeat("o", output)))
				return []*event.Event{ev}, nil
			}))
		})
		h.sink.refuse = func(*streammanager.Record) error {
			if down.Load() {
				return errTest
			}
			return nil
		}
		for i := range 200 {
			h.src.add(int32(i%4), fmt.Sprint(i), "small")
		}
		stop := h.start(t)
		time.Sleep(time.Second)
		for i := range 50000 {
			h.src.add(int32(i%4), fmt.Sprint(i), "small")
		}
		look := func(n int) int {
			most := 0
			for range n {
				time.Sleep(time.Millisecond)
				most = max(most, h.stream.Status().InFlightEvents)
			}
			return most
		}
		if before := look(300); before == 0 {
			t.Fatal("nothing is in flight before the failure: this test needs it so")
		}
		down.Store(true)
		time.Sleep(50 * time.Millisecond)
		down.Store(false)
		if most := look(3000); most == 0 || most*output > 2*limit {
			t.Errorf("%d events read, which make %d bytes of output; limit %d", most, most*output, limit)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Of a chain without calls, too, what is dropped counts as an output of nothing: else one large output in
// hundreds would have the events read a handful at a time.
func TestDroppedEventsLeaveRoomInAChainWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{Workers: 64, Limits: streammanager.Limits{InFlightBytes: 1 << 20}}, func(b *streammanager.Builder) {
			step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(time.Millisecond)
				if string(ev.Value()) != "keep" {
					return nil, nil
				}
				ev.SetValue([]byte(strings.Repeat("o", 100_000)))
				return []*event.Event{ev}, nil
			})
			step.Inline = true
			b.Process(step)
		})
		for i := range 50_000 {
			value := "drop"
			if i%500 == 0 {
				value = "keep"
			}
			h.src.add(int32(i/2%8), fmt.Sprint(i), value)
		}
		from := time.Now()
		h.finish(t)
		if n := len(h.sink.values()); n != 100 {
			t.Errorf("%d outputs, want 100", n)
		}
		// Eight partitions of 6,250 events of a millisecond each.
		if took := time.Since(from); took > 13*time.Second {
			t.Errorf("it took %v, want about 6.25s: too few events were read at a time", took)
		}
	})
}
