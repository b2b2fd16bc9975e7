package streammanager

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/window"
)

// grace is what a call may run over its deadline before it is abandoned.
const grace = 2 * time.Second

// dispatchClosed turns windows that closed into batches.
func (l *loop) dispatchClosed() {
	for closed := l.windows.Take(); len(closed) > 0; closed = l.windows.Take() {
		l.dispatch(closed)
		l.closeEarly() // what was given up freed its lane
	}
}

func (l *loop) dispatch(closed []window.Closed[*unit]) {
	for _, c := range closed {
		l.s.metrics.closed.WithLabelValues(string(c.Reason)).Inc()
		l.s.metrics.batchEvents.Observe(float64(len(c.Items)))
		b := &batch{keys: make(map[string]*keyState, 1), dispatched: l.now, open: len(c.Items)}
		for i := range c.Items {
			u := c.Items[i].Value
			b.units = append(b.units, u)
			u.state = unitRunning
			u.part.running++
			l.join(b, u)
		}
		l.windows.Recycle(c.Items)
		for _, u := range b.units {
			if slices.Contains(u.ks.gaps, u.part) {
				l.unitDone(u) // one before it stays unfinished, so must it
				continue
			}
			f := &flow{u: u, ev: u.ev}
			u.flows = []*flow{f}
			u.open = 1
			if u.pass {
				f.step, f.out = len(l.s.steps), u.passed
				l.endFlow(f)
				continue
			}
			l.ready(f)
		}
		l.settleBatch(b)
	}
}

// join adds u to the state of its key in b.
func (l *loop) join(b *batch, u *unit) {
	loose := u.loose || l.s.cfg.Order == OrderNone
	if loose {
		u.ks = &keyState{b: b, loose: true, units: []*unit{u}, left: 1}
		return
	}
	ks := b.keys[u.key]
	if ks == nil {
		ks = &keyState{b: b, key: u.key, gaps: l.gapped[u.key]}
		b.keys[u.key] = ks
	}
	u.ks = ks
	ks.units = append(ks.units, u)
	ks.left++
}

// ready queues a flow for a worker, behind the flow of its key that is at work if calls must not overlap.
func (l *loop) ready(f *flow) {
	ks := f.u.ks
	if l.s.cfg.Order == OrderKeySerial && !ks.loose {
		if ks.active > 0 {
			f.state = flowSerial
			ks.serial = append(ks.serial, f)
			return
		}
		ks.active++
	}
	f.state = flowReady
	ks.b.active++
	l.fresh.push([]*flow{f})
}

// leaveWork says that f needs no worker any more, for now or for good.
func (l *loop) leaveWork(f *flow) {
	ks := f.u.ks
	if l.s.cfg.Order != OrderKeySerial || ks.loose {
		return
	}
	ks.active--
	for ks.active == 0 && len(ks.serial) > 0 {
		next := ks.serial[0]
		ks.serial = ks.serial[1:]
		switch {
		case next.state != flowSerial:
		case l.leftAlone(next.u): // behind a purge of the queue nothing would find it there
			l.giveUp(next)
		default:
			l.ready(next)
		}
	}
}

func (l *loop) limitOfWorkers() int { return l.workers + l.hung }

// start hands waiting work to idle workers: what was called before goes first.
func (l *loop) start() {
	for l.mode != ended {
		lent := l.busy >= l.limitOfWorkers()
		if lent && !l.lends() {
			return
		}
		var fs []*flow
		switch {
		case lent:
			fs = l.eldest().pop()
		case !l.again.empty():
			fs = l.again.pop()
		case !l.roomForCalls():
			return
		case !l.fresh.empty():
			fs = l.fresh.pop()
		case len(l.turn) > 0:
			l.startInline()
			continue
		default:
			return
		}
		fs = l.wanted(fs)
		if len(fs) > 0 {
			l.startCall(fs)
		}
	}
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

// wanted leaves out the flows of partitions that were taken away meanwhile.
func (l *loop) wanted(fs []*flow) []*flow {
	kept := fs[:0]
	for _, f := range fs {
		if f.state != flowReady {
			continue
		}
		if l.leftAlone(f.u) || f.u.failure != nil {
			f.u.ks.b.active--
			l.giveUp(f)
			continue
		}
		kept = append(kept, f)
	}
	if len(kept) == 0 && len(fs) > 0 {
		l.settleBatch(fs[0].u.ks.b)
	}
	return kept
}

// leftAlone reports whether nothing new may be started for u.
func (l *loop) leftAlone(u *unit) bool {
	return !u.part.live.Load() || u.part.revoking || l.failure != nil || u.state == unitFinished
}

func (l *loop) startCall(fs []*flow) {
	st := l.s.steps
	c := &call{flows: fs, batchStep: fs[0].step < len(st) && st[fs[0].step].Batch != nil && fs[0].attempts != nil}
	for _, f := range fs {
		f.state = flowRunning
	}
	l.launch(c, fs[0].step)
}

func (l *loop) launch(c *call, step int) {
	c.results = make([]result, len(c.flows))
	l.called += len(c.flows)
	c.ctx, c.cancel = context.WithCancel(l.s.callCtx)
	if c.inline == nil {
		c.room = &room{a: l.s.room, call: c, order: firstRead(c.flows)}
		c.ctx = event.WithRoom(c.ctx, c.room)
	}
	c.at.Store(int32(step))
	l.busy++
	l.calls[c] = true
	if !l.s.submit(func() { worker{l.s}.run(c) }) {
		l.fail(errors.New("worker pool refused a call; this is a fault of the program"))
		return
	}
	if step < len(l.s.steps) && c.inline == nil {
		if soonest := l.soonestTimeout(step); soonest > 0 {
			c.timer = &timer{at: l.now.Add(soonest + grace), call: c}
			l.timers.add(c.timer)
		}
	}
}

// soonestTimeout is the shortest time after which a call that starts at step may hang: the worker goes on
// to later steps without telling.
func (l *loop) soonestTimeout(step int) time.Duration {
	soonest := time.Duration(0)
	for _, st := range l.s.steps[step:] {
		if st.Timeout > 0 && (soonest == 0 || st.Timeout < soonest) {
			soonest = st.Timeout
		}
	}
	return soonest
}
