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
				if got := h.errs.header(0, "enricher.error.attempts"); got != tt.tries {
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

func TestErrorHeadersOfAnEarlierFailureAreRemovedAndReplaced(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprint("inline ", inline), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
					step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
						if string(ev.Value()) == "bad" {
							return nil, event.Reject("not_found", errTest)
						}
						return []*event.Event{ev, ev.Clone()}, nil
					})
					step.Inline = inline
					b.Process(step)
				})
				h.src.add(0, "a", "good")
				h.src.add(0, "a", "bad")
				h.src.add(0, "a", "-") // a tombstone touches no function
				for i := range h.src.logs[tp{"in", 0}] {
					h.src.logs[tp{"in", 0}][i].Headers = []event.Header{
						{Key: "first", Value: []byte("1")},
						{Key: "enricher.error.type", Value: []byte("timeout")},
						{Key: "enricher.error.status", Value: []byte("503")},
						{Key: "enricher.error.truncated", Value: []byte("12")},
						{Key: "enricher.errors", Value: []byte("not ours")},
						{Key: "first", Value: []byte("2")},
					}
				}
				h.finish(t)
				equal(t, "outputs", h.sink.values(), []string{"good", "good", "null"})
				kept := []string{"first=1", "enricher.errors=not ours", "first=2"}
				for n := range h.sink.values() {
					equal(t, fmt.Sprint("headers of output ", n), headers(h.sink.got[n]), kept)
				}
				failed := headers(h.errs.got[0])
				equal(t, "headers of the error event that were there", failed[:3], kept)
				for name, want := range map[string]int{"enricher.error.type=not_found": 1, "enricher.error.type=": 1, "enricher.error.status=": 0, "enricher.error.truncated=": 0} {
					n := 0
					for _, h := range failed {
						if strings.HasPrefix(h, name) {
							n++
						}
					}
					if n != want {
						t.Errorf("%d headers %q of the error event, want %d: %q", n, name, want, failed)
					}
				}
			})
		})
	}
}

func headers(r streammanager.Record) []string {
	var out []string
	for _, h := range r.Headers {
		out = append(out, h.Key+"="+string(h.Value))
	}
	return out
}

func TestAPanicIsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				if event.Attempt(ctx, ev).Number() < 3 {
					return nil, event.Retry(errTest, time.Second)
				}
				panic("boom")
			}))
		})
		h.src.add(0, "a", "a")
		h.finish(t)
		equal(t, "errors", h.errs.values(), []string{"a"})
		if got := h.errs.header(0, "enricher.error.attempts"); got != "3" {
			t.Errorf("attempts of the error event: got %q, want 3", got)
		}
	})
}

// The stack says where the user's function is at fault; the error event leaves for others to read.
func TestAPanicIsLoggedWithItsStackWhichTheEventDoesNotCarry(t *testing.T) {
	tests := []struct {
		name, function string
		shape          func(b *streammanager.Builder)
	}{
		{name: "a function", function: "call", shape: func(b *streammanager.Builder) {
			b.Process(try(func(context.Context, *event.Event) ([]*event.Event, error) { panic("boom") }))
		}},
		{name: "the filter", function: "filter", shape: func(b *streammanager.Builder) {
			b.Filter(func(context.Context, *event.Event) (bool, error) { panic("boom") })
		}},
		{name: "the key", function: "partition_by", shape: func(b *streammanager.Builder) {
			b.PartitionBy(func(context.Context, *event.Event) (streammanager.Key, error) { panic("boom") })
		}},
		{name: "the window", function: "window", shape: func(b *streammanager.Builder) {
			b.WindowBy(func(context.Context, *event.Event) (string, error) { panic("boom") })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, true, streammanager.Config{}, tt.shape)
				h.src.add(0, "a", "a")
				h.finish(t)
				equal(t, "errors", h.errs.values(), []string{"a"})
				if typ, fn := h.errs.header(0, "enricher.error.type"), h.errs.header(0, "enricher.error.function"); typ != "panic" || fn != tt.function {
					t.Errorf("error event of type %q in %q, want panic in %q", typ, fn, tt.function)
				}
				log := h.logged()
				for _, want := range []string{"boom", "stack=", "TestAPanicIsLoggedWithItsStack"} {
					if !strings.Contains(log, want) {
						t.Errorf("log without %q:\n%s", want, log)
					}
				}
				if all := strings.Join(headers(h.errs.got[0]), " "); strings.Contains(all, "goroutine ") || strings.Contains(all, "_test.go") {
					t.Errorf("the error event carries a stack: %s", all)
				}
				h.offsets(t, 1)
			})
		})
	}
}

// An API that is down shows in the log, and does not fill it.
func TestTheFirstErrorEventOfAKindIsAWarningAndThenOneAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				return nil, event.Reject(event.Type(ev.Key()), errTest)
			}))
		})
		h.src.logs[tp{"in", 0}] = nil // assigned
		stop := h.start(t)
		var seen []string
		for _, add := range []string{"a", "a", "a", "b", "wait", "a", "a"} {
			if add == "wait" {
				time.Sleep(time.Minute)
				continue
			}
			h.src.add(0, add, add)
			time.Sleep(time.Second)
			synctest.Wait()
			seen = append(seen, fmt.Sprint(strings.Count(h.log.String(), `level=WARN msg="error event"`)))
		}
		equal(t, "warnings after each event", seen, []string{"1", "1", "1", "2", "3", "3"})
		if !strings.Contains(h.log.String(), "more_of_this_kind_before=2") {
			t.Errorf("the log does not say that two more came:\n%s", h.log.String())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestErrorEventsOfKindsBeyondThoseToldApartWarnAsOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				return nil, event.Reject(event.Type(ev.Key()), errTest)
			}))
		})
		h.src.logs[tp{"in", 0}] = nil // assigned
		stop := h.serve(t)
		warned := func(from, n int) string {
			before := strings.Count(h.logged(), `level=WARN msg="error event"`)
			for i := range n {
				h.src.add(0, fmt.Sprint("kind_", from+i), "v")
			}
			time.Sleep(time.Second)
			return fmt.Sprint(strings.Count(h.logged(), `level=WARN msg="error event"`) - before)
		}
		seen := []string{warned(0, 200), warned(200, 100), warned(200, 100)}
		time.Sleep(time.Minute)
		seen = append(seen, warned(300, 100), warned(0, 1), warned(0, 1))
		equal(t, "warnings of 200 kinds, of further ones twice, of such a minute later, and of the first twice", seen, []string{"200", "1", "0", "1", "1", "0"})
		stop()
	})
}
