package asynchttp

import (
	"sync"
	"time"
)

// why is what an event waits for.
type why int

const (
	whyNot     why = iota // it may go
	whyAsked              // the host asked to be left alone, by Retry-After
	whySilent             // the host answers none of the calls that are on their way
	whyBreaker            // too many calls to the host failed
	whyShut               // the same, and it is not to wait
	whyPace               // others go first, now that the host may be called again
	whyRoom               // adaptive: as many calls are running as the server can carry
	whyShare              // the host has had its share of retries
	whyRate               // rate_limit
	whys
)

// An event that was refused leaves a host to those that were not for so long, and for two of them at least.
const behindOthers = 100 * time.Millisecond

// claim is what an event keeps of a gate between its calls.
type claim struct {
	retry   bool            // its next try is made again after a failure, and needs a share of the calls
	tried   bool            // it has had its first try
	delayed bool            // this retry has been counted as delayed
	refused bool            // it had the host ask to be left alone
	behind  bool            // and has let others go first
	place   [whys]time.Time // when it was told to come back, and for what
	limited time.Time       // since when it waits for rate_limit
}

// pass lets one try through. It must be given back by done.
type pass struct {
	gate  *gate // nil: there is none
	probe bool  // it tries a host whose breaker is open
	era   uint64
}

// admission is what admit says: go, or come back at until.
type admission struct {
	pass  pass
	why   why
	until time.Time
}

// gates is what one function knows of the hosts that it calls, and how it treats them. Nothing in it waits
// or reads a clock.
type gates struct {
	workers  int
	share    float64
	breaker  BreakerOptions
	rate     *RateLimitOptions // nil: none
	meters   *gateMeters
	openings sayings

	mu      sync.Mutex // guards all below, and what is in it
	byHost  map[string]*gate
	all     *limiter  // nil: none, or one for each host
	adapt   *adaptive // nil: workers alone bound the calls
	running int       // tries of all hosts
}

// gate is what is known of one host.
type gate struct {
	breaker breaker
	share   share
	rate    *limiter // nil: none, or that of all hosts
	pace    pace
	well    pulse     // good answers
	waiting line      // for the end of a Retry-After
	patient time.Time // the last place in it of an event that was not refused itself
	until   time.Time
	running int
	said    said
}

func newGates(o Options, workers int, meters *gateMeters, now time.Time) *gates {
	if workers <= 0 {
		workers = defaultWorkers
	}
	g := &gates{
		workers: workers, share: o.Retry.Share, breaker: o.Breaker, rate: o.RateLimit, meters: meters,
		byHost: map[string]*gate{},
	}
	if g.rate != nil && g.rate.Per != "host" {
		g.all = newLimiter(g.rate)
	}
	if o.Adaptive {
		g.adapt = newAdaptive(workers, now)
		meters.limit.Set(float64(g.adapt.allowed()))
	} else {
		meters.limit.Set(float64(workers))
	}
	return g
}

// of returns the gate of a host. The caller holds the lock.
func (g *gates) of(host string, now time.Time) *gate {
	if at, ok := g.byHost[host]; ok {
		return at
	}
	if len(g.byHost) >= maxHosts {
		for name, at := range g.byHost {
			if len(g.byHost) >= maxHosts/2 && at.idle(now) {
				delete(g.byHost, name)
			}
		}
	}
	at := &gate{
		breaker: newBreaker(g.breaker, g.workers, now), share: newShare(g.share, g.workers, now), well: pulse{start: now},
	}
	if g.rate != nil && g.all == nil {
		at.rate = newLimiter(g.rate)
	}
	if len(g.byHost) < maxHosts { // all others are in use: forget this one
		g.byHost[host] = at
	}
	return at
}

// idle reports whether nothing is lost by forgetting the host.
func (g *gate) idle(now time.Time) bool {
	return g.running == 0 && !g.breaker.isOpen() && !g.until.After(now) && !g.share.line.next.After(now) &&
		(g.rate == nil || g.rate.idle(now)) && (g.pace.from.IsZero() || now.Sub(g.pace.from) > paceFor)
}

// admit lets a try of an event go, or says when the event is to come back. until is when the host may be
// called according to its Retry-After, zero where it asked for nothing.
func (g *gates) admit(host string, now time.Time, c *claim, until time.Time) admission {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.of(host, now)
	if until.After(now) {
		at.patient = at.leave(until)
		return admission{why: whyAsked, until: at.patient}
	}
	if until, ok := at.others(now, c); ok {
		return admission{why: whyPace, until: until}
	}
	p := pass{gate: at, era: at.breaker.era}
	if at.breaker.isOpen() {
		switch p.probe = at.breaker.due(now); {
		case p.probe:
		case g.breaker.WhileOpen == "error":
			return admission{why: whyShut}
		default:
			return admission{why: whyBreaker, until: at.breaker.hold(now, gapAt(at.well.usual()))}
		}
	}
	if w, until := g.wait(at, p.probe, now, c); w != whyNot {
		return admission{why: w, until: until}
	}
	g.start(at, p, now, c)
	return admission{pass: p}
}

// wait finds what an event that may call the host must still wait for. What it has been given it keeps
// while it waits for the next. The caller holds the lock.
func (g *gates) wait(at *gate, probe bool, now time.Time, c *claim) (why, time.Time) {
	held := func(w why, until time.Time) (why, time.Time) {
		c.place[w] = until
		return w, until
	}
	if !probe {
		if until, ok := at.pace.take(now, c.place[whyPace]); !ok && !c.behind { // whose turn has come
			return held(whyPace, until)
		}
		if g.adapt != nil {
			if until, ok := g.adapt.take(now, c.place[whyRoom], g.running); !ok {
				return held(whyRoom, until)
			}
		}
		if c.retry {
			until, ok := at.share.retry(now, c.place[whyShare])
			if !ok {
				if !c.delayed {
					c.delayed = true
					g.meters.delayed.Inc()
				}
				return held(whyShare, until)
			}
			c.retry = false
		}
	}
	limit := at.rate
	if g.all != nil {
		limit = g.all
	}
	if limit != nil {
		if until, ok := limit.take(now, c.place[whyRate]); !ok {
			if c.limited.IsZero() {
				c.limited = now
			}
			return held(whyRate, until)
		}
		waited := time.Duration(0)
		if !c.limited.IsZero() {
			waited = now.Sub(c.limited)
		}
		g.meters.waited.Observe(waited.Seconds())
	}
	return whyNot, time.Time{}
}

// start notes that a try goes. The caller holds the lock.
func (g *gates) start(at *gate, p pass, now time.Time, c *claim) {
	if p.probe {
		at.breaker.probe(now)
	}
	if !c.tried {
		at.share.first(now)
	}
	*c = claim{tried: true, retry: p.probe && c.retry}
	at.running++
	g.running++
	g.meters.running.Inc()
}

// leave returns when an event of a host that asked to be left alone until then is to come back.
func (g *gate) leave(until time.Time) time.Time {
	if until.After(g.until) {
		g.until, g.waiting = until, line{}
		g.pace.begin(until, g.well.usual())
	}
	return g.waiting.from(until, gapAt(g.well.usual()), paceAhead)
}

// others has an event that had the host ask to be left alone go behind those that wait for it, once: if it went
// first and were refused again, none of them would ever be heard. Soon after it goes: it tells whether it alone is refused.
func (g *gate) others(now time.Time, c *claim) (time.Time, bool) {
	was := c.refused
	c.refused = false
	if !was || !g.patient.After(now) {
		return time.Time{}, false
	}
	c.behind = true
	return now.Add(max(behindOthers, 2*gapAt(g.well.usual()))), true
}

// asked returns when an event whose call was told to wait until then is to come back.
func (g *gates) asked(p pass, until time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.gate == nil {
		return until
	}
	return p.gate.leave(until)
}

// change is what became of a breaker.
type change struct {
	opened, closed bool
	say            bool          // it is to be logged
	after          time.Duration // that it was open
}

// done takes back the pass of a try that said r of the host, and took so long without what it waited for here.
func (g *gates) done(p pass, now time.Time, took time.Duration, r result) change {
	if p.gate == nil {
		return change{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := p.gate
	at.running--
	g.running--
	g.meters.running.Dec()
	if g.adapt != nil {
		g.adapt.done(now, took, r, g.running)
		g.meters.limit.Set(float64(g.adapt.allowed()))
	}
	if r == resultAnswered {
		at.well.add(now)
	}
	was := at.breaker.opened
	var c change
	c.opened, c.closed = at.breaker.done(now, p, r)
	switch {
	case c.opened:
		g.meters.open.Inc()
		c.say = g.openings.begins(&at.said, now)
	case c.closed:
		g.meters.open.Dec()
		at.pace.begin(now, at.well.usual())
		c.after = now.Sub(was)
		_, c.say = at.said.ends(now)
	}
	return c
}

// stops notes that the answer of a try waits for room. What stands before it in the order may itself have to call
// the host, so it must find the place that the server has: else each would wait for the other.
func (g *gates) stops(p pass) { g.place(p, -1) }

// goesOn notes that it has the room.
func (g *gates) goesOn(p pass) { g.place(p, 1) }

func (g *gates) place(p pass, n int) {
	if p.gate == nil || g.adapt == nil && !p.probe {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running += n
	if p.probe && p.era == p.gate.breaker.era {
		p.gate.breaker.probes += n
	}
}

// fails reports whether the breaker of the host is open, or will be if the next calls end as the last ones did.
func (g *gates) fails(p pass) bool {
	if p.gate == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.gate.breaker.isOpen() || p.gate.breaker.recent.lately(g.breaker.Failures)
}

// failedProbe returns when an event whose try of a host failed is to come back.
func (g *gates) failedProbe(p pass, now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.gate.breaker.again(now)
}
