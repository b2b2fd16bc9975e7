package streammanager

// balance pauses partitions that would take the last quarter of a limit from the others, and those with
// too many uncommitted events. Pausing throws away what was fetched, so it is the exception.
func (l *loop) balance() {
	if l.s.pauser == nil {
		return
	}
	for p := range l.parts {
		stop := l.tooMany(p)
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
	return overShare(int64(p.units), int64(l.events), int64(lim.InFlightEvents), n, p.paused) ||
		overShare(p.bytes, l.bytes, lim.InFlightBytes, n, p.paused)
}

// overShare holds a partition back once three quarters of a limit are used and it has more than half of
// the limit or twice its even share, until it is under its even share.
func overShare(has, used, limit int64, parts int, paused bool) bool {
	share := limit / int64(parts)
	if paused {
		return has > share
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
