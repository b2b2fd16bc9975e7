package streammanager_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// unheeding is a source of which one kind of call does not return, whatever it is told, until let is closed.
type unheeding struct {
	*memSource
	poll, commit atomic.Bool
	let          chan struct{}
}

func (s *unheeding) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	got, err := s.memSource.Poll(ctx, limit)
	if s.poll.Load() {
		<-s.let
	}
	return got, err
}

func (s *unheeding) Commit(ctx context.Context, positions map[tp]streammanager.Position) error {
	if s.commit.Load() {
		<-s.let
	}
	return s.memSource.Commit(ctx, positions)
}

// stalled returns what is counted for a reason.
func stalled(t *testing.T, reg *prometheus.Registry, reason streammanager.Stall) float64 {
	t.Helper()
	return labelled(t, reg, "enricher_stalls_total", "reason", string(reason))
}

func TestWhatDoesNotReturnIsSaidAndEndsTheStreamToBeStartedAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		hang   func(*unheeding)
		reason streammanager.Stall
		words  string
	}{
		{name: "a poll", hang: func(s *unheeding) { s.poll.Store(true) }, reason: streammanager.StallPoll, words: "a poll of the source does not return"},
		{name: "a commit", hang: func(s *unheeding) { s.commit.Store(true) }, reason: streammanager.StallCommit, words: "a commit does not return"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				src := &unheeding{memSource: newMemSource(false), let: make(chan struct{})}
				h := newHarnessOver(t, src.memSource, src, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) { b.Process(try(pass)) })
				src.add(0, "k", "a")
				ended := make(chan error, 1)
				go func() { ended <- h.stream.Run(t.Context()) }()
				time.Sleep(time.Second)
				test.hang(src)
				src.add(0, "k", "b")
				time.Sleep(time.Minute)
				h.ready(t)
				time.Sleep(time.Minute)
				if err := h.stream.Status().Ready; err == nil || !strings.Contains(err.Error(), test.words) || !strings.Contains(err.Error(), `topic "in" partition 0 at offset`) {
					t.Errorf("after two minutes: ready %v, want %q and the place", err, test.words)
				}
				if n := stalled(t, reg, test.reason); n != 1 {
					t.Errorf("counted %v times", n)
				}
				if n := strings.Count(h.logged(), "something stands still"); n != 1 || !strings.Contains(h.log.String(), "topic=in partition=0 offset=") {
					t.Errorf("said %d times, or without the place:\n%s", n, h.log.String())
				}
				time.Sleep(3 * time.Minute)
				select {
				case err := <-ended:
					var failed *streammanager.FailedError
					if !errors.As(err, &failed) || failed.Reason != streammanager.ReasonStalled {
						t.Errorf("ended with %v, want a failure for what stands still", err)
					}
				default:
					t.Error("the stream goes on")
				}
				close(src.let)
			})
		})
	}
}

func TestASourceWithNothingToReadIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.src.add(0, "k", "a")
		stop := h.serve(t)
		time.Sleep(5 * time.Hour)
		h.ready(t)
		for _, what := range streammanager.Stalls() {
			if n := stalled(t, reg, what); n != 0 {
				t.Errorf("%s: counted %v times", what, n)
			}
		}
		h.src.add(0, "k", "b")
		time.Sleep(time.Minute)
		equal(t, "outputs", h.sink.values(), []string{"a", "b"})
		stop()
	})
}

func TestCommitsThatFailAreSaidOnceAMinuteAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.src.refuse(errTest)
		h.src.add(0, "k", "a")
		stop := h.serve(t)
		time.Sleep(50 * time.Second)
		h.ready(t)
		time.Sleep(30 * time.Second)
		if err := h.stream.Status().Ready; !errors.Is(err, errTest) || !strings.Contains(err.Error(), "positions are not kept") {
			t.Errorf("ready %v, want the failing commits", err)
		}
		if n := strings.Count(h.logged(), "commit failed"); n != 2 || stalled(t, reg, streammanager.StallCommit) != 1 {
			t.Errorf("said %d times in 80 seconds, want 2; counted %v times", n, stalled(t, reg, streammanager.StallCommit))
		}
		h.src.refuse(nil)
		time.Sleep(20 * time.Second)
		h.ready(t)
		h.offsets(t, 1)
		stop()
	})
}

// A commit that fails as its partition goes to another worker says nothing of one that has nothing left to commit.
func TestACommitThatFailedForAPartitionThatIsGoneIsNoStall(t *testing.T) {
	for _, tt := range []struct {
		name  string
		gone  func(*memSource)
		ready bool
	}{
		{name: "to another worker", gone: func(s *memSource) { s.lose(tp{"in", 1}) }, ready: true},
		{name: "or not at all", gone: func(*memSource) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) { b.Process(try(pass)) })
				h.src.add(0, "k", "a")
				h.src.add(1, "k", "b")
				stop := h.serve(t)
				time.Sleep(5 * time.Second) // both are committed
				h.src.mu.Lock()
				h.src.commitErr = streammanager.ErrAssignmentLost
				h.src.mu.Unlock()
				h.src.add(1, "k", "c")
				time.Sleep(5 * time.Second)
				tt.gone(h.src) // partition 0 stays, and has nothing to commit
				time.Sleep(time.Hour)
				err, n := h.stream.Status().Ready, stalled(t, reg, streammanager.StallCommit)
				if (err == nil) != tt.ready || (n == 0) != tt.ready {
					t.Errorf("an hour later: ready: %v, counted %v times, want ready: %v", err, n, tt.ready)
				}
				stop()
			})
		})
	}
}

func TestACommitThatFailedForAPartitionThatIsGoneIsNoStallWhileACallRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		step := try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
			if string(ev.Value()) == "slow" {
				time.Sleep(4 * time.Minute)
			}
			return []*event.Event{ev}, nil
		})
		step.Timeout = time.Hour
		h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) { b.Process(step) })
		h.src.add(0, "k", "a")
		h.src.add(1, "k1", "b")
		stop := h.serve(t)
		time.Sleep(5 * time.Second) // both are committed
		h.src.add(0, "k", "slow")
		h.src.refuse(streammanager.ErrAssignmentLost)
		h.src.add(1, "k1", "c")
		time.Sleep(5500 * time.Millisecond) // between two commits
		h.src.lose(tp{"in", 1})
		h.src.refuse(nil)
		for range 7 {
			time.Sleep(30 * time.Second)
			h.ready(t)
		}
		if n := stalled(t, reg, streammanager.StallCommit); n != 0 {
			t.Errorf("counted %v times", n)
		}
		time.Sleep(10 * time.Minute)
		h.offsets(t, 2, 1)
		stop()
	})
}
