package streammanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/window"
)

// completion is what workers, emitter and committer send back: exactly one field group is set.
type completion struct {
	call   *call
	acked  *unit
	err    error // of acked
	commit *committed
}

// loop owns lanes, windows, trackers and limits. Its methods run on one goroutine and never block: no
// produce, commit, waiting submit or expression of a user happens in them.
type loop struct {
	// gapped holds the keys that have an unfinished event in a drain: what waits behind it stays unfinished too.
	gapped map[string][]*partition

	s       *Stream
	windows *window.Windows[*unit]
	parts   map[*partition]struct{} // live epochs
	timers  timers
	fresh   queue // flows that wait for a worker
	again   queue // those that were called before
	turn    []*partition
	now     time.Time

	events, busy, leaving int
	bytes                 int64
	hung                  int            // calls that were abandoned and have not returned
	calls                 map[*call]bool // calls that run

	granted   bool
	needs     int64
	committal bool // a commit is on its way
	dirty     bool
	revokes   []*revocation

	mode    mode
	until   time.Time // of a drain: when what is left is given up; zero: never
	failure error
	rewind  rewinding

	limitedAt time.Time // since when a limit stops the polling
}

type mode uint8

const (
	working  mode = iota
	draining      // no polls; what is open is finished
	ended         // leave the loop
)

func newLoop(s *Stream) (*loop, error) {
	w, err := window.New[*unit](s.window, s.cfg.Order != OrderNone)
	if err != nil {
		return nil, err
	}
	return &loop{s: s, windows: w, parts: map[*partition]struct{}{}, calls: map[*call]bool{}}, nil
}

// run works until everything is finished after a stop or the source's end, or something failed for good.
func (l *loop) run(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	commitTick := time.NewTicker(l.s.cfg.CommitInterval)
	defer commitTick.Stop()
	var control []func(*loop)
	var done []completion
	stop := ctx.Done()
	l.now = time.Now()
	for l.mode != ended {
		var got reading
		var read bool
		select {
		case <-stop:
			stop = nil
			l.drain(l.s.cfg.ShutdownTimeout)
		case <-l.s.control.notify:
		case <-l.s.completions.notify:
		case got = <-l.s.readings:
			read = true
		case <-commitTick.C:
			l.commit()
			l.observeLag()
		case <-tick.C:
		}
		l.now = time.Now()
		control = l.s.control.take(control)
		for _, do := range control {
			do(l)
		}
		done = l.s.completions.take(done)
		for i := range done {
			l.complete(&done[i])
		}
		if read {
			l.read(got)
		}
		l.expire()
		l.advance()
		l.rearm(tick)
	}
	return l.failure
}

// rearm sets the one timer to the earliest thing that is due.
func (l *loop) rearm(tick *time.Timer) {
	next, ok := l.windows.Next()
	if len(l.timers) > 0 && (!ok || l.timers[0].at.Before(next)) {
		next, ok = l.timers[0].at, true
	}
	if l.mode == draining && !l.until.IsZero() && (!ok || l.until.Before(next)) {
		next, ok = l.until, true
	}
	for _, r := range l.revokes {
		if !ok || r.deadline.Before(next) {
			next, ok = r.deadline, true
		}
	}
	if at := l.rewind.due(l); !at.IsZero() && (!ok || at.Before(next)) {
		next, ok = at, true
	}
	if !ok {
		tick.Stop()
		return
	}
	tick.Reset(max(0, next.Sub(l.now)))
}

// advance does all that the messages of this turn made possible.
func (l *loop) advance() {
	if l.mode == draining {
		l.windows.CloseAll(window.ByDrain)
	}
	l.dispatchClosed()
	l.start()
	l.fill()
	l.settleRevokes()
	l.settleRewind()
	if l.mode == draining {
		l.settleDrain()
	}
	l.grant()
	l.s.publish(l)
}

// fill closes windows early where a worker would stand idle.
func (l *loop) fill() {
	for l.busy < l.limitOfWorkers() && l.fresh.empty() && l.again.empty() {
		switch {
		case l.s.window.Eager && l.windows.CloseOldest(window.ByEager):
		case l.full() && l.windows.CloseOldest(window.ByLimits):
		default:
			return
		}
		l.dispatchClosed()
		l.start()
	}
}

func (l *loop) full() bool {
	lim := l.s.cfg.Limits
	return l.events >= lim.InFlightEvents || l.bytes >= lim.InFlightBytes || l.needs > 0
}

// grant lets the reader read, for as much as the limits have room.
func (l *loop) grant() {
	l.balance() // also while a poll waits: it may wait for a partition that is paused
	if l.granted || l.mode != working || l.rewind.active {
		return
	}
	g := grant{
		events: int(l.room(int64(l.events), int64(l.s.cfg.Limits.InFlightEvents))),
		bytes:  l.room(l.bytes, l.s.cfg.Limits.InFlightBytes), alone: l.events == 0,
	}
	blocked := g.events <= 0 || (!g.alone && (g.bytes <= 0 || g.bytes < l.needs)) || l.s.pauser == nil && l.uncommittedFull()
	if blocked {
		if l.limitedAt.IsZero() {
			l.limitedAt = l.now
		}
		return
	}
	if !l.limitedAt.IsZero() {
		l.s.metrics.paused.Add(l.now.Sub(l.limitedAt).Seconds())
		l.limitedAt = time.Time{}
	}
	l.granted, l.needs = true, 0
	l.s.grants <- g // holds one; the reader has answered the last
}

// read takes what the reader found.
func (l *loop) read(got reading) {
	l.granted, l.needs = false, got.needs
	for tp, end := range got.watch {
		if p := l.s.assigned.current(tp); p != nil {
			p.seen = end
		}
	}
	for i := range got.items {
		l.admit(&got.items[i])
	}
	switch {
	case got.err == nil:
	case errors.Is(got.err, io.EOF):
		l.s.log.Info("source has ended")
		l.drain(0)
	case errors.Is(got.err, context.Canceled) && l.mode != working:
	default:
		l.fail(fmt.Errorf("reading from the source: %w", got.err))
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
	if !it.marker {
		l.s.metrics.read(p.tp.Topic)
	}
	if it.unit == nil {
		if it.dropped {
			l.s.metrics.dropped()
		}
		p.tracker.finish(number)
		l.liftBarrier(p)
		return
	}
	u := it.unit
	u.number = number
	l.events++
	l.bytes += u.size
	p.units++
	p.bytes += u.size
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
	case l.s.inline:
		p := u.part
		p.queue = append(p.queue, u)
		if len(p.queue) == 1 && !p.busy {
			l.turn = append(l.turn, p)
		}
	case u.pass && l.s.partitionBy != nil:
		u.part.barrier = u
		l.windows.CloseHolding(u.part.id, window.ByBarrier)
		l.liftBarrier(u.part)
	default:
		l.windows.Add(l.now, window.Item[*unit]{
			Value: u, Key: u.key, Keyless: u.loose, Group: u.group, Partition: u.part.id, Size: u.size,
		})
		l.dispatchClosed()
	}
}

// liftBarrier sends a tombstone on once all before it in its partition is finished.
func (l *loop) liftBarrier(p *partition) {
	if u := p.barrier; u != nil && u.state == unitQueued && p.tracker.isHead(u.number) {
		p.running++
		u.state = unitDone
		rec := recordOf(u.ev)
		u.flows = []*flow{{u: u, ev: u.ev, state: flowEnded, out: &rec}}
		l.leave(u)
	}
}

// complete takes one message of a worker, the emitter or the committer.
func (l *loop) complete(c *completion) {
	switch {
	case c.call != nil:
		l.returned(c.call)
	case c.acked != nil:
		l.acked(c.acked, c.err)
	case c.commit != nil:
		l.committal = false
		for p, pos := range c.commit.marks {
			p.committed = max(p.committed, pos)
		}
	}
}

// acked takes the answer of a sink for a unit.
func (l *loop) acked(u *unit, err error) {
	l.leaving--
	u.part.running--
	var fatal *event.FatalError
	var reject *event.RejectError
	switch {
	case err == nil && !u.part.live.Load():
		l.finish(u, "")
	case err == nil && u.failure != nil:
		l.s.metrics.failed(u.failure)
		l.rewind.progress(l)
		l.finish(u, outcomeError)
	case err == nil:
		l.s.metrics.written(len(u.flows))
		l.rewind.progress(l)
		l.finish(u, outcomeEmitted)
	case errors.Is(err, errEpochEnded):
		l.finish(u, "")
	case errors.As(err, &fatal):
		l.finish(u, "")
		l.fail(err)
	case errors.As(err, &reject) && u.failure == nil && u.part.live.Load():
		u.failure = l.s.failure(u, err, "sink", 0, 0)
		u.part.running++
		l.leave(u)
	case errors.As(err, &reject) && u.failure != nil:
		l.finish(u, "")
		l.fail(fmt.Errorf("error event of %s was refused by the error sink: %w", where(u.ev.Position()), err))
	default:
		l.finish(u, "")
		l.sinkFailed(err)
	}
}

// The outcomes. The empty one is unfinished: the offset is not committed and will be read again.
const (
	outcomeEmitted = "emitted"
	outcomeDropped = "dropped"
	outcomeError   = "error"
)

// finish gives a unit its outcome, room back to the limits, and its key's lane to the next events.
func (l *loop) finish(u *unit, outcome string) {
	if u.state == unitFinished {
		return
	}
	u.state = unitFinished
	p := u.part
	l.events--
	l.bytes -= u.size
	p.units--
	p.bytes -= u.size
	if outcome != "" && p.live.Load() {
		p.tracker.finish(u.number)
		l.dirty = true
		l.s.metrics.finished(outcome, l.now.Sub(u.readAt))
	}
	if p.barrier == u {
		p.barrier = nil
		l.openDoor(p, outcome != "")
	}
	l.liftBarrier(p)
	l.freeKey(u.ks)
	u.flows = nil
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

// fail ends the stream with an error: nothing more is started.
func (l *loop) fail(err error) {
	if l.failure == nil {
		l.failure = err
		l.s.log.Error("stream fails", "err", err)
	}
	l.drain(0)
	l.until = l.now
}
