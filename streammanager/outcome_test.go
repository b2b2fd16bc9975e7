package streammanager_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

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

func TestWhatEndsAStreamForGood(t *testing.T) {
	tests := []struct {
		name  string
		want  string
		shape func(b *streammanager.Builder)
	}{
		{name: "event.Fatal", want: "offset 1", shape: func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if ev.Position().Offset == 1 {
					return nil, event.Fatal(errTest)
				}
				return []*event.Event{ev}, nil
			}))
		}},
		{name: "an error event without an error sink", want: `topic "in" partition 0 offset 1`, shape: func(b *streammanager.Builder) {
			b.ErrorsTo(nil, nil).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if ev.Position().Offset == 1 {
					return nil, errTest
				}
				return []*event.Event{ev}, nil
			}))
		}},
		{name: "as many abandoned calls as workers", want: "do not return", shape: func(b *streammanager.Builder) {
			st := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if ev.Position().Offset > 0 {
					time.Sleep(time.Hour)
				}
				return []*event.Event{ev}, nil
			})
			st.Timeout = time.Second
			b.Process(st)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, false, streammanager.Config{Workers: 2}, tt.shape)
				for i := range 4 {
					h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
				}
				err := h.stream.Run(context.Background())
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want one that says %q", err, tt.want)
				}
				if got := h.src.offset(0); got > 1 && tt.name != "as many abandoned calls as workers" {
					t.Errorf("committed %d, beyond the event that failed", got)
				}
				time.Sleep(2 * time.Hour) // the abandoned calls return
			})
		})
	}
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

func TestBuildReportsAllThatIsWrong(t *testing.T) {
	_, err := streammanager.New(streammanager.Config{Workers: -1, Order: "some"}).
		Process(streammanager.Step{}).Window(window.Config{Count: 20_000, Timeout: time.Second}).Build()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"name:", "workers:", "order:", "source:", "sink:", "process[0]:", "window.count:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want also %q", err, want)
		}
	}
	if errors.Is(err, errTest) {
		t.Error("unexpected cause")
	}
}
