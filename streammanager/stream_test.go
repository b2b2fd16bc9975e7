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
