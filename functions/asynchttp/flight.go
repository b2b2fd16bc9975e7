package asynchttp

import (
	"time"

	"github.com/a0c75104/enricher/event"
)

const (
	// leadLapse is how long after its time an event may come that makes a request for others: it may queue for a worker, or
	// have been given up. A call may never return.
	leadLapse = time.Second
	// An event that waits for the request of another looks after it so often, whatever it hears.
	leastLook, mostLook = time.Second, 10 * time.Second
	mostWidth           = 1 << 20
)

// flight is a request that several events wait for. It ends as soon as one of those that make it has an answer, or has failed.
type flight struct {
	number  uint64
	began   time.Time
	width   int                  // so many events may make it at once
	leaders map[uint64]time.Time // those that do, by number, and when they must have come back from a call or a wait
	waiting int                  // events that have come to wait for it
	bell    *event.Bell
}

// look is what an event keeps of looking for an answer, between its calls.
type look struct {
	flight  uint64    // the request that it makes or waits for; 0: none
	lead    uint64    // its number among those that make it; 0: it waits
	after   time.Time // answers that were asked for by then are of no use to it
	width   int       // so many of those that wait may ask at once; 0 is 1
	counted bool      // what it found is in the metrics
}

// again notes that waiting for others has brought nothing. So that many events do not ask one after the other where each
// fails, nor all at once, twice as many may ask the next time.
func (l *look) again() {
	l.width = min(mostWidth, 2*max(1, l.width))
}

// turn is what an event does next: take an answer, wait for one, or ask.
type turn struct {
	answer *keptAnswer
	shared bool        // it waited for the answer
	bell   *event.Bell // it waits for this, until that
	until  time.Time
}

// enter finds out what an event does next. One that asks must leave by ends or waits.
func (s *cache) enter(key cacheKey, l *look, now time.Time) turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, shared := s.find(key, l, now); a != nil {
		if f := s.leads(key, l); f != nil { // another one has come first
			delete(s.flights, key)
			f.bell.Ring()
		}
		l.flight, l.lead = 0, 0
		return turn{answer: a, shared: shared}
	}
	f := s.flights[key]
	if f != nil && f.lapsed(now) {
		delete(s.flights, key)
		f = nil
	}
	if l.flight != 0 && (f == nil || f.number != l.flight) {
		if l.lead == 0 {
			l.again()
		}
		l.flight, l.lead = 0, 0
	}
	if f == nil {
		f = s.begin(key, now)
	}
	f.width = max(f.width, l.width)
	if _, leads := f.leaders[l.lead]; leads || len(f.leaders) < f.width {
		if !leads {
			s.last++
			l.flight, l.lead = f.number, s.last
		}
		f.leaders[l.lead] = now.Add(s.call + leadLapse)
		return turn{}
	}
	if l.flight != f.number {
		f.waiting++
	}
	l.flight, l.lead = f.number, 0
	return turn{bell: f.bell, until: f.lookAfter(now)}
}

// begin makes a request that others may wait for. The caller holds the lock.
func (s *cache) begin(key cacheKey, now time.Time) *flight {
	looked := 0
	for other, f := range s.flights { // in any order: those that nobody comes back for are found in time
		if looked++; looked > 2 {
			break
		}
		if f.lapsed(now) {
			delete(s.flights, other)
		}
	}
	s.last++
	f := &flight{number: s.last, began: now, width: 1, leaders: map[uint64]time.Time{}, bell: new(event.Bell)}
	s.flights[key] = f
	return f
}

// lapsed forgets those that have not come back in time, and reports whether nobody is left who makes the request.
func (f *flight) lapsed(now time.Time) bool {
	for id, until := range f.leaders {
		if now.After(until) {
			delete(f.leaders, id)
		}
	}
	return len(f.leaders) == 0
}

// lookAfter is when an event that waits looks after the request: more and more seldom, and when nobody may be left who
// makes it.
func (f *flight) lookAfter(now time.Time) time.Time {
	at := now.Add(min(mostLook, max(leastLook, now.Sub(f.began))))
	var last time.Time
	for _, until := range f.leaders {
		if until.After(last) {
			last = until
		}
	}
	if last = last.Add(time.Millisecond); last.Before(at) {
		return last
	}
	return at
}

// leads returns the request that an event makes, nil where others go on without it. The caller holds the lock.
func (s *cache) leads(key cacheKey, l *look) *flight {
	if f := s.flights[key]; f != nil && f.number == l.flight {
		if _, leads := f.leaders[l.lead]; leads {
			return f
		}
	}
	return nil
}

// ends is called where an event that asked has an answer for others too, or nil.
func (s *cache) ends(key cacheKey, l *look, a *keptAnswer, now time.Time) {
	s.mu.Lock()
	f := s.leads(key, l)
	if a != nil {
		a.flight = l.flight
		if f != nil {
			a.waiting = f.waiting
		}
		s.put(key, a, now)
	}
	if f != nil {
		delete(s.flights, key)
	}
	l.flight, l.lead = 0, 0
	s.mu.Unlock()
	if f != nil {
		f.bell.Ring()
	}
}

// waits is called where an event that asked is to come back at a time.
func (s *cache) waits(key cacheKey, l *look, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.leads(key, l); f != nil {
		f.leaders[l.lead] = until.Add(leadLapse)
	}
}

// parts has others ask by themselves, while an event has an answer on its way that may have to wait for them.
func (s *cache) parts(key cacheKey, l *look) {
	s.mu.Lock()
	f := s.leads(key, l)
	if f != nil {
		delete(s.flights, key)
	}
	s.mu.Unlock()
	if f != nil {
		f.bell.Ring()
	}
}
