package streammanager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// harness is a stream over memory in a synctest bubble.
type harness struct {
	src    *memSource
	sink   *memSink
	errs   *memSink
	log    bytes.Buffer
	stream *streammanager.Stream
}

func newHarness(t *testing.T, bounded bool, cfg streammanager.Config, shape func(*streammanager.Builder)) *harness {
	t.Helper()
	h := &harness{src: newMemSource(bounded), sink: &memSink{}, errs: &memSink{}}
	cfg.Name = "test"
	cfg.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	b := streammanager.New(cfg).From(h.src).To(h.sink).ErrorsTo(h.errs, nil)
	shape(b)
	var err error
	if h.stream, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	return h
}

// start runs the stream; stop ends it and returns what Run returned.
func (h *harness) start(t *testing.T) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.stream.Run(ctx) }()
	synctest.Wait()
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Minute):
			t.Error("stream did not stop")
			return nil
		}
	}
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestBoundedSourceIsCarriedToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		for i := range 500 {
			h.src.add(0, fmt.Sprint("k", i%7), fmt.Sprint(i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := len(h.sink.values()); got != 500 {
			t.Errorf("got %d outputs, want 500", got)
		}
		if got := h.src.offset(0); got != 500 {
			t.Errorf("committed %d, want 500", got)
		}
	})
}

func TestOrderOfAKeyIsKeptWhileItsCallsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		h := newHarness(t, true, streammanager.Config{Workers: 8}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 4, Timeout: time.Second}).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Duration(10-len(ev.Value())) * time.Second)
				running.Add(-1)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 8 {
			h.src.add(0, "k", strings.Repeat("x", i+1))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		var lens []string
		for _, v := range h.sink.values() {
			lens = append(lens, fmt.Sprint(len(v)))
		}
		equal(t, "order", lens, []string{"1", "2", "3", "4", "5", "6", "7", "8"})
		if most.Load() != 4 {
			t.Errorf("calls of one batch: got %d at once, want 4", most.Load())
		}
	})
}

func TestCallsOfAKeyNeverOverlapInKeySerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, tries atomic.Int32
		h := newHarness(t, true, streammanager.Config{Workers: 8, Order: streammanager.OrderKeySerial}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 4, Timeout: time.Second}).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if running.Add(1) > 1 {
					t.Error("two calls for one key at once")
				}
				defer running.Add(-1)
				time.Sleep(time.Second)
				if string(ev.Value()) == "1" && tries.Add(1) < 3 {
					return nil, event.Retry(errTest, 5*time.Second)
				}
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 6 {
			h.src.add(0, "k", fmt.Sprint(i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "order", h.sink.values(), []string{"0", "1", "2", "3", "4", "5"})
	})
}

func TestAWaitGivesTheWorkerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "slow" && event.Attempt(ctx, ev).Number() < 3 {
					return nil, event.Retry(errTest, time.Minute)
				}
				return []*event.Event{ev}, nil
			}))
		})
		h.src.add(0, "a", "slow")
		h.src.add(0, "b", "quick")
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "order", h.sink.values(), []string{"quick", "slow"})
	})
}

func TestErrorsBecomeErrorEvents(t *testing.T) {
	tests := []struct {
		name          string
		fn            func(ctx context.Context, ev *event.Event) ([]*event.Event, error)
		typ, tries    string
		withinVirtual time.Duration
	}{
		{
			name: "a plain error is of type function", typ: "function", tries: "1",
			fn: func(context.Context, *event.Event) ([]*event.Event, error) { return nil, errTest },
		},
		{
			name: "a reject keeps its type", typ: "not_found", tries: "1",
			fn: func(context.Context, *event.Event) ([]*event.Event, error) {
				return nil, event.Reject("not_found", errTest)
			},
		},
		{
			name: "the fifth failed attempt is the last", typ: "function", tries: "5",
			fn: func(context.Context, *event.Event) ([]*event.Event, error) {
				return nil, event.Retry(errTest, time.Second)
			},
		},
		{
			name: "a panic", typ: "panic", tries: "1",
			fn: func(context.Context, *event.Event) ([]*event.Event, error) { panic("boom") },
		},
		{
			name: "a call that honours its deadline", typ: "timeout", tries: "1",
			fn: func(ctx context.Context, _ *event.Event) ([]*event.Event, error) { <-ctx.Done(); return nil, ctx.Err() },
		},
		{
			name: "a call that hangs", typ: "timeout", tries: "1",
			fn: func(context.Context, *event.Event) ([]*event.Event, error) {
				time.Sleep(5 * time.Minute)
				return nil, nil
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, true, streammanager.Config{Workers: 2}, func(b *streammanager.Builder) {
					b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
						if string(ev.Value()) == "bad" {
							return tt.fn(ctx, ev)
						}
						return []*event.Event{ev}, nil
					}))
				})
				h.src.add(0, "a", "bad")
				for i := range 5 {
					h.src.add(0, "a", fmt.Sprint(i))
				}
				if err := h.stream.Run(context.Background()); err != nil {
					t.Fatal(err)
				}
				equal(t, "outputs", h.sink.values(), []string{"0", "1", "2", "3", "4"})
				equal(t, "errors", h.errs.values(), []string{"bad"})
				if got := h.errs.header(0, "enricher.error.type"); got != tt.typ {
					t.Errorf("type: got %q, want %q (%s)", got, tt.typ, h.errs.header(0, "enricher.error.message"))
				}
				if got := h.errs.header(0, "enricher.error.attempts"); got != tt.tries && tt.typ != "panic" {
					t.Errorf("attempts: got %q, want %q", got, tt.tries)
				}
				if got := h.src.offset(0); got != 6 {
					t.Errorf("committed %d, want 6", got)
				}
				time.Sleep(10 * time.Minute) // the hanging call returns
			})
		})
	}
}

func TestNothingIsCommittedBeyondAnUnfinishedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 5 * time.Second}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "2" {
					select {
					case <-free:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 10 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.start(t)
		time.Sleep(3 * time.Second)
		if got := h.src.offset(0); got != 2 {
			t.Errorf("committed %d, want 2", got)
		}
		from := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took > 5*time.Second {
			t.Errorf("the stop took %v, want at most 5s", took)
		}
		if got := h.src.offset(0); got != 2 {
			t.Errorf("committed %d after the stop, want 2", got)
		}
		if len(h.errs.values()) != 0 {
			t.Errorf("a stop made error events: %q", h.errs.values())
		}
	})
}

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

func TestATombstoneIsABarrierWhereTheKeyIsReadFromTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.PartitionBy(func(_ context.Context, ev *event.Event) (streammanager.Key, error) {
				return streammanager.Key{Value: string(ev.Value())}, nil
			}).Window(window.Config{Count: 10, Timeout: time.Minute}).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				time.Sleep(time.Duration(5-len(ev.Value())) * time.Second)
				return []*event.Event{ev}, nil
			}))
		})
		for _, v := range []string{"a", "aa", "-", "aaa", "-", "aaaa"} {
			h.src.add(0, "k", v)
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "order", h.sink.values(), []string{"aa", "a", "null", "aaa", "null", "aaaa"})
	})
}

func TestAChainWithoutCallsKeepsTheOrderOfThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(streammanager.Step{Name: "twice", Inline: true, Func: event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				switch string(ev.Value()) {
				case "3":
					return nil, nil
				case "5":
					return nil, errTest
				}
				second := ev.Clone()
				second.SetValue(append(second.Value(), '+'))
				return []*event.Event{ev, second}, nil
			})})
		})
		for i := range 7 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "outputs", h.sink.values(), []string{"0", "0+", "1", "1+", "2", "2+", "4", "4+", "6", "6+"})
		if st := h.stream.Status(); st.Outputs != 10 || st.Emitted != 5 || st.Dropped != 1 || st.Errors != 1 {
			t.Errorf("status: %+v", st)
		}
		equal(t, "errors", h.errs.values(), []string{"5"})
		if got := h.src.offset(0); got != 7 {
			t.Errorf("committed %d, want 7", got)
		}
	})
}

func TestABatchFuncGetsTheEventsThatReachedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []int
		h := newHarness(t, true, streammanager.Config{Workers: 4}, func(b *streammanager.Builder) {
			b.Window(window.Config{Count: 6, Timeout: time.Second}).WindowBy(func(context.Context, *event.Event) (string, error) { return "all", nil }).
				Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
					if string(ev.Value()) == "2" && event.Attempt(ctx, ev).Number() == 1 {
						return nil, event.Retry(errTest, time.Minute)
					}
					return []*event.Event{ev}, nil
				}), streammanager.Step{Name: "bulk", Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
					calls = append(calls, len(evs))
					out := make([]event.Result, len(evs))
					for i, ev := range evs {
						out[i].Events = []*event.Event{ev}
						if string(ev.Value()) == "4" && event.Attempt(ctx, ev).Number() == 1 {
							out[i] = event.Result{Err: event.Retry(errTest, time.Second)}
						}
						if string(ev.Value()) == "5" {
							out[i] = event.Result{Err: errTest}
						}
					}
					return out
				})})
		})
		for i := range 6 {
			h.src.add(0, fmt.Sprint("k", i%2), fmt.Sprint(i))
		}
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(calls, []int{5, 1, 1}) {
			t.Errorf("calls of the batch function: got %v, want [5 1 1]", calls)
		}
		equal(t, "outputs", h.sink.values(), []string{"0", "1", "3", "2", "4"})
		equal(t, "errors", h.errs.values(), []string{"5"})
	})
}
