package streammanager

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is the longest time between two looks at what may stand still.
	lookEvery = 10 * time.Second
	// pollTurn is after how long a poll is told to return. A source does so at once; one that does not is stuck.
	pollTurn = 30 * time.Second
	// stuckAfter is how long something may not do what it was told to before that is said.
	stuckAfter = time.Minute
	// hopelessAfter is when the stream gives it up and fails, to be started again.
	hopelessAfter = 3 * time.Minute
)

// stopwatch says since when something outside the loop is under way.
type stopwatch struct {
	from  atomic.Pointer[time.Time]
	spent atomic.Int64 // on what has ended
}

func (s *stopwatch) start() { now := time.Now(); s.from.Store(&now) }

func (s *stopwatch) stop() {
	if from := s.from.Swap(nil); from != nil {
		s.spent.Add(int64(time.Since(*from)))
	}
}

// total is how long it was under way in all.
func (s *stopwatch) total(now time.Time) time.Duration {
	spent := time.Duration(s.spent.Load())
	if from := s.from.Load(); from != nil {
		spent += now.Sub(*from)
	}
	return spent
}

// watchdog looks after what the loop waits for and cannot end by itself. Times are those of its own looks: a
// process that was stopped for a while has not waited, and must not fail when it goes on.
type watchdog struct {
	looked time.Time
	poll   suspicion
	commit suspicion // a commit that does not return
	fails  suspicion // commits that return with errors
	last   error     // of fails
}

// suspicion is that of one thing that should move.
type suspicion struct {
	of    *time.Time // tells one wait from the next
	since time.Time  // of the loop's looks
	said  bool
}

// holds notes that a wait goes on, and returns for how long it was seen to.
func (s *suspicion) holds(of *time.Time, now time.Time) time.Duration {
	if s.since.IsZero() || s.of != of {
		*s = suspicion{of: of, since: now}
	}
	return now.Sub(s.since)
}

func (s *suspicion) clear() { *s = suspicion{} }

// watch looks whether polls and commits return, and returns what does not.
func (l *loop) watch() error {
	w := &l.dog
	if !w.looked.IsZero() && l.now.Sub(w.looked) > 3*lookEvery { // nobody ran
		w.poll.clear()
		w.commit.clear()
		w.fails.clear()
	}
	w.looked = l.now
	return cmp.Or(l.watchPoll(), l.watchCommit(), l.watchFails())
}

func (l *loop) watchPoll() error {
	from := l.s.polling.from.Load()
	if from == nil || l.now.Sub(*from) < pollTurn {
		l.dog.poll.clear()
		return nil
	}
	l.s.assigned.interrupt()
	return l.stuck(&l.dog.poll, from, StallPoll, "a poll of the source does not return, although it was told to")
}

func (l *loop) watchCommit() error {
	from := l.s.committing.from.Load()
	if from == nil || l.now.Sub(*from) < l.commitMost() {
		l.dog.commit.clear()
		return nil
	}
	return l.stuck(&l.dog.commit, from, StallCommit, "a commit does not return, although its time is up")
}

// commitMost is how long a commit may take.
func (l *loop) commitMost() time.Duration {
	if l.tx != nil {
		return max(commitTimeout, l.tx.timeout)
	}
	return commitTimeout
}

// stuck says and counts what was seen to stand still for a minute, and fails the stream after three.
func (l *loop) stuck(s *suspicion, of *time.Time, what Stall, words string) error {
	seen := s.holds(of, l.now)
	if seen < stuckAfter {
		return nil
	}
	err := fmt.Errorf("%s for %v%s", words, seen.Round(time.Second), l.places())
	if !s.said {
		s.said = true
		l.stalled(what, err)
	}
	if seen >= hopelessAfter {
		l.fail(&FailedError{Reason: ReasonStalled, Err: err})
	}
	return err
}

// watchFails looks after commits that fail again and again. They are no failure of the stream: it goes on, and
// what it has done will be done again after a restart.
func (l *loop) watchFails() error {
	f := &l.dog.fails
	if l.nothingToKeep() {
		f.clear()
	}
	if f.since.IsZero() || l.now.Sub(f.since) < stuckAfter {
		return nil
	}
	err := fmt.Errorf("positions are not kept for %v%s: %w", l.now.Sub(f.since).Round(time.Second), l.places(), l.dog.last)
	if !f.said {
		f.said = true
		l.stalled(StallCommit, err)
	}
	return err
}

// nothingToKeep reports whether no commit is due: nothing is finished that is not committed, though something may be under way.
// What a commit failed for is another worker's then, and no later one would tell that commits go through again.
func (l *loop) nothingToKeep() bool {
	if len(l.rewind.offsets) > 0 {
		return false
	}
	for p := range l.parts {
		if p.ahead() {
			return false
		}
	}
	return true
}

// noteCommit notes how a commit went.
func (l *loop) noteCommit(err error) {
	if err == nil || errors.Is(err, ErrAssignmentLost) && len(l.parts) == 0 {
		l.dog.fails.clear()
		return
	}
	l.dog.last = err
	l.dog.fails.holds(nil, l.now)
}

func (l *loop) stalled(what Stall, err error) {
	l.s.metrics.stalls.WithLabelValues(string(what)).Inc()
	args := []any{"reason", string(what), "err", err}
	if p := l.behind(); p != nil {
		args = append(args, slog.String("topic", p.tp.Topic), slog.Any("partition", p.tp.Partition), slog.Int64("offset", p.tracker.position()))
	}
	l.s.log.Warn("something stands still", args...)
}

// places names a partition that this holds up.
func (l *loop) places() string {
	p := l.behind()
	if p == nil {
		return ""
	}
	return fmt.Sprintf(" (%d partitions are held, topic %q partition %d at offset %d)", len(l.parts), p.tp.Topic, p.tp.Partition, p.tracker.position())
}

// behind returns the partition whose first unfinished record is the oldest, or one of them where nothing is read.
func (l *loop) behind() *partition {
	var found *partition
	oldest := int64(0)
	for p := range l.parts {
		ms, ok := p.tracker.oldest()
		switch {
		case found == nil, ok && (oldest == 0 || ms < oldest),
			!ok && oldest == 0 && (p.tp.Topic < found.tp.Topic || p.tp.Topic == found.tp.Topic && p.tp.Partition < found.tp.Partition):
			found = p
			if ok {
				oldest = ms
			}
		}
	}
	return found
}
