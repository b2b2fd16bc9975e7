package streammanager

import "errors"

// returnedInline takes the results of a chain without calls: they leave in the order of the partition.
func (l *loop) returnedInline(c *call) {
	p := c.inline
	p.busy = false
	for i, f := range c.flows {
		u, r := f.u, &c.results[i]
		u.calls--
		f.state = flowEnded
		switch {
		case !p.live.Load() || !r.done():
			l.inlineUnfinished(u)
			continue
		case r.err != nil && (l.endedByStream(r.err) || l.fatalInline(u, r)):
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
		l.leave(u)
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
	if severity(r.err) < 3 {
		return false
	}
	l.fail(errors.Join(errors.New("function at "+where(u.ev.Position())), r.err))
	return true
}
