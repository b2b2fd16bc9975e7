package streammanager_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// books note what calls hold of their answers, as the calls know it.
type books struct {
	mu   sync.Mutex // guards all below
	held map[string]int64
	sum  int64
	most int64
}

func (b *books) note(name string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		b.held = map[string]int64{}
	}
	b.held[name] += n
	b.sum += n
	b.most = max(b.most, b.sum)
}

func (b *books) letGo(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum -= b.held[name]
	delete(b.held, name)
}

// read reads an answer in ten pieces, each of which takes pace.
func (b *books) read(ctx context.Context, ev *event.Event, size int64, pace time.Duration) error {
	name := fmt.Sprint(ev.Position())
	for range 10 {
		if err := event.Reserve(ctx, size/10); err != nil {
			return err
		}
		b.note(name, size/10)
		if err := sleep(ctx, pace); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reading is a function that reads an answer and makes nothing of it.
func (b *books) reading(size int64, pace time.Duration) streammanager.Step {
	return try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		defer b.letGo(fmt.Sprint(ev.Position()))
		if err := b.read(ctx, ev, size, pace); err != nil {
			return nil, err
		}
		return []*event.Event{ev}, nil
	})
}

func TestAnswersThatDoNotFitWaitForEachOther(t *testing.T) {
	for _, workers := range []int{1, 2, 7, 64} {
		synctest.Test(t, func(t *testing.T) {
			const limit, answer = 64_000, 56_000
			var b books
			h := newHarness(t, true, streammanager.Config{Workers: workers, Limits: streammanager.Limits{InFlightBytes: limit}}, func(bu *streammanager.Builder) {
				bu.Process(b.reading(answer, 100*time.Millisecond))
			})
			for i := range 128 {
				h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
			}
			within(t, "128 answers of a second, one or two at a time", 130*time.Second, func() { h.finish(t) })
			if b.most > limit+answer || workers > 1 && b.most < limit*3/4 {
				t.Errorf("%d workers held %d bytes at once, want at most the limit of %d and one answer of %d, and most of the limit", workers, b.most, limit, answer)
			}
			if n := h.sink.len(); n != 128 {
				t.Errorf("%d outputs, want 128", n)
			}
			if st := h.stream.Status(); st.InFlightBytes != 0 {
				t.Errorf("%d bytes in flight at the end", st.InFlightBytes)
			}
		})
	}
}

// They ask for it in the opposite order.
func TestRoomGoesToTheEventThatWasReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got notes
		h := newHarness(t, true, streammanager.Config{Workers: 9, Limits: streammanager.Limits{InFlightBytes: 1000}}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				_ = sleep(ctx, time.Duration('9'-ev.Value()[0])*time.Millisecond)
				if err := event.Reserve(ctx, 2000); err != nil {
					return nil, err
				}
				got.add(string(ev.Value()))
				return []*event.Event{ev}, sleep(ctx, time.Second)
			}))
		})
		for i := range 10 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		h.finish(t)
		// The first to ask is the last of the nine calls, and the tenth event is called when that has ended.
		equal(t, "answers in the order of their room", got.all(), []string{"8", "0", "1", "2", "3", "4", "5", "6", "7", "9"})
	})
}

func TestAnswersCountAsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Limits: streammanager.Limits{InFlightBytes: 100_000}}, func(b *streammanager.Builder) {
			step := try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if err := event.Reserve(ctx, 7000); err != nil {
					return nil, err
				}
				_ = sleep(ctx, time.Minute)
				event.Release(ctx, 5000)
				_ = sleep(ctx, time.Minute)
				return []*event.Event{ev}, nil
			})
			step.Timeout = time.Hour
			b.Process(step)
		})
		h.src.add(0, "a", "v")
		stop := h.serve(t)
		for _, want := range []int64{7002, 2002, 0} {
			time.Sleep(55 * time.Second)
			if got := h.stream.Status().InFlightBytes; got != want {
				t.Errorf("%d bytes in flight, want %d", got, want)
			}
			time.Sleep(5 * time.Second)
		}
		stop()
	})
}

// While a call waits for room its server is held up by it, which is no fault of the server.
func TestACallThatWaitsForRoomIsNeitherLateNorAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var late notes
		step := try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
			name := string(ev.Value())
			own, cancel := event.WithTimeout(ctx, 70*time.Second, nil)
			defer cancel()
			_ = sleep(ctx, map[string]time.Duration{"two": time.Millisecond, "three": 2 * time.Millisecond}[name]) // so that they ask in turn
			if err := event.Reserve(own, 5000); err != nil {
				return nil, err
			}
			if name == "late" {
				_ = sleep(ctx, 100*time.Second)
				late.add(time.Since(began).String())
				return nil, ctx.Err()
			}
			return []*event.Event{ev}, sleep(own, 60*time.Second)
		})
		step.Timeout = 90 * time.Second
		h := newHarness(t, true, streammanager.Config{Workers: 3, Limits: streammanager.Limits{InFlightBytes: 1000}}, func(b *streammanager.Builder) { b.Process(step) })
		for _, name := range []string{"one", "two", "three", "late"} {
			h.src.add(0, name, name)
		}
		h.finish(t)
		equal(t, "outputs", h.sink.values(), []string{"one", "two", "three"})
		equal(t, "error events", h.errs.values(), []string{"late"})
		equal(t, "the one that is late of itself ended after", late.all(), []string{"4m30s"})
		if text := h.log.String(); strings.Contains(text, "abandoned") {
			t.Errorf("the log says %s", text)
		}
	})
}

// What reads ahead must leave room for answers, or calls wait for each other behind inputs that wait for them.
func TestInputsLeaveRoomForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{Workers: 8, Limits: streammanager.Limits{InFlightBytes: 80_000}}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if err := event.Reserve(ctx, 4000); err != nil {
					return nil, err
				}
				ev.SetValue([]byte("small"))
				return []*event.Event{ev}, sleep(ctx, 100*time.Millisecond)
			}))
		})
		for i := range 400 {
			h.src.add(int32(i%4), fmt.Sprint(i), strings.Repeat("v", 1000))
		}
		within(t, "400 calls of 100 ms on 8 workers", 5500*time.Millisecond, func() { h.finish(t) })
	})
}

func TestWhatHoldsRoomGivesItBackHoweverItEnds(t *testing.T) {
	const abandoned = "it is abandoned"
	for name, end := range map[string]func(h *harness){
		"its partition is lost":    func(h *harness) { h.src.lose(tp{"in", 0}) },
		"its partition is revoked": func(h *harness) { h.src.revoke(context.Background(), tp{"in", 0}) },
		abandoned:                  func(*harness) { time.Sleep(2 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				step := try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
					if string(ev.Value()) != "hangs" {
						_ = sleep(ctx, time.Millisecond) // it asks first
					}
					if err := event.Reserve(ctx, 9000); err != nil {
						return nil, err
					}
					switch {
					case string(ev.Value()) != "hangs":
					case name == abandoned:
						time.Sleep(time.Hour)
					default:
						_ = sleep(ctx, time.Hour)
					}
					return []*event.Event{ev}, nil
				})
				step.Timeout = time.Minute
				h := newHarness(t, false, streammanager.Config{Workers: 3, Limits: streammanager.Limits{InFlightBytes: 5000}}, func(b *streammanager.Builder) { b.Process(step) })
				h.src.add(0, "a", "hangs")
				h.src.add(0, "b", "behind")
				stop := h.serve(t)
				h.src.add(1, "c", "waits")
				h.src.assign(tp{"in", 1})
				time.Sleep(time.Second)
				equal(t, "outputs while one hangs", h.sink.values(), nil)
				end(h)
				time.Sleep(time.Second)
				want := []string{"waits"}
				if name == abandoned {
					want = []string{"behind", "waits"}
				}
				equal(t, "outputs after", h.sink.values(), want)
				if n := h.stream.Status().InFlightBytes; n != 0 {
					t.Errorf("%d bytes in flight after", n)
				}
				stop()
				time.Sleep(2 * time.Hour) // the call returns
			})
		})
	}
}

func TestAStopDoesNotWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b books
		h := newHarness(t, false, streammanager.Config{Workers: 8, Limits: streammanager.Limits{InFlightBytes: 1000}, ShutdownTimeout: 10 * time.Second}, func(bu *streammanager.Builder) {
			bu.Process(b.reading(50_000, 5*time.Second))
		})
		for i := range 20 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.serve(t)
		time.Sleep(time.Second)
		within(t, "the stop", 10*time.Second, stop)
		equal(t, "error events", h.errs.values(), nil)
	})
}

// A later function may hold an event for long: what the ones before made of it takes room meanwhile.
func TestWhatWaitsBetweenFunctionsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 4, Limits: streammanager.Limits{InFlightBytes: 100_000}}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				ev.SetValue([]byte(strings.Repeat("v", 10_000)))
				return []*event.Event{ev}, nil
			}), streammanager.Step{Name: "two", Func: event.FuncOf(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if time.Since(event.Attempt(ctx, ev).First()) < time.Hour {
					return nil, event.Hold(errTest, time.Now().Add(time.Hour))
				}
				ev.SetValue([]byte("small"))
				return []*event.Event{ev}, nil
			})})
		})
		for i := range 100 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		if got := h.stream.Status().InFlightBytes; got < 5*10_000 {
			t.Errorf("%d bytes in flight, want those of the events that wait too", got)
		}
		time.Sleep(2 * time.Hour)
		if got, n := h.stream.Status().InFlightBytes, h.sink.len(); got != 0 || n != 100 {
			t.Errorf("at idle: %d bytes in flight, %d outputs", got, n)
		}
		stop()
	})
}
