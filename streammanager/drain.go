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
	if limit > 0 {
		l.stopBy = l.now.Add(limit)
		l.until = l.now.Add(limit - min(limit/5, 3*time.Second))
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
	if (l.events == 0 || over) && l.settledTransaction(over) {
		l.mode = ended
	}
}

// fail ends the stream with an error: nothing more is started.
func (l *loop) fail(err error) {
	if l.failure == nil {
		l.failure = err
	}
	l.drain(0)
	l.until = l.now
}
