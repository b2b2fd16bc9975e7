package streammanager_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// What a bounded source has read to its end may be taken away before it is finished: then it has not ended.
func TestABoundedSourceWhosePartitionIsTakenAwayBeforeItIsFinishedIsReadAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		taken func(src *memSource, at tp)
		calls int // more would repeat what was finished
	}{
		{name: "lost, and given again", taken: func(src *memSource, at tp) { src.lose(at); src.assign(at) }, calls: 3},
		{name: "revoked, and given again", taken: func(src *memSource, at tp) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			src.revoke(ctx, at)
			src.assign(at)
		}, calls: 3},
		{name: "another is given", taken: func(src *memSource, _ tp) {
			src.addTo(tp{"in", 7}, "b", "of another worker")
			src.assign(tp{"in", 7})
		}, calls: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := &notes{}
				h := newHarness(t, true, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) {
					b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
						calls.add(string(ev.Value()))
						wait := time.NewTimer(20 * time.Second)
						defer wait.Stop()
						select {
						case <-wait.C:
							return []*event.Event{ev}, nil
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					}))
				})
				h.src.add(0, "a", "0")
				h.src.add(0, "a", "1")
				done := make(chan error, 1)
				go func() { done <- h.stream.Run(t.Context()) }()
				time.Sleep(30 * time.Second) // the first is finished, the second is called
				tt.taken(h.src, tp{"in", 0})
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				for at, log := range h.src.logs {
					if got := h.src.offset(at.Partition); got != int64(len(log)) {
						t.Errorf("ended well with partition %d at %d of %d; calls %q", at.Partition, got, len(log), calls.all())
					}
				}
				if got := calls.all(); len(got) != tt.calls {
					t.Errorf("called for %q, want %d calls", got, tt.calls)
				}
			})
		})
	}
}

var errNotNow = errors.New("not now")

// A run that ends well has its end committed: a second one would begin anew otherwise.
func TestABoundedSourceEndsOnceItsEndIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, true, streammanager.Config{CommitInterval: time.Second}, func(b *streammanager.Builder) { b.Process(takes(0)) })
		h.src.add(0, "a", "0")
		h.src.refuse(errNotNow)
		done := make(chan error, 1)
		go func() { done <- h.stream.Run(t.Context()) }()
		time.Sleep(3 * time.Minute)
		select {
		case err := <-done:
			t.Fatalf("Run = %v while nothing was committed: %d", err, h.src.offset(0))
		default:
		}
		if err := h.stream.Status().Ready; err == nil {
			t.Error("it is ready, although positions are not kept")
		}
		h.src.refuse(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		h.offsets(t, 1)
	})
}

// tardy is a source whose first word that it has ended comes late.
type tardy struct {
	*memSource
	says chan struct{}
}

func (s tardy) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	got, err := s.memSource.Poll(ctx, limit)
	if errors.Is(err, io.EOF) {
		<-s.says
	}
	return got, err
}

func TestAnEndThatWasFoundBeforeAPartitionWasGivenIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource(true)
		says := make(chan struct{})
		h := newHarnessOver(t, src, tardy{src, says}, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(takes(time.Second)) })
		src.add(0, "a", "0")
		done := make(chan error, 1)
		go func() { done <- h.stream.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		src.addTo(tp{"in", 1}, "b", "of another worker")
		src.assign(tp{"in", 1})
		synctest.Wait()
		close(says)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		h.offsets(t, 1, 1)
	})
}
