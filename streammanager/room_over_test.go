package streammanager_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// The output of the second waits for the first of its key, and no other answer fits beside it. The try of the first that
// is due again finds all workers waiting for room.
func TestATryThatIsDueAgainGetsAWorkerWhereAllWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{Workers: 2, Limits: streammanager.Limits{InFlightBytes: 10_000}}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 2, Timeout: time.Second})
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				switch name := string(ev.Value()); {
				case name == "first" && event.Attempt(ctx, ev).Number() == 1:
					return nil, event.Retry(errTest, 10*time.Second)
				case name == "second":
					ev.SetValue([]byte(strings.Repeat("2", 20_000)))
					return []*event.Event{ev}, event.Reserve(ctx, 20_000)
				}
				_ = sleep(ctx, time.Second) // so that the second comes first
				return []*event.Event{ev}, event.Reserve(ctx, 8000)
			}))
		})
		for _, ev := range [][2]string{{"a", "first"}, {"a", "second"}, {"b", "third"}, {"c", "fourth"}} {
			h.src.add(0, ev[0], ev[1])
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := h.stream.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n, took := h.sink.len(), time.Since(began); n != 4 || took > 15*time.Second {
			t.Errorf("%d of 4 outputs after %v, want all within 15s", n, took)
		}
	})
}

// Of a batch that was called together the first has left, and the last stands over the limit. It waits for the second.
func TestWhatStandsOverTheLimitGivesWayToWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{Workers: 3, Limits: streammanager.Limits{InFlightBytes: 10_000}}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 3, Timeout: time.Second})
			b.Process(streammanager.Step{Name: "many", Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
				out := make([]event.Result, len(evs))
				for i, ev := range evs {
					out[i].Events, out[i].Err = []*event.Event{ev}, event.Reserve(ctx, 10_000)
					if string(ev.Value()) == "third" {
						ev.SetValue([]byte(strings.Repeat("3", 20_000)))
					}
				}
				return out
			})}, try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "second" {
					_ = sleep(ctx, time.Second)
					return []*event.Event{ev}, event.Reserve(ctx, 8000)
				}
				return []*event.Event{ev}, nil
			}))
		})
		for _, name := range []string{"first", "second", "third"} {
			h.src.add(0, "a", name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.stream.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := h.sink.len(); n != 3 {
			t.Errorf("%d of 3 outputs after a minute", n)
		}
	})
}

// Answers that have become outputs stand behind a sink that stands still: one more than fit, not one per worker.
func TestOutputsOfAnswersDoNotPileUpBehindASink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, answer = 10_000, 8_000
		h := newHarness(t, false, streammanager.Config{Workers: 16, Limits: streammanager.Limits{InFlightBytes: limit}}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				_ = sleep(ctx, time.Duration('z'-ev.Key()[0])*time.Millisecond) // what was read last asks first
				if err := event.Reserve(ctx, answer); err != nil {
					return nil, err
				}
				ev.SetValue([]byte(strings.Repeat("v", answer)))
				return []*event.Event{ev}, nil
			}))
		})
		h.sink.hold = true
		for i := range 32 {
			h.src.add(0, string(rune('A'+i)), "v")
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		if got := h.stream.Status().InFlightBytes; got < answer || got > limit+answer {
			t.Errorf("%d bytes in flight behind a sink that stands still, want at most the limit of %d and one answer of %d", got, limit, answer)
		}
		for h.sink.len() < 32 {
			h.sink.let()
			time.Sleep(time.Minute)
		}
		stop()
		h.offsets(t, 32)
	})
}
