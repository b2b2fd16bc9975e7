package streammanager

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// partition is one assignment of a partition to this stream: one epoch. A new assignment is a new
// partition value, so that two pointers tell two epochs apart.
type partition struct {
	tp    TopicPartition
	hop   hop
	epoch int64
	id    int // unique in the stream's life; parts the windows

	live atomic.Bool // false once the epoch has ended; the loop writes it

	held atomic.Bool // paused: what was fetched of it before is not admitted; the loop writes it

	// passing is true while tombstones of an input partition go to the sink, and false while its events go to
	// the repartition topic; the loop writes it.
	passing atomic.Bool

	// The reader's.
	next   int64   // offset below which records were delivered already
	before []Range // what was finished when p was assigned, from next on

	// All below is the loop's.
	tracker   tracker
	committed int64    // last position that was committed or read from
	base      Position // of the last commit, or read from: where a transaction that is aborted goes back to
	pictured  uint64   // version of the tracker that was committed
	units     int      // unfinished events
	pending   int      // read, and without an outcome that counted: given up ones too, and those of a transaction that is not committed
	rereads   int      // those of pending that an epoch before this one read
	bytes     int64    // their bytes
	owing     int      // those whose outputs are not known yet
	queue     []*unit  // of a chain without calls: what waits for the partition's task
	busy      bool     // of a chain without calls: the partition's task runs
	gap       bool     // of a chain without calls: an event ended the stream, and nothing behind it may overtake it
	barrier   *unit    // a tombstone that everything behind it waits for
	door      []*unit  // what was read behind the barrier
	paused    bool
	turning   bool // waits between events and tombstones, of an input partition before a repartition topic
	revoking  bool
	seen      int64     // end of the log when it last answered a poll, -1 unknown
	end       int64     // end of the log as it was last heard of, -1 unknown
	at        int64     // the tracker's position when it was last looked at
	moved     time.Time // when that had changed, or nothing was left to do
	stalled   bool
	running   int // units in calls, or called and not yet acknowledged
}

// assignment holds the live partitions, for the reader and the committer beside the loop.
type assignment struct {
	through repartition

	// turn keeps a new assignment from coming between the look at the live partitions and the source's
	// going back, which would take the new one to the place of the old. It is taken before mu.
	turn sync.Mutex

	mu     sync.Mutex // guards all below
	epochs int64
	ids    int
	parts  map[TopicPartition]*partition
	behind map[TopicPartition]int64 // where the source must go back to before it is polled again
	wake   context.CancelFunc       // ends the poll that waits, if one does
	hushed bool                     // polls end at once
}

func newAssignment(through repartition) *assignment {
	return &assignment{through: through, parts: map[TopicPartition]*partition{}, behind: map[TopicPartition]int64{}}
}

// add starts a new epoch of tp.
func (a *assignment) add(tp TopicPartition, start Position) *partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epochs++
	a.ids++
	p := &partition{
		tp: tp, hop: a.through.hop(tp), epoch: a.epochs, id: a.ids, next: start.Offset, before: start.Finished,
		base: start, committed: start.Offset, seen: -1, end: -1, tracker: newTracker(start),
	}
	p.live.Store(true)
	return p
}

// publish lets the reader accept the records of p.
func (a *assignment) publish(ps []*partition) {
	a.turn.Lock()
	defer a.turn.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range ps {
		if p.live.Load() { // it may have been taken away meanwhile
			a.parts[p.tp] = p
		}
	}
}

// publishRewound does so for partitions that the source must deliver again. The reader alone takes the
// source back, between two polls: a poll that ran beside it could deliver from either place. One that the source has given
// anew meanwhile stays: that it was lost before is on its way to the loop, which then ends the one of ps.
func (a *assignment) publishRewound(ps []*partition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range ps {
		if p.live.Load() && a.parts[p.tp] == nil {
			a.parts[p.tp], a.behind[p.tp] = p, p.next
		}
	}
	if a.wake != nil {
		a.wake()
	}
}

// rewind takes the source back to where the reader is in those of ps that are still live.
func (a *assignment) rewind(source Rewinder, ps map[TopicPartition]*partition) {
	a.turn.Lock()
	defer a.turn.Unlock()
	to := map[TopicPartition]int64{}
	a.mu.Lock()
	for tp, p := range ps {
		if p != nil && a.parts[tp] == p {
			to[tp] = p.next
		}
	}
	a.mu.Unlock()
	if len(to) > 0 {
		source.Rewind(to)
	}
}

// beforePoll returns the live partitions into dst and where the source must go back to first. wake is
// called when that changes during the poll.
func (a *assignment) beforePoll(dst map[TopicPartition]*partition, wake context.CancelFunc) map[TopicPartition]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wake = wake
	if a.hushed {
		wake()
	}
	clear(dst)
	maps.Copy(dst, a.parts)
	behind := a.behind
	a.behind = map[TopicPartition]int64{}
	for tp := range behind {
		if a.parts[tp] == nil {
			delete(behind, tp)
		}
	}
	return behind
}

// hush ends the poll that waits, and each further one at once, until it is let go on.
func (a *assignment) hush(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hushed = on
	if on && a.wake != nil {
		a.wake()
	}
}

// interrupt ends the poll that waits, if one does.
func (a *assignment) interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wake != nil {
		a.wake()
	}
}

// goesBack reports whether the source is taken back before the next poll. What an earlier one said of the
// end holds no more then.
func (a *assignment) goesBack() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.behind) > 0
}

// end finishes the epoch of p.
func (a *assignment) end(p *partition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.live.Store(false)
	if a.parts[p.tp] == p {
		delete(a.parts, p.tp)
		delete(a.behind, p.tp)
	}
}

// snapshot returns the live partitions by name into dst.
func (a *assignment) snapshot(dst map[TopicPartition]*partition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(dst)
	maps.Copy(dst, a.parts)
}

// current returns the live epoch of tp, nil if it is not assigned.
func (a *assignment) current(tp TopicPartition) *partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parts[tp]
}
