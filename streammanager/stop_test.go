package streammanager_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

func TestAStopDispatchesOpenWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 10 * time.Second}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 100, Timeout: time.Hour}).Process(try(pass))
		})
		for i := range 30 {
			h.src.add(0, fmt.Sprint("k", i%3), fmt.Sprint(i))
		}
		stop := h.start(t)
		time.Sleep(time.Minute)
		if got := len(h.sink.values()); got != 0 {
			t.Errorf("got %d outputs before the windows closed", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := h.src.offset(0); len(h.sink.values()) != 30 || got != 30 {
			t.Errorf("after the stop: %d outputs, committed %d; want 30", len(h.sink.values()), got)
		}
	})
}

// A stop that comes long after the last message has its whole time.
func TestAStopOfAStreamThatWasQuietHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{CommitInterval: time.Hour, ShutdownTimeout: 6 * time.Second}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				select {
				case <-time.After(31 * time.Second):
					return []*event.Event{ev}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}))
		})
		h.src.add(0, "a", "0")
		stop := h.start(t)
		time.Sleep(30 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		equal(t, "outputs", h.sink.values(), []string{"0"})
		if got := h.src.offset(0); got != 1 {
			t.Errorf("committed %d, want 1", got)
		}
	})
}

// The end of the stream's context is no fault of the events whose calls it ends.
func TestAStopMakesNoErrorEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 5 * time.Second}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, _ *event.Event) ([]*event.Event, error) {
				<-ctx.Done()
				return nil, fmt.Errorf("asking the API: %w", ctx.Err())
			}))
		})
		for i := range 10 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.start(t)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		equal(t, "errors", h.errs.values(), nil)
		equal(t, "outputs", h.sink.values(), nil)
		if got := h.src.offset(0); got != 0 {
			t.Errorf("committed %d, want 0: all will be read again", got)
		}
	})
}

func TestAStopEndsInTimeWhilePartitionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 5 * time.Second}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				select {
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
				return []*event.Event{ev}, ctx.Err()
			}))
		})
		for i := range 300 {
			h.src.add(int32(i%3), fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.start(t)
		churn, cancel := context.WithCancel(context.Background())
		var changes sync.WaitGroup
		changes.Go(func() {
			for i := 0; churn.Err() == nil; i++ {
				at := tp{"in", int32(i % 3)}
				ctx, done := context.WithTimeout(churn, time.Second)
				h.src.revoke(ctx, at)
				done()
				time.Sleep(100 * time.Millisecond)
				if churn.Err() == nil {
					h.src.assign(at)
				}
			}
		})
		time.Sleep(3 * time.Second)
		from := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took > 6*time.Second {
			t.Errorf("the stop took %v, want the shutdown timeout of 5s", took)
		}
		cancel()
		changes.Wait()
		if n := len(h.errs.values()); n != 0 {
			t.Errorf("the stop made %d error events", n)
		}
	})
}

func firstLetter(_ context.Context, ev *event.Event) (streammanager.Key, error) {
	return streammanager.Key{Value: string(ev.Value()[:1])}, nil
}

// Waiting for the whole shutdown timeout would be in vain: nothing that is left can be finished in it.
func TestWhatWaitsBeyondAStopIsGivenUpAtOnce(t *testing.T) {
	long := try(func(context.Context, *event.Event) ([]*event.Event, error) {
		return nil, event.Retry(errTest, time.Hour)
	})
	tests := []struct {
		name  string
		shape func(b *streammanager.Builder)
		add   func(s *memSource)
	}{
		{
			name:  "a lane behind a long wait",
			shape: func(b *streammanager.Builder) { b.Process(long) },
			add: func(s *memSource) {
				for i := range 200 {
					s.add(0, "a", fmt.Sprint("a", i))
				}
			},
		},
		{
			name:  "a tombstone behind a long wait",
			shape: func(b *streammanager.Builder) { b.PartitionBy(firstLetter).Process(long) },
			add: func(s *memSource) {
				for _, v := range []string{"a", "-", "b", "-"} {
					s.add(0, "k", v)
				}
			},
		},
		{
			name: "a long hold",
			shape: func(b *streammanager.Builder) {
				b.Process(try(func(context.Context, *event.Event) ([]*event.Event, error) {
					return nil, event.Hold(errTest, time.Now().Add(time.Hour))
				}))
			},
			add: func(s *memSource) { s.add(0, "a", "a") },
		},
		{
			name:  "a batch that a long wait keeps from its function",
			shape: func(b *streammanager.Builder) { b.WindowBy(together).Process(long, bulk(&notes{}, pass)) },
			add:   func(s *memSource) { s.add(0, "a", "a"); s.add(0, "b", "b") },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, false, streammanager.Config{}, tt.shape)
				tt.add(h.src)
				stop := h.serve(t)
				within(t, "the stop", 0, stop)
				equal(t, "outputs", h.sink.values(), nil)
				equal(t, "errors", h.errs.values(), nil)
				h.offsets(t, 0)
			})
		})
	}
}

func TestAStopFinishesCallsAndShortWaitsAndGivesUpLongOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				first := event.Attempt(ctx, ev).Number() == 1
				switch v := string(ev.Value()); {
				case v == "runs":
					time.Sleep(3 * time.Second)
				case v == "waits shortly" && first:
					return nil, event.Retry(errTest, 5*time.Second)
				case v == "waits long":
					return nil, event.Retry(errTest, time.Hour)
				case v == "runs, then waits long":
					time.Sleep(2 * time.Second)
					return nil, event.Retry(errTest, time.Hour)
				}
				return []*event.Event{ev}, nil
			}))
		})
		for _, v := range []string{"runs", "waits shortly", "waits long", "runs, then waits long"} {
			h.src.add(0, v, v)
		}
		h.src.add(0, "waits long", "behind what is given up") // else it would overtake
		h.src.add(0, "waits shortly", "behind what is finished")
		stop := h.serve(t)
		within(t, "the stop, of which the short wait is the longest,", 5*time.Second, stop)
		equal(t, "outputs", h.sink.values(), []string{"runs", "waits shortly", "behind what is finished"})
		equal(t, "errors", h.errs.values(), nil)
		h.offsets(t, 2)
	})
}

func TestAStopWhileTheStreamGoesBackEndsWithoutCommitting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "slow" {
					time.Sleep(5 * time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		h.sink.refuse = func(*streammanager.Record) error { return errTest }
		h.src.add(0, "b", "slow")
		h.src.add(0, "a", "quick")
		stop := h.serve(t)
		within(t, "the stop", 5*time.Second, stop)
		equal(t, "outputs", h.sink.values(), nil)
		equal(t, "errors", h.errs.values(), nil)
		h.offsets(t, 0)
	})
}

// reluctant is a source that leaves only once its time is over.
type reluctant struct{ *memSource }

func (r reluctant) Close(ctx context.Context) { <-ctx.Done() }

func TestAStopHastensAStreamThatEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource(false)
		h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 2 * time.Second}, func(b *streammanager.Builder) {
			b.From(reluctant{src}).Process(try(func(context.Context, *event.Event) ([]*event.Event, error) { return nil, event.Fatal(errTest) }))
		})
		src.add(0, "k", "v")
		stop := h.start(t)
		time.Sleep(time.Second) // it is leaving the source
		from := time.Now()
		if err := stop(); !errors.Is(err, errTest) {
			t.Errorf("it ended with %v, want what it failed of", err)
		}
		if took := time.Since(from); took > 2*time.Second {
			t.Errorf("the stop took %v, which may take 2s", took)
		}
	})
}
