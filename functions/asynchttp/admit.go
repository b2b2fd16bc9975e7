package asynchttp

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/a0c75104/enricher/event"
)

// waits says what an event waits for, and what it would be if it did not.
var waits = [whys]struct {
	kind event.Type
	err  error
}{
	whyAsked:   {event.RateLimited, errors.New("the host asked to wait")},
	whySilent:  {event.Timeout, errors.New("the host answers none of the calls that are on their way")},
	whyBreaker: {event.Connection, errBreaker},
	whyShut:    {event.Connection, errBreaker},
	whyPace:    {event.RateLimited, errors.New("the host may be called again, and others go first")},
	whyRoom:    {event.RateLimited, errors.New("as many calls are on their way as the host can carry")},
	whyShare:   {event.RateLimited, errors.New("the host has had its share of retries")},
	whyRate:    {event.RateLimited, errors.New("rate_limit has no room yet")},
}

var errBreaker = errors.New("too many calls to the host have failed, its breaker is open")

// host names what limits are of.
func (c *call) host() string { return c.req.host }

// admit is asked before each try. It returns nil, or the event.Hold of what keeps the event waiting. A try
// that it lets go is reported once.
func (c *call) admit() error {
	now, known := time.Now(), c.f.pool.hosts
	a := admission{why: whySilent}
	var silent bool
	if a.until, silent = known.silent(c.host(), now, c.kept.claim.place[whySilent]); silent {
		c.kept.claim.place[whySilent] = a.until
	} else {
		until, _ := known.held(c.host(), now)
		a = c.f.gates.admit(c.host(), now, &c.kept.claim, until)
	}
	if a.why == whyNot {
		c.pass, c.open = a.pass, true
		c.under = known.begins(c.host(), now)
		return nil
	}
	c.tries.SetSlot(c.kept)
	err := c.fail(waits[a.why].kind, waits[a.why].err)
	if c.shut = a.why == whyShut; c.shut {
		return err
	}
	return event.Hold(err, a.until)
}

// report tells what is known of the host what came of a try, and what is made of that.
func (c *call) report(o *outcome, d *decision) {
	if o.came() && !d.unwell {
		if after := c.f.pool.hosts.succeeded(c.host()); after > 0 {
			c.f.log.Info("a host that asked to wait answers again", "host", c.host(), "after", after)
		}
	}
	c.said = c.says(o, d)
	c.giveBack(c.said)
	if c.said == resultFailed && c.pass.probe && o.final && o.class == gotTimeout && (c.f.repeatable || o.unsent) {
		// What was left of total_timeout was too short, which is no fault of an event that tries for others.
		d.do = doRetry
	}
}

// says is what the outcome of a try says of the host.
func (c *call) says(o *outcome, d *decision) result {
	switch {
	case o.class == gotCut, d.do == doAnew: // cut short on this side
		return resultNone
	case o.class == gotTimeout && o.final && !c.pass.probe && c.took < c.f.timeout:
		return resultNone // total_timeout cut it short
	case o.class == gotTimeout, o.class == gotNone:
		return resultFailed
	case !o.whole():
		return resultAnswered
	case o.status == http.StatusTooManyRequests:
		return resultThrottled
	case o.status >= 500 && d.unwell:
		return resultFailed
	}
	return resultAnswered
}

// giveBack ends what the gate let go.
func (c *call) giveBack(r result) {
	if !c.open {
		return
	}
	c.open = false
	if r == resultFailed && !c.got.slow() {
		c.f.pool.hosts.speaks(c.under, time.Now())
	}
	c.f.pool.hosts.ends(c.under)
	change := c.f.gates.done(c.pass, time.Now(), c.took, r)
	if !change.say {
		return
	}
	if change.opened {
		c.f.log.Warn("the breaker of a host opened: too many calls failed", "host", c.host(),
			"while_open", c.f.o.Breaker.WhileOpen, "next_try", time.Duration(c.f.o.Breaker.Open))
		return
	}
	c.f.log.Info("the breaker of a host closed: it answers again", "host", c.host(), "after", change.after)
}

// slow reports whether the host took too long, be it for an answer or for a connection.
func (o *outcome) slow() bool {
	var err net.Error
	return o.class == gotTimeout || errors.As(o.err, &err) && err.Timeout()
}

// release gives back what was let go and not tried.
func (c *call) release() { c.giveBack(resultNone) }

// failedProbe reports whether the last try was one of a host with an open breaker, whose events wait, and failed.
func (c *call) failedProbe() bool {
	return c.pass.probe && c.said == resultFailed && c.f.o.Breaker.WhileOpen != "error"
}

// probed has an event wait whose try of a host with an open breaker failed: that is no attempt.
func (c *call) probed(err error) bool {
	if !c.failedProbe() {
		return false
	}
	c.kept.spent -= c.took
	c.f.meters.retry(reasonHold)
	c.next.err = event.Hold(err, c.f.gates.failedProbe(c.pass, time.Now()))
	return true
}

// doubted has an event wait that would be given up though it is the host that fails: its breaker is open, or
// about to. A few quick attempts may all fall into the moment before it opens. The last one does not count.
func (c *call) doubted(err error) bool {
	if c.said != resultFailed || c.f.o.Breaker.WhileOpen == "error" || !c.f.gates.fails(c.pass) {
		return false
	}
	c.kept.spent -= c.took
	c.f.meters.retry(reasonHold)
	c.next.err = event.Hold(err, time.Now().Add(probeWait))
	return true
}
