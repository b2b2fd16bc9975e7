package streammanager_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

// harness is a stream over memory in a synctest bubble.
type harness struct {
	src    *memSource
	sink   *memSink
	errs   *memSink
	log    bytes.Buffer
	stream *streammanager.Stream
}

func newHarness(t *testing.T, bounded bool, cfg streammanager.Config, shape func(*streammanager.Builder)) *harness {
	t.Helper()
	h := &harness{src: newMemSource(bounded), sink: &memSink{}, errs: &memSink{}}
	cfg.Name = "test"
	cfg.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	b := streammanager.New(cfg).From(h.src).To(h.sink).ErrorsTo(h.errs, nil)
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
