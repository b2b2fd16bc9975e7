package streammanager_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// Two functions that make hundreds of one event make hundreds of thousands of it, which no limit sees coming.
func TestAnEventThatBecomesTooManyIsAnErrorEvent(t *testing.T) {
	for _, inline := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			many := func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "one" {
					return []*event.Event{ev}, nil
				}
				out := make([]*event.Event, 400)
				for i := range out {
					out[i] = ev.Clone()
				}
				return out, nil
			}
			h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
				b.Process(streammanager.Step{Name: "first", Func: event.FuncOf(many), Inline: inline}, streammanager.Step{Name: "second", Func: event.FuncOf(many), Inline: inline})
			})
			h.src.add(0, "a", "many")
			h.src.add(0, "a", "one")
			h.finish(t)
			equal(t, "outputs", h.sink.values(), []string{"one"})
			equal(t, "errors", h.errs.values(), []string{"many"})
			if got := h.errs.header(0, "enricher.error.type"); got != "too_large" {
				t.Errorf("inline %v: type %q, want too_large", inline, got)
			}
		})
	}
}

// What was looked at goes on while the rest of a poll takes its time: else a stop in between has nothing to keep.
func TestSlowExpressionsHandOnWhatTheyHaveDone(t *testing.T) {
	slow := func() { time.Sleep(20 * time.Millisecond) }
	for name, shape := range map[string]func(*streammanager.Builder){
		"a filter": func(b *streammanager.Builder) {
			b.Filter(func(context.Context, *event.Event) (bool, error) { slow(); return true, nil })
		},
		"a chain without calls": func(b *streammanager.Builder) {
			step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				slow()
				return []*event.Event{ev}, nil
			})
			step.Inline = true
			b.Process(step)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, false, streammanager.Config{}, shape)
			var want []string
			for i := range 200 {
				h.src.add(0, "a", fmt.Sprint(i))
				want = append(want, fmt.Sprint(i))
			}
			stop := h.start(t)
			time.Sleep(time.Second)
			if n := len(h.sink.values()); n < 30 {
				t.Errorf("%s: %d outputs after a second of 20 ms each, want about 50", name, n)
			}
			time.Sleep(time.Minute)
			equal(t, name+": outputs", h.sink.values(), want)
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
