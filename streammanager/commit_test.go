package streammanager_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// slowCommit is a source whose commits take their time, unless ctx ends first or is not honoured.
type slowCommit struct {
	*memSource
	takes time.Duration
	deaf  bool

	mu    sync.Mutex // guards all below
	tried []map[tp]streammanager.Position
}

func (s *slowCommit) Commit(ctx context.Context, o map[tp]streammanager.Position) error {
	s.mu.Lock()
	s.tried = append(s.tried, o)
	s.mu.Unlock()
	if s.deaf {
		time.Sleep(s.takes)
		return s.memSource.Commit(ctx, o)
	}
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.memSource.Commit(ctx, o)
}

func (s *slowCommit) tries(at tp) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.tried {
		if _, ok := o[at]; ok {
			n++
		}
	}
	return n
}

func TestAFailedCommitIsSaidWithItsPlaceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.src.refuse(errTest)
		h.src.add(0, "a", "a")
		stop := h.serve(t)
		time.Sleep(time.Minute)
		h.offsets(t, 0)
		if want := `level=WARN msg="commit failed" pipeline=test topic=in partition=0 offset=1 err="test failure"`; !strings.Contains(h.logged(), want) {
			t.Errorf("logged %.1000q, want %q in it", h.logged(), want)
		}
		h.src.refuse(nil)
		time.Sleep(2 * time.Second) // nothing new is read or finished meanwhile
		h.offsets(t, 1)
		time.Sleep(time.Minute)
		h.src.mu.Lock()
		n := len(h.src.commits)
		h.src.mu.Unlock()
		if n != 1 {
			t.Errorf("%d commits, want 1: what was kept is not sent again", n)
		}
		stop()
	})
}

// A commit that waits behind another may be too late: the partition has a new owner, and the broker would
// take it.
func TestACommitForAnAssignmentThatEndedIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &slowCommit{memSource: newMemSource(false), takes: 20 * time.Second, deaf: true}
		h := newHarnessOver(t, src.memSource, src, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.src.logs[tp{"in", 0}] = nil // assigned too
		h.src.add(1, "b", "b")
		stop := h.serve(t)
		time.Sleep(2 * time.Second) // a commit of partition 1 is under way
		if n := src.tries(tp{"in", 1}); n != 1 {
			t.Fatalf("%d commits of partition 1, want 1: this test needs it under way", n)
		}
		h.src.add(0, "a", "a")
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		h.src.revoke(ctx, tp{"in", 0}) // its commit waits; the time for it is over before
		time.Sleep(time.Minute)
		if n := src.tries(tp{"in", 0}); n != 0 {
			t.Errorf("%d commits of a partition after its assignment had ended, want none", n)
		}
		h.offsets(t, 0, 1)
		stop()
	})
}

func TestARevokePastItsDeadlineLetsGoAndCommitsNothingLater(t *testing.T) {
	for _, tt := range []struct{ given, takes time.Duration }{
		{5 * time.Second, 5 * time.Second},
		{10 * time.Second, 10 * time.Second},
		{time.Hour, 10 * time.Second}, // partitions do not stand still for so long, whatever the source allows
	} {
		t.Run(tt.given.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &slowCommit{memSource: newMemSource(false), takes: 3 * time.Second}
				h := newHarnessOver(t, src.memSource, src, streammanager.Config{CommitInterval: time.Hour}, func(b *streammanager.Builder) {
					b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
						if string(ev.Value()) == "slow" {
							time.Sleep(30 * time.Second)
						}
						return []*event.Event{ev}, nil
					}))
				})
				h.src.add(0, "a", "quick")
				h.src.add(0, "b", "slow")
				stop := h.serve(t)
				ctx, cancel := context.WithTimeout(t.Context(), tt.given)
				defer cancel()
				from := time.Now()
				h.src.revoke(ctx, tp{"in", 0}) // running work is given up after four fifths, and the commit takes 3 s more
				if took := time.Since(from); took != tt.takes {
					t.Errorf("the revoke took %v, want %v", took, tt.takes)
				}
				time.Sleep(time.Minute)
				equal(t, "outputs", h.sink.values(), []string{"quick"})
				h.offsets(t, 0)
				if n := src.tries(tp{"in", 0}); n != 1 {
					t.Errorf("%d commits of the partition, want 1", n)
				}
				stop()
			})
		})
	}
}
