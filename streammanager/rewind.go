package streammanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/a0c75104/enricher/event"
)

// rewinding takes the stream back to its committed offsets after a failure of the sink: every epoch ends,
// what is under way is answered and ignored, and after a wait the same partitions begin a new epoch.
type rewinding struct {
	active  bool
	at      time.Time // when the new epochs begin
	offsets map[TopicPartition]Position
	kept    map[TopicPartition]int64 // what was committed, which may be less
	pending map[TopicPartition]int   // events that are read again
	tries   int                      // failures without much success between them
	good    int                      // successes since the last one
	culprit event.Position           // of the last one
	there   int                      // how often in a row it was that one
}

// BeginsAnew is what the log says, for debugging, of a partition that is read again from its offset save for
// what is finished behind it.
const BeginsAnew = "partition begins anew"

// goodAgain is how many acknowledged events end the memory of earlier failures.
const goodAgain = 1000

func (r *rewinding) due(l *loop) time.Time {
	if !r.active || l.leaving > 0 || l.mode != working || l.tx != nil && l.tx.state != txAborted {
		return time.Time{}
	}
	return r.at
}

// begin has the epochs of now end, and new ones begin at the time given.
func (r *rewinding) begin(at time.Time) {
	r.active, r.at = true, at
	r.offsets, r.kept, r.pending = map[TopicPartition]Position{}, map[TopicPartition]int64{}, map[TopicPartition]int{}
}

func (r *rewinding) progress(l *loop) {
	if r.tries == 0 {
		return
	}
	if r.good++; r.good >= goodAgain {
		r.tries, r.good = 0, 0
		l.s.single(false)
	}
}

// blame notes the event whose record was refused, and names it once it is refused again and again: what is sent is
// one record at a time by then, so that it is this one.
func (r *rewinding) blame(at event.Position, err error) error {
	if r.tries == 1 || !samePlace(at, r.culprit) {
		r.culprit, r.there = at, 0
	}
	if r.there++; r.there < mostAtOnePlace {
		return err
	}
	return fmt.Errorf("the event at %s is refused for the %d. time in a row: %w", where(at), r.there, err)
}

// sinkFailed stops the dispatch and goes back, or ends the stream where the source cannot.
func (l *loop) sinkFailed(u *unit, err error) {
	if l.failure != nil || l.rewind.active {
		return
	}
	if l.s.rewinder == nil {
		l.fail(failed(ReasonSink, fmt.Errorf("writing to the sink: %w", err)))
		return
	}
	if l.mode == draining && !l.until.IsZero() {
		l.until = l.now // what is not written stays uncommitted
		return
	}
	l.mode = working // a bounded source that had ended is read again
	r := &l.rewind
	r.tries++
	r.good = 0
	err = r.blame(u.ev.Position(), err)
	wait := min(time.Minute, 100*time.Millisecond<<min(r.tries, 12))
	what := "sink failed"
	if known := (*FailedError)(nil); errors.As(err, &known) && known.Reason == ReasonTransaction {
		what = "transaction lost" // the sink is well
	}
	l.s.log.Error(what+": going back to the committed offsets", "err", err, "again_in", wait)
	l.s.setTrouble(fmt.Errorf("%s: %w", what, err))
	l.s.metrics.rewinds.Inc()
	l.s.single(r.tries > 1)
	if l.tx != nil {
		l.abort(txSink, wait)
		return
	}
	r.begin(l.now.Add(wait))
	for p := range l.parts {
		if p.revoking {
			continue
		}
		r.offsets[p.tp], r.kept[p.tp], r.pending[p.tp] = p.tracker.snapshot(), p.committed, p.notReturned()
		l.endEpoch(p)
	}
}

// settleRewind begins the new epochs when everything sent was answered and the wait is over.
func (l *loop) settleRewind() {
	r := &l.rewind
	if !r.active || l.leaving > 0 || l.now.Before(r.at) || l.mode != working || l.tx != nil && l.tx.state != txAborted {
		return
	}
	r.active = false
	if l.tx != nil {
		l.openTransaction()
	}
	l.s.emitter.broken.Store(false)
	l.s.setTrouble(nil)
	if len(r.offsets) == 0 {
		return
	}
	var parts []*partition
	for tp, at := range r.offsets {
		p := l.s.assigned.add(tp, at)
		p.committed, p.pending, p.rereads = r.kept[tp], r.pending[tp], r.pending[tp]
		l.dirty = true
		l.s.log.Debug(BeginsAnew, "topic", tp.Topic, "partition", tp.Partition, "offset", at.Offset, "finished", at.Finished)
		l.parts[p] = struct{}{}
		parts = append(parts, p)
	}
	l.s.assigned.publishRewound(parts)
	r.offsets = nil
	l.commit() // what was finished before: a sink that goes on failing leaves no time for it between two ticks
}
