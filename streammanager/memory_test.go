package streammanager_test

import (
	"context"
	"log/slog"
	"runtime"
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
	freed := make(chan struct{})
	src := newMemSource(false)
	step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		value := make([]byte, 1<<20)
		runtime.AddCleanup(&value[0], func(freed chan struct{}) { close(freed) }, freed)
		out := ev.Clone()
		out.SetValue(value)
		return []*event.Event{out}, nil
	})
	step.Timeout = time.Hour
	s, err := streammanager.New(streammanager.Config{Name: "test", Logger: slog.New(slog.DiscardHandler)}).
		From(src).Process(step).To(sinkhole{}).ErrorsTo(&memSink{}, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	src.add(0, "big", "value")
	limit := time.After(10 * time.Second)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for gone := false; !gone; {
		runtime.GC()
		select {
		case <-freed:
			gone = true
		case <-look.C:
		case <-limit:
			t.Error("the output is still held after it was acknowledged")
			gone = true
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
