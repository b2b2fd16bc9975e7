package asynchttp

import (
	"math/rand/v2"
	"time"
)

const (
	tenths      = 10 // parts of the second over which calls are counted
	tenth       = time.Second / tenths
	probesShare = 4                      // of the workers at most one in so many tries hosts that fail
	probeWait   = time.Second            // how long the others wait for a try to come back before they ask again
	probePause  = 500 * time.Millisecond // and between two times that they ask
	turnedAway  = 2 * time.Second        // a try that failed goes behind those that come so long after
)

// result is what a try says of the host.
type result int

const (
	resultNone      result = iota // nothing: it was cancelled, or never made
	resultAnswered                // it works, whatever it answered
	resultThrottled               // it works, and has enough
	resultFailed                  // no connection, no answer in time, or one that says that it is broken
)

// breaker stops the calls to a host of which too many fail, and tries from time to time whether it works
// again. It is pure: the time is an argument, and its gate's lock guards it.
type breaker struct {
	calls    int // 0: it never opens
	failures float64
	open     time.Duration
	probeMax int

	recent  recent
	era     uint64    // changes whenever it opens or closes: what began before says nothing of what is now
	opened  time.Time // zero: closed
	probeAt time.Time // the next event from then on is a try
	probed  time.Time // when the latest try began
	probes  int       // tries on their way
	waiting line      // for the next try
	soon    line      // for the one on its way
}

func newBreaker(o BreakerOptions, workers int, start time.Time) breaker {
	return breaker{
		calls: o.Calls, failures: o.Failures, open: time.Duration(o.Open), probeMax: max(1, workers/probesShare),
		recent: recent{start: start, last: make([]bool, o.Calls)},
	}
}

func (b *breaker) isOpen() bool { return !b.opened.IsZero() }

// due reports whether an event that comes now is a try.
func (b *breaker) due(now time.Time) bool { return !now.Before(b.probeAt) && b.probes < b.probeMax }

// probe notes that a try begins. The next is due when it is as old as the breaker stays open, whether it
// has come back or not: one that hangs must not keep the others from finding out.
func (b *breaker) probe(now time.Time) {
	b.probes++
	b.probed, b.probeAt = now, now.Add(b.open)
	b.waiting, b.soon = line{}, line{}
}

// hold returns when an event that finds the breaker open is to come back. Each gets a time of its own, gap
// after the one before: the first is the next try, and those behind it come at the rate that the host is
// used to, should the try go well.
func (b *breaker) hold(now time.Time, gap time.Duration) time.Time {
	if b.probes > 0 && now.Sub(b.probed) < 2*probeWait {
		// A try is on its way. It would be a pity to sleep over its end.
		return b.soon.from(later(b.probed.Add(probeWait), now.Add(probePause)), gap, probeWait)
	}
	at := b.probeAt
	if !at.After(now) { // as many tries as there may be are on their way
		at = now.Add(b.open)
	}
	return b.waiting.from(at, gap, b.open)
}

// again returns when an event whose try failed is to come back: behind others, so that one that always
// fails does not keep a host closed.
func (b *breaker) again(now time.Time) time.Time {
	if !b.isOpen() {
		return now
	}
	return later(b.probeAt, now).Add(min(b.open/2, turnedAway))
}

// done takes what a try said. It reports whether the breaker opened or closed over it.
func (b *breaker) done(now time.Time, p pass, r result) (opened, closed bool) {
	if b.calls == 0 || p.era != b.era {
		return false, false
	}
	if p.probe {
		b.probes--
		switch r {
		case resultNone: // it told nothing: the next may find out
			b.probeAt = now
		case resultFailed:
		default:
			b.change(time.Time{})
			return false, true
		}
		return false, false
	}
	if r == resultNone {
		return false, false
	}
	b.recent.add(now, r == resultFailed)
	if r != resultFailed || !b.recent.over(b.failures) {
		return false, false
	}
	b.change(now)
	b.probeAt = now.Add(b.open)
	return true, false
}

func (b *breaker) change(opened time.Time) {
	b.era++
	b.opened, b.probes = opened, 0
	b.waiting, b.soon = line{}, line{}
	b.recent.clear()
}

// recent counts how the latest calls ended: those of the last second and, for hosts that are called
// rarely, the last few however old.
type recent struct {
	start   time.Time
	buckets [tenths]struct{ all, failed int }
	newest  int64 // number of the newest bucket, since start

	last   []bool // a ring: whether they failed
	at     int
	seen   int
	failed int
}

func (r *recent) add(now time.Time, failed bool) {
	number := int64(now.Sub(r.start) / tenth)
	for n := max(r.newest+1, number-tenths+1); n <= number; n++ {
		r.buckets[n%tenths] = struct{ all, failed int }{}
	}
	r.newest = max(r.newest, number)
	b := &r.buckets[r.newest%tenths]
	b.all++
	if r.seen == len(r.last) && r.last[r.at] {
		r.failed--
	}
	if failed {
		b.failed++
		r.failed++
	}
	r.last[r.at] = failed
	r.at = (r.at + 1) % len(r.last)
	r.seen = min(r.seen+1, len(r.last))
}

// over reports whether a share of the latest calls failed: of those of the last second or, where they are
// fewer than the last few, of those.
func (r *recent) over(share float64) bool {
	all, failed := 0, 0
	for _, b := range r.buckets {
		all, failed = all+b.all, failed+b.failed
	}
	if all < len(r.last) {
		all, failed = r.seen, r.failed
	}
	return all >= len(r.last) && float64(failed) >= share*float64(all)
}

// lately reports whether that share of the last few calls failed, however many came in the last second.
func (r *recent) lately(share float64) bool {
	return len(r.last) > 0 && r.seen == len(r.last) && float64(r.failed) >= share*float64(r.seen)
}

func (r *recent) clear() {
	clear(r.last)
	r.buckets = [tenths]struct{ all, failed int }{}
	r.at, r.seen, r.failed = 0, 0, 0
}

// line is where events wait for what comes one by one. Each is told a time of its own to come back at, in
// order of arrival: if all came at once, most would come for nothing.
type line struct {
	next time.Time // the place behind the last one that waits
	late time.Time // the same for those that have waited and got nothing yet
}

// from returns a place from begin on, gap behind the last. Where that is more than spread away, it is
// somewhere within it: an event that waits must hear of a change.
func (l *line) from(begin time.Time, gap, spread time.Duration) time.Time {
	at := later(l.next, begin)
	if at.Sub(begin) >= spread {
		return begin.Add(rand.N(max(spread, 1)))
	}
	l.next = at.Add(gap)
	return at
}

// turn reports whether an event may take what there is: its time has come or, if it has none yet, nobody
// waits.
func (l *line) turn(now, place time.Time) bool {
	if place.IsZero() {
		return !l.next.After(now)
	}
	return !place.After(now)
}

// wait returns the time for an event to come back: gap behind the last one, not before soonest, and not
// more than ahead of now where ahead is set.
func (l *line) wait(now, place time.Time, gap, soonest, ahead time.Duration) time.Time {
	next := &l.next
	switch {
	case place.After(now):
		return place // it came too early
	case !place.IsZero():
		next = &l.late
	}
	at := later(next.Add(gap), now.Add(max(soonest, minWait)))
	if ahead > 0 && at.Sub(now) > ahead {
		return now.Add(ahead - rand.N(ahead/4))
	}
	*next = at
	return at
}

// minWait is the shortest hold: a shorter one costs more than it brings.
const minWait = time.Millisecond

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
