package streammanager_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// harness is a stream over memory in a synctest bubble.
type harness struct {
	src    *memSource
	sink   *memSink
	errs   *memSink
	log    journal
	stream *streammanager.Stream
	hops   bool // its events go through a repartition topic
}

// journal keeps what is logged, while the stream goes on as well.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newHarness(t *testing.T, bounded bool, cfg streammanager.Config, shape func(*streammanager.Builder)) *harness {
	t.Helper()
	src := newMemSource(bounded)
	return newHarnessOver(t, src, src, cfg, shape)
}

// newHarnessOver lets the stream see src through from, a source over it with other abilities.
func newHarnessOver(t *testing.T, src *memSource, from streammanager.Source, cfg streammanager.Config, shape func(*streammanager.Builder)) *harness {
	t.Helper()
	h := &harness{src: src, sink: &memSink{}, errs: &memSink{}}
	cfg.Name = "test"
	cfg.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	b := streammanager.New(cfg).From(from).To(h.sink).ErrorsTo(h.errs, nil)
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

// serve runs the stream; stop ends it, which must succeed.
func (h *harness) serve(t *testing.T) (stop func()) {
	t.Helper()
	end := h.start(t)
	return func() {
		t.Helper()
		if err := end(); err != nil {
			t.Errorf("the stop: %v", err)
		}
	}
}

// finish carries a bounded source to its end, which must succeed.
func (h *harness) finish(t *testing.T) {
	t.Helper()
	if err := h.stream.Run(t.Context()); err != nil {
		t.Fatalf("running to the source's end: %v", err)
	}
}

// logged returns what was logged, once nothing is at work.
func (h *harness) logged() string {
	synctest.Wait()
	return h.log.String()
}

// offsets compares what was committed of partition 0 and following.
func (h *harness) offsets(t *testing.T, want ...int64) {
	t.Helper()
	for p, off := range want {
		if got := h.src.offset(int32(p)); got != off {
			t.Errorf("partition %d: committed %d, want %d", p, got, off)
		}
	}
}

func (h *harness) ready(t *testing.T) {
	t.Helper()
	if err := h.stream.Status().Ready; err != nil {
		t.Errorf("status: %v, want ready", err)
	}
}

// within fails where do takes longer, in virtual time.
func within(t *testing.T, what string, most time.Duration, do func()) {
	t.Helper()
	from := time.Now()
	do()
	if took := time.Since(from); took > most {
		t.Errorf("%s took %v, want at most %v", what, took, most)
	}
}

// notes gathers texts from many goroutines.
type notes struct {
	mu  sync.Mutex
	got []string
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, text)
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got)
}

// takes is a function that passes each event on after some time.
func takes(d time.Duration) streammanager.Step {
	return try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		time.Sleep(d)
		return []*event.Event{ev}, nil
	})
}

// bulk is a BatchFunc that notes the values of each call, joined, and answers for each event.
func bulk(calls *notes, answer func(ctx context.Context, ev *event.Event) ([]*event.Event, error)) streammanager.Step {
	return streammanager.Step{Name: "bulk", Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
		out := make([]event.Result, len(evs))
		values := make([]string, len(evs))
		for i, ev := range evs {
			values[i] = string(ev.Value())
			out[i].Events, out[i].Err = answer(ctx, ev)
		}
		calls.add(strings.Join(values, " "))
		return out
	})}
}

// together puts all events into one window.
func together(context.Context, *event.Event) (string, error) { return "all", nil }
