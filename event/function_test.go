package event_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

func TestPlainFunctionsAreFunctions(t *testing.T) {
	ctx := context.Background()
	e := value("1")
	var f event.Func = event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		return []*event.Event{ev, ev.Clone()}, nil
	})
	if got, err := f.Process(ctx, e); len(got) != 2 || got[0] != e || err != nil {
		t.Errorf("Process = %v, %v", got, err)
	}
	var b event.BatchFunc = event.BatchFuncOf(func(_ context.Context, evs []*event.Event) []event.Result {
		out := make([]event.Result, len(evs))
		for i, ev := range evs {
			out[i].Events = []*event.Event{ev}
		}
		return out
	})
	if got := b.ProcessBatch(ctx, []*event.Event{e}); len(got) != 1 || got[0].Events[0] != e {
		t.Errorf("ProcessBatch = %v", got)
	}
}

func TestTriesOfOneEventAreCountedTogether(t *testing.T) {
	ctx := context.Background()
	first := time.Unix(100, 0)
	a := event.NewAttempts(first)
	e := event.WithAttempts(value("1"), a)
	if got := event.Attempt(ctx, e); got != a || got.Number() != 1 || got.LastStatus() != 0 || got.Slot() != nil || !got.First().Equal(first) {
		t.Errorf("first try: %+v", got)
	}
	again := event.WithAttempts(value("1"), a)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			tries := event.Attempt(ctx, again)
			tries.Add(2)
			tries.SetStatus(503)
			tries.SetSlot("kept")
			_, _, _ = tries.Number(), tries.LastStatus(), tries.Slot()
		})
	}
	wg.Wait()
	got := event.Attempt(ctx, e)
	if got.Number() != 21 || got.LastStatus() != 503 || got.Slot() != "kept" || !got.First().Equal(first) {
		t.Errorf("after ten calls: number %d, status %d, slot %v, first %v", got.Number(), got.LastStatus(), got.Slot(), got.First())
	}
}

func TestAnEventWithoutTriesStartsCounting(t *testing.T) {
	e := value("1")
	a := event.Attempt(context.Background(), e)
	if a.Number() != 1 || a.First().IsZero() || event.Attempt(context.Background(), e) != a {
		t.Errorf("Attempt = %+v", a)
	}
}

func TestPipelineNameTravelsInTheContext(t *testing.T) {
	ctx := context.Background()
	if got := event.Pipeline(ctx); got != "" {
		t.Errorf("Pipeline of a plain context = %q", got)
	}
	if got := event.Pipeline(event.WithPipeline(ctx, "page-content")); got != "page-content" {
		t.Errorf("Pipeline = %q", got)
	}
}
