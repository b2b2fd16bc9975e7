package asynchttp

import "time"

const (
	silentAfter = 8                     // a host that answers none of an eighth of the workers in calls is silent
	silentCalls = 3                     // or of so many; with fewer each answer would be followed by one call, and calls would never become more
	silentFrom  = 6                     // workers; fewer are not shared out
	silentMost  = 2                     // and then has half of the workers at most
	silentLeast = 4                     // and a quarter at least
	silentPause = 50 * time.Millisecond // after which an event that it keeps waiting asks again at the earliest
	silentAhead = 2 * time.Second       // and at the latest
	silentOther = time.Minute           // how long another host counts as called
	silentShare = 0.05                  // of a new number in a mean
	silentSlow  = 0.25                  // seconds: a host that takes as long as that for an answer
	silentTwice = 2                     // is silent after so many times its usual time
)

// silence keeps a host that hangs from taking all workers until its calls have timed out, while other hosts are
// called: without any answer it gets no more than what it usually has and a little. A breaker cannot do that, since
// a call has not failed before its time is over. What runs is counted over all items of a pipeline, as the workers are.
// See docs/decisions/0055-workers-beside-a-host-that-hangs.md.
type silence struct {
	running    int     // calls on their way
	unanswered int     // of them, those that began after the last sign of the host
	signs      uint64  // that the host has given
	usual      float64 // calls on their way, as its signs found them
	takes      float64 // seconds until a sign, as usual; 0: not known
	sign       time.Time
	line       line
}

// lately are the two hosts that were called last.
type lately [2]struct {
	host *host
	at   time.Time
}

func (l *lately) called(at *host, now time.Time) {
	if l[0].host != at {
		l[1] = l[0]
	}
	l[0].host, l[0].at = at, now
}

// others reports whether another host than this one was called within the last minute.
func (l *lately) others(at *host, now time.Time) bool {
	for _, c := range l {
		if c.host != nil && c.host != at && now.Sub(c.at) < silentOther {
			return true
		}
	}
	return false
}

// silent returns when an event is to come back that would be one call too many to a host that answers none.
func (h *hosts) silent(name string, now, place time.Time) (until time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.byName[name]
	if at == nil || h.workers < silentFrom || at.unanswered < max(silentCalls, h.workers/silentAfter) || at.running < h.mayHang(at) || at.patient(now) || !h.lately.others(at, now) {
		return time.Time{}, false
	}
	return at.line.wait(now, place, minWait, silentPause, silentAhead), true
}

// patient reports whether the host is a slow one, which may be about to answer all of them.
func (s *silence) patient(now time.Time) bool {
	return s.takes >= silentSlow && now.Sub(s.sign).Seconds() < silentTwice*s.takes
}

// mayHang is how many calls to a host may be on their way while it answers none: half of what other silent hosts
// leave at most, so that some worker is always left. The caller holds the lock.
func (h *hosts) mayHang(at *host) int {
	left := (h.workers - (h.unanswered - at.unanswered)) / silentMost
	usual := int(at.usual) + h.workers/silentAfter
	return max(1, min(left, max(h.workers/silentLeast, usual)))
}

// under is a call on its way.
type under struct {
	host  *host
	signs uint64 // that the host had given when it began
	began time.Time
}

// begins notes that a call to a host begins. What it returns is given back by ends.
func (h *hosts) begins(name string, now time.Time) under {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.get(name)
	at.running++
	at.unanswered++
	h.unanswered++
	h.lately.called(at, now)
	return under{at, at.signs, now}
}

// speaks notes a sign of the host: an answer begins, or it refuses to be called.
func (h *hosts) speaks(u under, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := u.host
	at.usual += silentShare * (float64(at.running) - at.usual)
	took := now.Sub(u.began).Seconds()
	if at.takes == 0 {
		at.takes = took
	}
	at.takes += silentShare * (took - at.takes)
	at.sign = now
	h.unanswered -= at.unanswered
	at.unanswered, at.line = 0, line{}
	at.signs++
}

// ends notes that a call has ended.
func (h *hosts) ends(u under) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u.host.running--
	if u.signs == u.host.signs {
		u.host.unanswered--
		h.unanswered--
	}
}
