package streammanager

import (
	"time"

	"github.com/a0c75104/enricher/event"
)

// expire does what is due: windows whose time is up, tries that waited, calls that hang.
func (l *loop) expire() {
	l.windows.Expire(l.now)
	for t := l.timers.due(l.now); t != nil; t = l.timers.due(l.now) {
		if t.call != nil {
			l.look(t)
			continue
		}
		l.retry(t.flows)
	}
}

// retry queues flows whose wait is over: those of a BatchFunc together, others each alone.
func (l *loop) retry(fs []*flow) {
	var group []*flow
	for _, f := range fs {
		if f.state != flowWaiting {
			continue
		}
		f.state = flowReady
		f.u.ks.b.active++
		if f.step < len(l.s.steps) && l.s.steps[f.step].Batch != nil {
			group = append(group, f)
			continue
		}
		l.again.push([]*flow{f})
	}
	if len(group) > 0 {
		l.again.push(group)
	}
}

// look abandons a call that runs on past its deadline and the grace time; Go cannot stop it.
func (l *loop) look(t *timer) {
	c := t.call
	if c.returned || c.abandoned {
		return
	}
	waits := c.room.waits() // for room, and its time stands still; asked first, since the end of a wait moves the deadline
	deadline, step := time.Duration(c.deadline.Load()), int(c.at.Load())
	at := l.s.started.Add(deadline)
	if step == len(l.s.steps) {
		deadline = 0 // it is past the last of them
	}
	if deadline == 0 || waits || at.After(l.now) {
		// The worker is in a later step, or between two.
		t.at = at
		if deadline == 0 || waits {
			t.at = l.now.Add(grace)
		}
		l.timers.add(t)
		return
	}
	c.abandoned = true
	c.cancel()
	l.returnRoom(c)
	l.hung++
	l.s.metrics.abandoned.Inc()
	l.s.resize(l.limitOfWorkers())
	st := l.s.steps[step]
	l.s.log.Error("call abandoned: it did not return after its deadline", "function", st.Name, "timeout", st.Timeout)
	b := c.flows[0].u.ks.b
	b.active -= len(c.flows)
	l.called -= len(c.flows)
	for _, f := range c.flows {
		u := f.u
		if u.failure == nil && u.part.live.Load() && u.state == unitRunning {
			tries := 0
			if f.attempts != nil {
				tries = f.attempts.Number()
			}
			u.failure = l.s.failure(u, event.Rejectf(event.Timeout, "function %q did not return within %v and was abandoned", st.Name, st.Timeout), st.Name, max(1, tries), 0)
		}
		l.giveUp(f)
	}
	l.settleBatch(b)
	if l.hung >= l.workers {
		l.fail(errAllAbandoned)
	}
}
