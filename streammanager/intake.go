package streammanager

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/window"
)

// read takes what the reader found.
func (l *loop) read(got reading) {
	l.granted, l.needs = false, got.needs
	l.takeTurns(got.turns)
	for tp, end := range got.watch {
		if p := l.s.assigned.current(tp); p != nil {
			p.seen, p.end = end, end
		}
	}
	for i := range got.items {
		l.admit(&got.items[i])
	}
	switch {
	case got.err == nil:
	case errors.Is(got.err, io.EOF):
		if l.mode == working && !l.rewind.active && !l.changed && !l.s.assigned.goesBack() { // after a rewind it is asked again
			l.s.log.Info("source has ended")
			l.mode = draining
		}
	case errors.Is(got.err, context.Canceled) && l.mode != working:
	default:
		l.fail(failed(ReasonSource, fmt.Errorf("reading from the source: %w", got.err)))
	}
}

// admit takes one delivered record.
func (l *loop) admit(it *readItem) {
	p := it.part
	if !p.live.Load() {
		return
	}
	number := p.tracker.deliver(it.offset, it.time)
	l.dirty = true
	l.enterTransaction(it.unit != nil)
	switch {
	case it.marker:
	case it.before:
		l.s.metrics.passOver()
	case p.hop != secondHop: // an event counts where it comes in
		l.s.metrics.read(p.tp.Topic)
	}
	if !it.marker && !it.before {
		l.meter.cameIn(it)
	}
	l.pend(p, it.unit != nil || it.dropped && l.tx != nil)
	if it.unit == nil {
		if it.dropped {
			l.tellDropped()
		}
		p.tracker.keep(number)
		p.tracker.finish(number)
		l.liftBarrier(p)
		return
	}
	u := it.unit
	u.number = number
	l.admitted++
	u.order = l.admitted
	l.events++
	l.bytes += u.size
	p.units++
	p.bytes += u.size
	if u.failure == nil && !u.pass && p.hop != firstHop {
		l.owe(u)
	}
	if p.revoking {
		l.abandonUnit(u)
		return
	}
	if p.barrier != nil {
		p.door = append(p.door, u)
		return
	}
	l.enter(u)
}

// enter brings an event to its place: its lane, the partition's queue, or, failed already, the emitter.
func (l *loop) enter(u *unit) {
	switch {
	case u.failure != nil:
		u.part.running++
		l.leave(u)
	case u.part.hop == firstHop:
		l.passOn(u)
	case l.s.inline:
		p := u.part
		p.queue = append(p.queue, u)
		if len(p.queue) == 1 && !p.busy {
			l.turn = append(l.turn, p)
		}
	case u.pass && l.s.partitionBy != nil:
		u.part.barrier = u
		l.barriers++
		l.windows.CloseHolding(u.part.id, window.ByBarrier)
		l.liftBarrier(u.part)
	default:
		before := l.windows.Add(l.now, window.Item[*unit]{
			Value: u, Key: u.key, Keyless: u.loose, Group: u.group, Partition: u.part.id, Size: u.size,
		})
		if before >= 0 && before != u.part.id {
			l.warnTwoPartitions(u, before)
		}
		l.dispatchClosed()
	}
}

// liftBarrier sends a tombstone on once all before it in its partition is finished.
func (l *loop) liftBarrier(p *partition) {
	if u := p.barrier; u != nil && u.state == unitQueued && p.tracker.isHead(u.number) {
		p.running++
		u.state = unitDone
		u.flows = []*flow{{u: u, ev: u.ev, state: flowEnded, out: u.passed}}
		l.leave(u)
	}
}

// openDoor lets in what was read behind a tombstone, up to the next one.
func (l *loop) openDoor(p *partition, in bool) {
	for p.barrier == nil && len(p.door) > 0 {
		u := p.door[0]
		p.door = p.door[1:]
		if in {
			l.enter(u)
		} else {
			l.abandonUnit(u)
		}
	}
}

// warnTwoPartitions says once that the order of a key hangs on this worker alone: its events are on two
// partitions. before is the partition of the event before u.
func (l *loop) warnTwoPartitions(u *unit, before int) {
	if l.warned || u.part.hop == secondHop {
		return
	}
	for p := range l.parts {
		if p.id == before && p.tp != u.part.tp {
			l.warned = true
			at := event.Position{Topic: u.part.tp.Topic, Partition: u.part.tp.Partition, Offset: u.offset} // as it is read: in a replay that of the event is another
			l.s.log.Warn("one key on two partitions: its order holds only within this worker, and only as read",
				"first", fmt.Sprintf("topic %q partition %d", p.tp.Topic, p.tp.Partition), "second", where(at))
			return
		}
	}
}
