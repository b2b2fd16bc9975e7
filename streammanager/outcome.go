package streammanager

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/a0c75104/enricher/event"
)

// The outcomes. The empty one is unfinished: the offset is not committed and will be read again.
const (
	outcomeEmitted = "emitted"
	outcomeDropped = "dropped"
	outcomeError   = "error"
	outcomeMoved   = "moved" // written to the repartition topic: its outcome is still to come
)

// unitDone notes that no function is at work on u any more, and hands on what is next of its key.
func (l *loop) unitDone(u *unit) {
	if u.state != unitRunning {
		return
	}
	u.state = unitDone
	l.settleOutputs(u)
	ks := u.ks
	ks.b.open--
	for ks.release < len(ks.units) && ks.units[ks.release].state >= unitDone {
		next := ks.units[ks.release]
		ks.release++
		l.hand(next)
	}
}

// hand sends a unit whose turn has come to the emitter, or gives it its outcome.
func (l *loop) hand(u *unit) {
	switch {
	case u.state == unitFinished:
	case !u.part.live.Load() || u.failure == nil && u.gaveUp() || slices.Contains(u.ks.gaps, u.part):
		if !u.ks.loose {
			u.ks.gaps = append(u.ks.gaps, u.part)
		}
		u.part.running--
		l.finish(u, "")
	case u.failure == nil && len(u.flows) == 0:
		u.part.running--
		l.finish(u, outcomeDropped)
	default:
		l.leave(u)
	}
}

// gaveUp reports whether a flow ended without an output and without being dropped: dropped flows are
// taken out of the unit.
func (u *unit) gaveUp() bool {
	for _, f := range u.flows {
		if !f.hasOutput() {
			return true
		}
	}
	return false
}

func (f *flow) hasOutput() bool { return f.state == flowEnded && f.out != nil }

// leave gives a unit to the emitter: its outputs or its error event.
func (l *loop) leave(u *unit) {
	u.state = unitLeaving
	if err := l.condemnation(u); err != nil && u.failure == nil {
		u.failure = l.s.failure(u, err, u.taker(), 0, 0)
	}
	if u.failure != nil {
		l.leaveFailed(u)
		return
	}
	if u.moves() {
		l.leaving++
		l.emit(emission{u: u, records: []Record{u.moved}, moves: true})
		return
	}
	records := make([]Record, len(u.flows))
	clean := false
	for i, f := range u.flows {
		records[i] = *f.out
		clean = clean || hasErrorHeaders(f.out.Headers)
	}
	if clean {
		for i := range records {
			records[i].Headers = withoutErrorHeaders(records[i].Headers)
		}
	}
	l.leaving++
	l.meter.handedOn(u, len(records))
	l.emit(emission{u: u, records: records})
}

func (l *loop) emit(em emission) {
	if l.tx != nil {
		em.ctx = l.tx.ctx
	}
	l.s.emissions.send(em)
}

// sayAgain is how long error events of one kind are counted before the next of them is said as a warning.
const sayAgain = time.Minute

// mostKinds bounds the kinds that are told apart; functions may make up types.
const mostKinds = 200

// kind is what error events have in common that come of one cause.
type kind struct {
	function string
	typ      event.Type
}

// said is when an error event of a kind was last said, and how many came since.
type said struct {
	at    time.Time
	since int
}

// sayFailed logs an error event: the first of its kind, and one a minute, as a warning.
func (l *loop) sayFailed(u *unit) {
	f := u.failure
	k, pos := kind{f.Function, f.Type}, u.ev.Position()
	if _, known := l.said[k]; !known && len(l.said) >= mostKinds {
		k = kind{} // functions make types up without end: what is beyond is one kind
	}
	last := l.said[k]
	level := slog.LevelDebug
	if l.now.Sub(last.at) >= sayAgain { // the zero time is long ago
		level = slog.LevelWarn
	}
	l.s.log.Log(l.s.hardCtx, level, "error event", "type", string(f.Type), "function", f.Function, "topic", pos.Topic, "partition", pos.Partition,
		"offset", pos.Offset, "err", f.Message, "more_of_this_kind_before", last.since)
	if level == slog.LevelWarn {
		last = said{at: l.now}
	} else {
		last.since++
	}
	l.said[k] = last
}

// leaveFailed sends the error event, or says what on_error wants where there is no error sink.
func (l *loop) leaveFailed(u *unit) {
	if l.s.errorSink != nil {
		l.sayFailed(u)
		l.leaving++
		l.emit(emission{u: u, failure: u.failure})
		return
	}
	u.part.running--
	f, pos := u.failure, u.ev.Position()
	if l.s.cfg.OnError == OnErrorDrop {
		l.s.log.Warn("event dropped: it failed and there is no error sink", "topic", pos.Topic, "partition", pos.Partition,
			"offset", pos.Offset, "type", string(f.Type), "function", f.Function, "err", f.Message)
		l.finish(u, outcomeError)
		return
	}
	if u.ks == nil {
		u.part.gap = l.s.inline
	} else if !u.ks.loose {
		u.ks.gaps = append(u.ks.gaps, u.part)
	}
	l.finish(u, "")
	l.fail(event.Fatal(fmt.Errorf("event at %s failed in %s: %s: %s (set error_sink, or on_error: drop)", where(u.ev.Position()), f.Function, f.Type, f.Message)))
}

// acked takes the answer of a sink for a unit.
func (l *loop) acked(u *unit, c *completion) {
	err, checked := c.err, c.checked
	l.leaving--
	u.part.running--
	if u.failure == nil && !u.moves() {
		l.meter.wrote(u, c.written)
	}
	if l.tx == nil && u.failure == nil && !u.moves() {
		l.s.metrics.written(c.written) // also where the assignment has ended: they are in the topic
	}
	var fatal *event.FatalError
	var reject *event.RejectError
	switch {
	case err == nil && !u.part.live.Load():
		l.finish(u, "")
	case err == nil && u.failure != nil:
		l.finish(u, outcomeError)
	case err == nil && u.moves():
		l.finish(u, outcomeMoved)
	case err == nil:
		l.finish(u, outcomeEmitted)
	case errors.Is(err, errEpochEnded):
		l.finish(u, "")
	case errors.As(err, &fatal):
		l.finish(u, "")
		l.fail(err)
	case errors.As(err, &reject) && !u.part.live.Load():
		l.finish(u, "")
	case errors.As(err, &reject) && u.failure == nil && l.tx != nil && !checked:
		l.condemn(u, err)
	case errors.As(err, &reject) && u.failure == nil:
		u.failure = l.s.failure(u, err, u.taker(), 0, 0)
		u.part.running++
		l.leave(u)
	case errors.As(err, &reject) && u.failure != nil:
		l.finish(u, "")
		l.fail(event.Fatal(fmt.Errorf("error event of %s was refused by the error sink: %w", where(u.ev.Position()), err)))
	default:
		l.finish(u, "")
		l.sinkFailed(u, err)
	}
}

// finish gives a unit its outcome, room back to the limits, and its key's lane to the next events.
func (l *loop) finish(u *unit, outcome string) {
	if u.state == unitFinished {
		return
	}
	u.state = unitFinished
	l.settleOutputs(u)
	p := u.part
	l.events--
	l.bytes -= u.size
	p.units--
	p.bytes -= u.size
	if outcome != "" && p.live.Load() {
		u.settled = true
		l.keep(u)
		p.tracker.finish(u.number)
		if l.tx == nil {
			p.pending--
		}
		l.dirty = true
		l.tell(toldOf(u, outcome, l.now.Sub(u.readAt)))
	}
	if p.barrier == u {
		p.barrier = nil
		l.barriers--
		l.openDoor(p, outcome != "")
	}
	l.liftBarrier(p)
	if b := p.barrier; b != nil && b.state == unitQueued && p.units == 1+len(p.door) {
		l.abandonUnit(b) // something before it stays unfinished, so must it and all behind it
	}
	l.freeKey(u.ks)
	u.flows = nil
}

// keep lets what is finished be passed over when it is read again. Of a key that is an event only once all
// before it are finished: they may be sent again, and would then stand behind it for good. Events of a chain
// without calls leave in the order of their partition, of which nothing knows the keys; little would be saved.
func (l *loop) keep(u *unit) {
	ks := u.ks
	if ks == nil {
		if !l.s.inline && u.part.hop != firstHop || u.loose || l.s.cfg.Order == OrderNone {
			u.part.tracker.keep(u.number)
		}
		return
	}
	for ; ks.kept < len(ks.units) && ks.units[ks.kept].settled; ks.kept++ {
		next := ks.units[ks.kept]
		next.part.tracker.keep(next.number)
	}
}

func toldOf(u *unit, outcome string, took time.Duration) told {
	t := told{outcome: outcome, took: took}
	switch outcome {
	case outcomeEmitted:
		t.outputs = len(u.flows)
	case outcomeError:
		t.failure = u.failure
	}
	return t
}

// freeKey frees the lane of a key when the last of its events in the batch has its outcome.
func (l *loop) freeKey(ks *keyState) {
	if ks == nil {
		return
	}
	ks.left--
	if ks.left == 0 && !ks.freed {
		ks.freed = true
		if !ks.loose {
			if len(ks.gaps) > 0 && l.mode == draining {
				if l.gapped == nil {
					l.gapped = map[string][]*partition{}
				}
				l.gapped[ks.key] = ks.gaps
			}
			l.windows.Free(l.now, ks.key)
		}
	}
}

// abandonUnit makes a unit unfinished that is in no call and not on its way to a sink.
func (l *loop) abandonUnit(u *unit) { l.finish(u, "") }
