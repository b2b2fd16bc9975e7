package streammanager_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

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
			name: "a call that ends its goroutine", typ: "panic", tries: "1",
			fn: func(context.Context, *event.Event) ([]*event.Event, error) { runtime.Goexit(); return nil, nil },
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

func TestARecordThatDoesNotFitIsAnErrorEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				big := ev.Clone()
				big.SetValue([]byte(strings.Repeat(string(ev.Value()), 100)))
				return []*event.Event{ev, big}, nil
			}))
		})
		h.sink.check = func(r *streammanager.Record) error {
			if len(r.Value) > 250 {
				return event.Rejectf(event.TooLarge, "%d bytes", len(r.Value))
			}
			return nil
		}
		h.src.add(0, "a", "x")
		h.src.add(0, "a", "yyyy")
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		equal(t, "outputs: none of an event that failed", h.sink.values(), []string{"x", strings.Repeat("x", 100)})
		equal(t, "errors", h.errs.values(), []string{"yyyy"})
		if got := h.errs.header(0, "enricher.error.type") + " " + h.errs.header(0, "enricher.error.function"); got != "too_large sink" {
			t.Errorf("got %q, want too_large of sink", got)
		}
	})
}

func TestAnErrorEventThatDoesNotFitIsCutAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(context.Context, *event.Event) ([]*event.Event, error) { return nil, errTest }))
		})
		h.errs.check = func(r *streammanager.Record) error {
			if len(r.Value) > 30 {
				return event.Rejectf(event.TooLarge, "%d bytes", len(r.Value))
			}
			return nil
		}
		h.src.add(0, "a", strings.Repeat("v", 100))
		if err := h.stream.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := h.errs.header(0, "enricher.error.truncated"); got != "100" || len(h.errs.values()[0]) != 25 {
			t.Errorf("truncated header %q, value of %d bytes; want 100 and 25", got, len(h.errs.values()[0]))
		}
	})
}

func TestDerivedEventsLeaveTogetherOrNotAtAll(t *testing.T) {
	for _, order := range []streammanager.Order{streammanager.OrderKey, streammanager.OrderKeySerial, streammanager.OrderNone} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, true, streammanager.Config{Order: order}, func(b *streammanager.Builder) {
					b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
						var out []*event.Event
						for i := range 3 {
							d := ev.Clone()
							d.SetValue(fmt.Appendf(nil, "%s.%d", ev.Value(), i))
							out = append(out, d)
						}
						return out, nil
					}), streammanager.Step{Name: "second", Func: event.FuncOf(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
						switch string(ev.Value()) {
						case "0.1":
							return nil, nil
						case "1.2":
							return nil, errTest
						case "2.0":
							if event.Attempt(ctx, ev).Number() == 1 {
								return nil, event.Retry(errTest, time.Second)
							}
						}
						return []*event.Event{ev}, nil
					})})
				})
				for i := range 3 {
					h.src.add(0, "k", fmt.Sprint(i))
				}
				if err := h.stream.Run(context.Background()); err != nil {
					t.Fatal(err)
				}
				got := h.sink.values()
				if order == streammanager.OrderNone {
					if len(got) != 5 {
						t.Errorf("got %q", got)
					}
				} else {
					equal(t, "outputs", got, []string{"0.0", "0.2", "2.0", "2.1", "2.2"})
				}
				equal(t, "errors", h.errs.values(), []string{"1"})
			})
		})
	}
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
