package asynchttp

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// limiter is rate_limit. Who finds no token gets a place, so that events go in order of arrival, and asks
// for the token when its time has come: the rate holds for the calls as they are sent, however late the
// events come back.
type limiter struct {
	tokens *rate.Limiter
	gap    time.Duration
	line   line
}

func newLimiter(o *RateLimitOptions) *limiter {
	return &limiter{tokens: rate.NewLimiter(rate.Limit(o.PerSecond), o.Burst), gap: seconds(1 / o.PerSecond)}
}

// take takes a token, or returns when the event is to come back for one.
func (l *limiter) take(now, place time.Time) (until time.Time, ok bool) {
	if l.line.turn(now, place) && l.tokens.AllowN(now, 1) {
		return time.Time{}, true
	}
	missing := max(0, 1-l.tokens.TokensAt(now))
	return l.line.wait(now, place, l.gap, seconds(missing*l.gap.Seconds())+1, 0), false
}

// idle reports whether nobody waits, and all tokens are there.
func (l *limiter) idle(now time.Time) bool {
	return !l.line.next.After(now) && l.tokens.TokensAt(now) >= float64(l.tokens.Burst())
}

const (
	paceFor    = 30 * time.Second // after so long a host is called as before
	paceAhead  = 5 * time.Second
	paceGrowth = 1.1  // per second, from the rate that was usual
	paceLeast  = 10.0 // calls per second that are always allowed
	paceFirst  = 32.0 // where no rate was usual yet; it doubles each second
	paceBurst  = 20   // so many bursts a second
)

// pace keeps the events that waited for a host from all going at once when the wait is over. For half a
// minute they go at the rate that was usual before, and a little more each second.
type pace struct {
	from   time.Time // zero: there is none
	usual  float64
	tokens *rate.Limiter
	line   line
}

func (p *pace) begin(from time.Time, usual float64) {
	p.from, p.usual, p.line = from, usual, line{}
	p.tokens = rate.NewLimiter(rate.Limit(p.perSecond(from)), 1)
}

func (p *pace) perSecond(now time.Time) float64 {
	t := max(0, now.Sub(p.from).Seconds())
	if p.usual == 0 {
		return paceFirst * math.Pow(2, t)
	}
	return max(paceLeast, p.usual) * math.Pow(paceGrowth, t)
}

// take lets an event go, or returns when it is to come back.
func (p *pace) take(now, place time.Time) (until time.Time, ok bool) {
	if p.from.IsZero() {
		return time.Time{}, true
	}
	if now.Sub(p.from) > paceFor {
		*p = pace{}
		return time.Time{}, true
	}
	per := p.perSecond(now)
	p.tokens.SetLimitAt(now, rate.Limit(per))
	p.tokens.SetBurstAt(now, max(1, int(per/paceBurst)))
	if p.line.turn(now, place) && p.tokens.AllowN(now, 1) {
		return time.Time{}, true
	}
	return p.line.wait(now, place, seconds(1/per), seconds(max(0, 1-p.tokens.TokensAt(now))/per)+1, paceAhead), false
}

// gapAt is the time between two calls at a usual rate.
func gapAt(usual float64) time.Duration {
	if usual == 0 {
		usual = paceFirst
	}
	return seconds(1 / max(paceLeast, usual))
}
