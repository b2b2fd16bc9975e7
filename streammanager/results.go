package streammanager

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/a0c75104/enricher/event"
)

// returned takes a call back from its worker.
func (l *loop) returned(c *call) {
	c.returned = true
	c.cancel()
	defer func() { c.flows, c.results = nil, nil }() // the pool may keep the task, and with it the call, for long
	if c.timer != nil {
		l.timers.remove(c.timer) // it would keep the call and its events until it is due
	}
	l.busy--
	delete(l.calls, c)
	if c.abandoned {
		l.hung--
		l.s.resize(l.limitOfWorkers())
		return
	}
	if c.inline != nil {
		l.returnedInline(c)
		return
	}
	b := c.flows[0].u.ks.b
	b.active -= len(c.flows)
	l.called -= len(c.flows)
	var waiting []*flow
	latest := l.now
	for i, f := range c.flows {
		if at, waits := l.apply(f, &c.results[i]); waits {
			waiting = append(waiting, f)
			if at.After(latest) {
				latest = at
			}
		}
	}
	if len(waiting) > 0 {
		t := &timer{at: latest, flows: waiting}
		l.timers.add(t)
		l.listen(t, c)
	}
	l.returnRoom(c)
	l.settleBatch(b)
}

// listen has a wait end when its bell rings. Events that were called together wait for the latest of their waits.
func (l *loop) listen(t *timer, c *call) {
	if len(c.results) > 1 {
		return
	}
	if hold, ok := errors.AsType[*event.HoldError](c.results[0].err); ok && hold.Bell != nil {
		hold.Bell.Listen(func() { l.s.completions.send(completion{rung: t}) })
	}
}

// apply takes the result of one flow. It reports when the flow is to be tried again, if it is.
func (l *loop) apply(f *flow, r *result) (time.Time, bool) {
	u := f.u
	if u.state != unitRunning {
		f.state = flowEnded
		l.leaveWork(f)
		return time.Time{}, false
	}
	if u.failure != nil || !u.part.live.Load() {
		l.giveUp(f)
		return time.Time{}, false
	}
	switch {
	case r.err != nil:
		return l.applyError(f, r)
	case r.ended:
		l.leaveWork(f)
		l.fork(f, r)
	case r.events != nil:
		l.derive(f, r)
	default: // reached a BatchFunc
		f.ev, f.step, f.attempts = r.ev, r.step, r.tries
		if f.attempts == nil {
			f.attempts = event.NewAttempts(l.now)
		}
		f.state = flowArrived
		l.holdEvent(f)
		l.leaveWork(f)
		u.ks.b.arrived = append(u.ks.b.arrived, f)
	}
	return time.Time{}, false
}

// fork ends a flow with no, one or (chains without calls aside, only through derive) several outputs.
func (l *loop) fork(f *flow, r *result) {
	if len(r.records) == 0 {
		l.remove(f)
		l.endFlow(f)
		return
	}
	f.out = &r.records[0]
	l.countOutput(f)
	l.endFlow(f)
}

// countOutput adds an output to the limits.
func (l *loop) countOutput(f *flow) {
	n := recordSize(f.out)
	f.u.size += n
	f.u.part.bytes += n
	l.bytes += n
}

// derive puts the events that a function made of one in its place.
func (l *loop) derive(f *flow, r *result) {
	u := f.u
	if err := tooMuch(len(u.flows)-1+len(r.events), 0); err != nil {
		u.failure = l.s.failure(u, err, l.s.steps[r.step-1].Name, 1, 0)
		l.giveUp(f)
		return
	}
	made := make([]*flow, len(r.events))
	for i, ev := range r.events {
		made[i] = &flow{u: u, ev: ev.Share(), step: r.step} // a function may return one event twice
	}
	for i, old := range u.flows {
		if old == f {
			u.flows = append(u.flows[:i:i], append(made, u.flows[i+1:]...)...)
			break
		}
	}
	f.state = flowEnded
	l.holdEvent(f)
	for _, m := range made {
		l.holdEvent(m)
	}
	u.open += len(made) - 1
	if l.s.cfg.Order == OrderKeySerial && !u.ks.loose {
		for _, m := range made {
			m.state = flowSerial
		}
		u.ks.serial = slices.Concat(made, u.ks.serial) // what was derived goes before the key's later events
		l.leaveWork(f)
		return
	}
	for _, m := range made {
		l.ready(m)
	}
}

// remove takes a flow without output out of its unit.
func (l *loop) remove(f *flow) {
	for i, old := range f.u.flows {
		if old == f {
			f.u.flows = append(f.u.flows[:i:i], f.u.flows[i+1:]...)
			return
		}
	}
}

// applyError finds out what an error means for the flow and its unit.
func (l *loop) applyError(f *flow, r *result) (time.Time, bool) {
	u := f.u
	name, limit := "sink", 1
	if r.step < len(l.s.steps) {
		name, limit = l.s.steps[r.step].Name, l.s.steps[r.step].Attempts
	}
	f.attempts = r.tries
	var fatal *event.FatalError
	if errors.As(r.err, &fatal) {
		l.giveUp(f)
		l.fail(fmt.Errorf("function %q at %s: %w", name, where(u.ev.Position()), r.err))
		return time.Time{}, false
	}
	var retry *event.RetryError
	var hold *event.HoldError
	again := errors.As(r.err, &retry) && f.attempts != nil && (limit < 0 || f.attempts.Number() < limit)
	if again || errors.As(r.err, &hold) && f.attempts != nil {
		at := l.now
		if again {
			f.attempts.Add(1)
			at = at.Add(max(0, retry.After))
		} else if hold.Until.After(at) {
			at = hold.Until
		}
		if u.part.revoking || l.failure != nil || l.mode == draining && !l.until.IsZero() && at.After(l.until) {
			l.giveUp(f)
			return time.Time{}, false
		}
		f.ev, f.step, f.state = r.ev, r.step, flowWaiting
		l.holdEvent(f)
		return at, true
	}
	attempts, status := 0, 0
	if f.attempts != nil {
		attempts, status = f.attempts.Number(), f.attempts.LastStatus()
	}
	u.failure = l.s.failure(u, r.err, name, attempts, status)
	l.giveUp(f)
	return time.Time{}, false
}

// giveUp ends a flow without output. Its unit failed, or becomes unfinished when its calls are back.
func (l *loop) giveUp(f *flow) {
	if f.state == flowEnded {
		return
	}
	wasWorking := f.state != flowArrived && f.state != flowSerial
	if f.state == flowSerial {
		f.state = flowEnded
	}
	l.endFlow(f)
	if wasWorking {
		l.leaveWork(f)
	}
}

// endFlow marks a flow as at its end, and the unit when it was the last.
func (l *loop) endFlow(f *flow) {
	f.state = flowEnded
	l.holdEvent(f)
	u := f.u
	u.open--
	if u.failure != nil || u.open > 0 && l.leftAlone(u) {
		// The other flows of a failed unit are not carried on.
		for _, other := range u.flows {
			if other.state != flowEnded && other.state != flowRunning && other.state != flowReady {
				waited := other.state == flowWaiting
				other.state = flowEnded
				l.holdEvent(other)
				u.open--
				if waited {
					l.leaveWork(other)
				}
			}
		}
	}
	if u.open == 0 {
		l.unitDone(u)
	}
}
