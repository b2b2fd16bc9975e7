package streammanager

// balance pauses partitions that would take the last quarter of a limit from the others, and those with
// too many uncommitted events. Pausing throws away what was fetched, so it is the exception.
func (l *loop) balance() {
	if l.s.pauser == nil {
		return
	}
	second := l.secondHop()
	for p := range l.parts {
		stop := p.turning || l.tooMany(p) || second.over(p)
		switch {
		case stop && !p.paused:
			p.paused = true
			p.held.Store(true)
			l.s.pauser.Pause(p.tp)
		case !stop && p.paused:
			p.paused = false
			p.held.Store(false)
			l.s.pauser.Resume(p.tp)
		}
	}
}

// tooMany reports whether p is to be left out of the fetches.
func (l *loop) tooMany(p *partition) bool {
	lim := l.s.cfg.Limits
	if p.tracker.length >= lim.UncommittedEvents {
		return true
	}
	n := len(l.parts)
	if n < 2 {
		return false
	}
	owed := l.outputs.of(p.owing, l.bytes, l.events)
	return overShare(int64(p.units), int64(l.events), int64(lim.InFlightEvents), n, p.paused) ||
		overShare(p.bytes+owed, l.expected(), l.forInputs(), n, p.paused)
}

// ofSecondHop says for one turn how much the repartition topic takes of the limits. It is summed up once: asked for each
// partition, it would be work by the square of them in every turn.
type ofSecondHop struct {
	bound           bool // it is to leave room for what comes in
	units, bytes    int64
	events, inBytes int64 // in flight of all
	limits          Limits
}

func (l *loop) secondHop() ofSecondHop {
	if !l.inputWaits() {
		return ofSecondHop{}
	}
	h := ofSecondHop{bound: true, events: int64(l.events), inBytes: l.expected(), limits: l.s.cfg.Limits}
	h.limits.InFlightBytes = l.forInputs()
	for p := range l.parts {
		if p.hop == secondHop {
			h.units += int64(p.units)
			h.bytes += p.bytes + l.outputs.of(p.owing, l.bytes, l.events)
		}
	}
	return h
}

// over reports whether p, of the repartition topic, is to leave room for what comes in.
func (h *ofSecondHop) over(p *partition) bool {
	if !h.bound || p.hop != secondHop {
		return false
	}
	return overShare(h.units, h.events, int64(h.limits.InFlightEvents), 2, p.paused) ||
		overShare(h.bytes, h.inBytes, h.limits.InFlightBytes, 2, p.paused)
}

// overShare holds a partition back once three quarters of a limit are used and it has more than half of
// the limit or twice its even share. It goes on when it is under its even share, or when half of the limit
// is free again: what it has may be stuck for long.
func overShare(has, used, limit int64, parts int, paused bool) bool {
	share := limit / int64(parts)
	if paused {
		return has > share && used*2 > limit
	}
	return used*4 >= limit*3 && (has*2 > limit || has > 2*share)
}

// uncommittedFull reports whether a partition has too many uncommitted events where none can be paused.
func (l *loop) uncommittedFull() bool {
	for p := range l.parts {
		if p.tracker.length >= l.s.cfg.Limits.UncommittedEvents {
			return true
		}
	}
	return false
}

// room is how much of a limit one grant may use. It ends at three quarters, so that a partition that would
// take the last quarter is seen and paused before.
func (l *loop) room(used, limit int64) int64 {
	if mark := (limit*3 + 3) / 4; used < mark && l.s.pauser != nil && len(l.parts) > 1 {
		return mark - used
	}
	return limit - used
}

// estimate is a moving mean of the bytes of an event's outputs. Events are read while there is room for
// their outputs too: those come later, when nothing can be done about what was read.
type estimate struct {
	mean  float64
	known int // events that were counted, as far as it matters
}

// memory is over how many events the mean goes.
const memory = 64

func (e *estimate) learn(bytes int64) {
	e.known = min(e.known+1, memory)
	e.mean += (float64(bytes) - e.mean) / float64(e.known)
}

// of returns what the outputs of n events will take. Before any is known they are taken to be as large as
// the events in flight.
func (e *estimate) of(n int, bytes int64, events int) int64 {
	switch {
	case n == 0:
		return 0
	case e.known < memory:
		return max(int64(float64(n)*e.mean), int64(n)*(bytes/int64(max(1, events))))
	}
	return int64(float64(n) * e.mean)
}

// expected is what is in flight beside answers, and what is still to come of it.
func (l *loop) expected() int64 { return l.bytes + l.outputs.of(l.owing, l.bytes, l.events) }

// forInputs is what inputs and outputs may take: the limit without what is kept for answers.
func (l *loop) forInputs() int64 { return l.s.cfg.Limits.InFlightBytes - l.forAnswers() }

// used is what counts against forInputs: answers do where they take more than is kept for them.
func (l *loop) used() int64 { return l.expected() + max(0, l.answers.held-l.forAnswers()) }

// owe notes that outputs of u are to come.
func (l *loop) owe(u *unit) {
	u.owing = true
	l.owing++
	u.part.owing++
}

// settleOutputs notes that the outputs of u are known and counted, or that there will be none.
func (l *loop) settleOutputs(u *unit) {
	if !u.owing {
		return
	}
	u.owing = false
	l.owing--
	u.part.owing--
	if u.state == unitDone && u.failure == nil && !u.gaveUp() && u.part.live.Load() { // what was given up says nothing of outputs
		l.outputs.learn(u.size - u.input)
	}
}

// roomForCalls reports whether the outputs of another call would fit the limit. Only what is on its way to
// a sink is waited for: it makes room by itself.
func (l *loop) roomForCalls() bool {
	coming := max(l.answers.held, l.outputs.of(l.called, l.bytes, l.events))
	return l.leaving == 0 || l.bytes+coming < l.s.cfg.Limits.InFlightBytes
}
