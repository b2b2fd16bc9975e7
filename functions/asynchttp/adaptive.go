package asynchttp

import "time"

const (
	adaptFirst    = 8                      // calls at once to begin with
	adaptLeast    = 50                     // answers that are looked at together, at least
	adaptPerCall  = 5                      // and for each call that may run
	adaptWindow   = 100 * time.Millisecond // over so long at least
	adaptAhead    = time.Second
	adaptGrow     = 0.05 // a share of the calls that queue at the server: below, more may run
	adaptShrink   = 0.125
	adaptStay     = 0.08 // what may queue after the limit was lowered
	adaptStep     = 0.1
	adaptLowest   = 0.7 // the most that one look lowers
	adaptFailures = 0.1 // share of failed calls from which on the limit is lowered
	adaptProbe    = 0.75
	adaptProbes   = 20 // looks between two measurements of how fast the server is
	adaptDoubt    = 3  // looks after which it is measured anew where it says that too many run
	adaptPatience = 10 // looks before it goes beyond what was too much
	adaptEarly    = 0.9
)

// adaptive finds how many calls the server can carry at once, from how long its answers take and whether
// they fail. What queues at the server shows as the part of the time beyond that of a server that is not
// loaded; every so often that time is measured anew, with a quarter fewer calls. See
// docs/decisions/0050-adaptive-concurrency.md.
type adaptive struct {
	most    float64
	limit   float64
	base    float64 // seconds of an answer of a server that is not loaded; 0: not known
	average float64 // of the last look
	slow    bool    // it has never been too much: the limit doubles
	probing bool    // this look measures base
	looks   int     // since base was measured
	ceiling float64 // was too much; 0: nothing was
	quiet   int     // looks near it

	began  time.Time // of this look; calls that began before say nothing of it
	sum    float64
	n      int
	failed int
	peak   int
	line   line
}

func newAdaptive(workers int, now time.Time) *adaptive {
	most := float64(max(1, workers))
	return &adaptive{most: most, limit: min(most, adaptFirst), slow: true, began: now}
}

// allowed is how many calls may run at once.
func (a *adaptive) allowed() int {
	if a.probing {
		return max(1, int(a.limit*adaptProbe))
	}
	return max(1, int(a.limit))
}

// take lets an event go while running calls are fewer than may be, or returns when it is to come back.
func (a *adaptive) take(now, place time.Time, running int) (until time.Time, ok bool) {
	if running < a.allowed() && a.line.turn(now, place) {
		return time.Time{}, true
	}
	// A little early, so that there is always one that waits when a call ends.
	gap := seconds(a.average / float64(a.allowed()) * adaptEarly)
	return a.line.wait(now, place, gap, gap, adaptAhead), false
}

// done takes a call that took so long, running others beside it.
func (a *adaptive) done(now time.Time, took time.Duration, r result, running int) {
	if r == resultNone || now.Add(-took).Before(a.began) {
		return
	}
	a.peak = max(a.peak, running+1)
	if r == resultAnswered {
		a.sum += took.Seconds()
		a.n++
	} else {
		a.failed++
	}
	if a.n+a.failed >= max(adaptLeast, adaptPerCall*a.allowed()) && now.Sub(a.began) >= adaptWindow {
		a.look()
		// Calls that began under the old limit are still on their way.
		a.began = now.Add(seconds(a.average))
		a.sum, a.n, a.failed, a.peak = 0, 0, 0, 0
	}
}

// look draws the conclusions.
func (a *adaptive) look() {
	if a.n > 0 {
		a.average = a.sum / float64(a.n)
	}
	if float64(a.failed) > adaptFailures*float64(a.n+a.failed) {
		a.lower(a.limit * adaptLowest)
		a.probing = false
		return
	}
	if a.probing {
		a.base, a.probing, a.looks = a.average, false, 0
		return
	}
	switch {
	case a.base == 0:
		a.base = a.average
	case a.average < a.base:
		a.base += 0.1 * (a.average - a.base)
	}
	queued := max(0, 1-a.base/a.average)
	switch {
	case queued > adaptShrink && queued*a.limit >= 1:
		a.lower(a.limit * (1 - queued) * (1 + adaptStay))
		if a.looks >= adaptDoubt && a.limit > 1 { // or is it the server that is slower, however few call it?
			a.probing = true
			return
		}
	case queued < adaptGrow && float64(a.peak) >= 0.9*float64(a.allowed()):
		a.raise()
	}
	if a.looks++; a.looks >= adaptProbes && a.limit > 1 {
		a.probing = true
	}
}

func (a *adaptive) lower(to float64) {
	a.ceiling, a.quiet, a.slow = a.limit, 0, false
	a.limit = max(1, a.limit*adaptLowest, to)
}

// raise goes up at once while nothing was too much, quickly far below what was, and slowly near it.
func (a *adaptive) raise() {
	step := max(1, a.limit*adaptStep)
	switch {
	case a.slow:
		step = a.limit
	case a.ceiling > 0 && a.limit >= 0.95*a.ceiling:
		if a.quiet++; a.quiet < adaptPatience {
			return
		}
		a.ceiling = 0
	case a.ceiling > 0:
		step = min(step, max(0.5, (a.ceiling-a.limit)/2))
	}
	a.limit = min(a.most, a.limit+step)
}
