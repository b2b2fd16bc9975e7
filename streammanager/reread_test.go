package streammanager_test

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// latePause is a source whose poll, as may happen, still returns what was fetched before a pause.
type latePause struct{ *memSource }

func (s latePause) Pause(...tp) {}

func TestAPausedPartitionThatIsGivenAgainWhileTheReaderIsBusyLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, sink := latePause{newMemSource(false)}, &memSink{}
		busy, stuck := make(chan struct{}), make(chan struct{})
		stream, err := streammanager.New(streammanager.Config{Name: "test", Workers: 4, Logger: slog.New(slog.DiscardHandler), Limits: streammanager.Limits{UncommittedEvents: 5}}).
			From(src).To(sink).ErrorsTo(&memSink{}, nil).
			Filter(func(_ context.Context, ev *event.Event) (bool, error) {
				if ev.Position().Partition == 1 {
					<-busy // an expression that takes its time
				}
				return true, nil
			}).
			Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
				select {
				case <-stuck:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return []*event.Event{ev}, nil
			})).Build()
		if err != nil {
			t.Fatal(err)
		}
		src.logs[tp{"in", 1}] = nil
		var want []string
		for i := range 10 {
			src.add(0, "a", strconv.Itoa(i))
			want = append(want, strconv.Itoa(i))
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- stream.Run(ctx) }()
		time.Sleep(time.Second) // all ten are read, none is finished, and partition 0 is held
		src.mu.Lock()           // one poll is to get both
		src.logs[tp{"in", 1}] = []streammanager.Record{{Topic: "in", Partition: 1, Key: []byte("b"), Value: []byte("other"), Timestamp: time.Now()}}
		src.logs[tp{"in", 0}] = append(src.logs[tp{"in", 0}], streammanager.Record{Topic: "in", Offset: 10, Key: []byte("a"), Value: []byte("10"), Timestamp: time.Now()})
		src.mu.Unlock()
		src.kick()
		want = append(want, "10")
		time.Sleep(time.Second) // the reader has polled both and is busy with partition 1
		src.lose(tp{"in", 0})
		src.assign(tp{"in", 0})
		close(busy)
		time.Sleep(time.Second)
		close(stuck)
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		got := slices.DeleteFunc(sink.values(), func(v string) bool { return v == "other" })
		equal(t, "outputs of the partition", got, want)
		if at := src.offset(0); at != 11 {
			t.Errorf("committed %d, want 11", at)
		}
	})
}

// slowEnd takes a while to find that nothing is left, and cannot be interrupted, as a read of a file cannot.
type slowEnd struct{ *memSource }

func (s slowEnd) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	got, err := s.memSource.Poll(ctx, limit)
	if err != nil {
		time.Sleep(time.Second)
	}
	return got, err
}

func TestAnEndThatWasReadBeforeGoingBackIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource(true)
		h := newHarnessOver(t, src, slowEnd{src}, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.sink.refuse = failOnce()
		src.add(0, "a", "1")
		src.add(0, "b", "2")
		if err := h.stream.Run(t.Context()); err != nil {
			t.Error(err)
		}
		got := h.sink.values()
		slices.Sort(got)
		equal(t, "outputs", slices.Compact(got), []string{"1", "2"})
		if at := src.offset(0); at != 2 {
			t.Errorf("committed %d, want 2", at)
		}
	})
}
