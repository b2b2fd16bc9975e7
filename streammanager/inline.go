package streammanager

import (
	"errors"
)

// inlineChunk bounds how many events of a partition one task of a chain without calls takes.
const inlineChunk = 256

// startInline runs the waiting events of one partition through a chain without calls, in their order.
func (l *loop) startInline() {
	p := l.turn[0]
	l.turn = l.turn[1:]
	if p.busy || len(p.queue) == 0 {
		return
	}
	n := min(len(p.queue), inlineChunk)
	c := &call{inline: p, flows: make([]*flow, n)}
	flows := make([]flow, n)
	for i, u := range p.queue[:n] {
		flows[i] = flow{u: u, ev: u.ev, state: flowRunning}
		c.flows[i] = &flows[i]
		u.state = unitRunning
		p.running++
	}
	p.queue = p.queue[n:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	p.busy = true
	l.launch(c, 0)
}

// returnedInline takes the results of a chain without calls: they leave in the order of the partition.
func (l *loop) returnedInline(c *call) {
	p := c.inline
	p.busy = false
	l.called -= len(c.flows)
	var back []*unit // what the task did not come to
	for i, f := range c.flows {
		u, r := f.u, &c.results[i]
		f.state = flowEnded
		switch {
		case !p.live.Load() || p.gap:
			l.inlineUnfinished(u)
			continue
		case !r.done():
			p.running--
			u.state = unitQueued
			back = append(back, u)
			continue
		case r.err != nil && l.fatalInline(u, r):
			p.gap = true
			l.inlineUnfinished(u)
			continue
		case r.err != nil:
			name := "sink"
			if r.step < len(l.s.steps) {
				name = l.s.steps[r.step].Name
			}
			u.failure = l.s.failure(u, r.err, name, 1, 0)
		case len(r.records) == 0:
			p.running--
			u.state = unitDone
			l.settleOutputs(u)
			l.finish(u, outcomeDropped)
			continue
		default:
			u.flows = make([]*flow, len(r.records))
			for n := range r.records {
				u.flows[n] = &flow{u: u, state: flowEnded, out: &r.records[n]}
				l.countOutput(u.flows[n])
			}
		}
		u.state = unitDone
		l.settleOutputs(u)
		l.leave(u)
	}
	if len(back) > 0 {
		p.queue = append(back, p.queue...)
	}
	if p.revoking {
		l.purge(p)
	}
	if len(p.queue) > 0 && p.live.Load() {
		l.turn = append(l.turn, p)
	}
}

func (l *loop) inlineUnfinished(u *unit) {
	u.part.running--
	l.finish(u, "")
}

func (l *loop) fatalInline(u *unit, r *result) bool {
	if severity(r.err) < severityFatal {
		return false
	}
	l.fail(errors.Join(errors.New("function at "+where(u.ev.Position())), r.err))
	return true
}
