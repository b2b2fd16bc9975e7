package streammanager_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// What two workers find out about one value must not meet in one event; the race detector sees where it does.
func TestAnEventThatIsReturnedTwiceIsTwoEvents(t *testing.T) {
	path := func(text string) event.Path {
		p, err := event.ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole, part := path(".a"), path(".a.b")
	h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
		b.Reads(event.NewPaths(part)).Process(
			try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				return []*event.Event{ev, ev}, ev.Set(whole, []byte(`{"b":1}`))
			}),
			streammanager.Step{Name: "two", Func: event.FuncOf(pass), When: func(_ context.Context, ev *event.Event) (bool, error) {
				_, err := ev.Get(part)
				return true, err
			}})
	})
	for i := range 200 {
		h.src.add(0, fmt.Sprint(i), `{"a":{"b":[1,2,3]}}`)
	}
	h.finish(t)
	if n := len(h.sink.values()); n != 400 {
		t.Errorf("%d outputs, want 400", n)
	}
}
