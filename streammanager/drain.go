package streammanager

import (
	"time"
)

// drain ends the polling. What is open is finished; what is left after the time becomes unfinished.
// Zero means no limit.
func (l *loop) drain(limit time.Duration) {
	if l.mode == working {
		l.mode = draining
	}
	l.s.interruptPoll()
	if by := l.now.Add(limit); limit > 0 && (l.stopBy.IsZero() || by.Before(l.stopBy)) { // asked again it does not get more
		l.stopBy = by
		l.until = by.Add(-min(limit/5, 3*time.Second))
		l.purgeWaitsPast()
	}
}

func (l *loop) purgeWaitsPast() {
	late := map[*flow]bool{}
	for _, t := range l.timers {
		if t.at.After(l.until) {
			for _, f := range t.flows {
				late[f] = true
			}
		}
	}
	if len(late) > 0 {
		l.purgeWaits(func(f *flow) bool { return late[f] })
	}
}

// settleDrain leaves the loop when everything has its outcome or the time is up.
func (l *loop) settleDrain() {
	over := !l.until.IsZero() && !l.now.Before(l.until)
	if (l.events == 0 || over) && l.settledTransaction(over) && l.settledEnd() {
		l.mode = ended
	}
}

// settledEnd reports whether all that a bounded source gave is committed. A run that ends well without would leave it to
// be done again, or, in a group that ends together, to workers that are gone.
func (l *loop) settledEnd() bool {
	if !l.sourceEnded() || l.tx != nil || l.s.committer == nil {
		return true
	}
	for p := range l.parts {
		if p.ahead() {
			if l.dog.fails.since.IsZero() { // else with the next tick
				l.commit()
			}
			return false
		}
	}
	return true
}

// sourceEnded reports whether the stream drains since a bounded source has come to its end, and for no other reason.
func (l *loop) sourceEnded() bool { return l.mode == draining && l.until.IsZero() }

// readOn reads a bounded source again that had ended: what it gave was taken away, or it may have more.
func (l *loop) readOn() {
	if l.sourceEnded() {
		l.mode = working
	}
	l.changed = true
}

// fail ends the stream with an error: nothing more is started.
func (l *loop) fail(err error) {
	if l.failure == nil {
		l.failure = err
	}
	l.drain(0)
	l.until = l.now
}
