package asynchttp

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxHosts bounds what is remembered: the names of hosts may come from events.
	maxHosts = 4096
	// A host that is held again and again is said once a minute, and of all hosts so many a minute.
	sayAgain  = time.Minute
	maxSaid   = 20
	saidWhile = time.Minute
	// poisonFor is how long a host is known to refuse some events for their own sake.
	poisonFor = time.Minute
	// wellFor is how long it then counts as answering others, after a good answer.
	wellFor = time.Second
)

// hosts is what all calls through one pool know of the hosts they call.
type hosts struct {
	mu        sync.Mutex // guards all below
	successes uint64     // numbers the good answers of all hosts
	byName    map[string]*host
	holds     sayings

	workers    int // calls at once, over all hosts
	unanswered int // calls that began after the last sign of their host
	lately     lately
}

type host struct {
	until   time.Time // it asked not to be called before
	success uint64    // number of its last good answer
	well    time.Time // when that was
	poison  time.Time // when it refused an event again though it answered others well
	said    said      // of its holds
	silence
}

func newHosts(workers int) *hosts {
	if workers <= 0 {
		workers = defaultWorkers
	}
	return &hosts{byName: map[string]*host{}, workers: workers}
}

// get returns what is known of name. The caller holds the lock.
func (h *hosts) get(name string) *host {
	if at, ok := h.byName[name]; ok {
		return at
	}
	if len(h.byName) >= maxHosts {
		now := time.Now()
		for n, at := range h.byName {
			if len(h.byName) >= maxHosts/2 && at.until.Before(now) && at.running == 0 {
				delete(h.byName, n)
			}
		}
	}
	at := &host{}
	if len(h.byName) < maxHosts { // all others are held: forget this one
		h.byName[name] = at
	}
	return at
}

// held returns until when no call may go to the host.
func (h *hosts) held(name string, now time.Time) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.byName[name]
	if !ok || !at.until.After(now) {
		return time.Time{}, false
	}
	return at.until, true
}

// mark returns the number of the last good answer of any host.
func (h *hosts) mark() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.successes
}

// succeeded notes a good answer. It returns how long ago a hold of the host was said, the first time after
// it, else 0.
func (h *hosts) succeeded(name string) (after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.successes++
	at := h.get(name)
	at.success, at.well = h.successes, time.Now()
	after, _ = at.said.ends(at.well)
	return after
}

// refusal is what a host that asks to wait means by it.
type refusal int

const (
	refusesAll   refusal = iota // its calls are too many: all of its events wait, and it was no attempt
	refusesOne                  // it may well be the event: that one waits alone, and it was no attempt either
	refusesAgain                // it is the event, which was refused again and others were not: an attempt like any other
)

// refused notes that the host asked a call to wait. mark is the number of the last good answer when the event's
// previous try had ended, again says that there was one. Whoever is refused at first may be the first of many. Whoever
// is refused again though others were answered well meanwhile is refused for what it asks for; a host that does that is
// not closed by the first refusals of such events, as long as it answers others. say reports that a hold begins which is
// to be logged: it lasts until the host answers well. See docs/decisions/0053-whose-a-retry-after-is.md.
func (h *hosts) refused(name string, mark uint64, again bool, until, now time.Time) (means refusal, held time.Time, say bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.get(name)
	if again && at.success > mark {
		at.poison = now
		return refusesAgain, until, false
	}
	if !again && now.Sub(at.poison) < poisonFor && now.Sub(at.well) < wellFor {
		return refusesOne, until, false
	}
	if until.After(at.until) {
		at.until = until
	}
	return refusesAll, at.until, h.holds.begins(&at.said, now)
}

// sayings bounds how often something that befalls hosts is logged.
type sayings struct {
	since time.Time // the beginning of the minute in which so many were
	n     int
}

// said is what was logged of one host.
type said struct {
	at   time.Time
	open bool // that it began, and not yet that it ended
}

// begins reports whether the beginning is to be logged.
func (s *sayings) begins(of *said, now time.Time) bool {
	if of.open || now.Sub(of.at) < sayAgain {
		return false
	}
	if now.Sub(s.since) >= saidWhile {
		s.since, s.n = now, 0
	}
	if s.n >= maxSaid {
		return false
	}
	s.n++
	of.at, of.open = now, true
	return true
}

// ends reports whether the end is to be logged, since the beginning was so long ago.
func (of *said) ends(now time.Time) (after time.Duration, ok bool) {
	if !of.open {
		return 0, false
	}
	of.open = false
	return now.Sub(of.at), true
}

// ParseRetryAfter reads the value of a Retry-After header: seconds, also with a fraction, or a date in
// one of HTTP's three forms, counted from now. The wait is at most limit, however large the value; a
// date that is past gives 0. ok is false for what is none of these, such as a negative number.
func ParseRetryAfter(value string, now time.Time, limit time.Duration) (wait time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if whole, fraction, found := strings.Cut(value, "."); digits(whole) && (!found || digits(fraction)) {
		// A number too long for a float is +Inf (and an error), which the cap takes care of.
		seconds, _ := strconv.ParseFloat(value, 64)
		if seconds >= limit.Seconds() {
			return limit, true
		}
		return time.Duration(seconds * float64(time.Second)), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), limit), true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// retryAfter reads the header of an answer. Dates are counted from the server's own clock where the
// answer tells it, so that a clock that is off does not lengthen or shorten the wait.
func retryAfter(h http.Header, limit time.Duration) (time.Duration, bool) {
	value := h.Get("Retry-After")
	if value == "" {
		return 0, false
	}
	now := time.Now()
	if served, err := http.ParseTime(h.Get("Date")); err == nil {
		now = served
	}
	return ParseRetryAfter(value, now, limit)
}
