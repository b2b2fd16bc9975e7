package streammanager_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// sinkhole acknowledges records and keeps nothing.
type sinkhole struct{}

func (sinkhole) Open(context.Context) error { return nil }

func (sinkhole) Produce(_ context.Context, _ *streammanager.Record, done func(error)) { done(nil) }

func (sinkhole) Close(context.Context) error { return nil }

// What is kept of an event until its call could have timed out, or until the next message of a quiet stream,
// makes memory grow with the rate.
func TestAnEventIsLetGoWhenItIsFinished(t *testing.T) {
	freed := make(chan string, 2)
	src := newMemSource(false)
	watch := func(value []byte, name string) {
		runtime.AddCleanup(&value[0], func(name string) { freed <- name }, name)
	}
	step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		value := make([]byte, 1<<20)
		watch(value, "output")
		out := ev.Clone()
		out.SetValue(value)
		return []*event.Event{out}, nil
	})
	step.Timeout = time.Hour
	s, err := streammanager.New(streammanager.Config{Name: "test", CommitInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)}).
		From(src).Filter(func(_ context.Context, ev *event.Event) (bool, error) {
		watch(ev.Value(), "input")
		return true, nil
	}).Process(step).To(sinkhole{}).ErrorsTo(&memSink{}, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	src.add(0, "-", strings.Repeat("v", 1<<20)) // no key: the value begins the copy that is made of it
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	limit := time.After(10 * time.Second)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for held := map[string]bool{"input": true, "output": true}; len(held) > 0; {
		runtime.GC()
		select {
		case name := <-freed:
			delete(held, name)
		case <-look.C:
		case <-limit:
			t.Errorf("still held after the output was acknowledged: %v", held)
			held = nil
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
