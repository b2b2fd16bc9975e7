package asynchttp

import "time"

const (
	alwaysPerSecond = 1.0             // retries that are always allowed
	leastCredit     = 10              // retries that are saved up at most, where there are few workers
	creditOfCalls   = 10.0            // and where the share is large, those of so many calls
	shareAhead      = 5 * time.Second // a retry that waits looks again so often
)

// share bounds the retries of a host against its calls. It is a bucket of tokens: each first try of an
// event adds a share of one, each second one, and each retry takes one. So the bound holds over any span,
// however the calls come, a quiet hour saves up no more than one retry for each worker (which a moment in
// which all running calls break off needs), and a host costs a few numbers. A window would have to
// remember when each call was.
type share struct {
	ratio  float64
	credit float64 // at most
	tokens float64
	filled time.Time
	calls  pulse // first tries
	line   line
}

func newShare(ratio float64, workers int, now time.Time) share {
	credit := max(leastCredit, float64(workers), creditOfCalls*ratio)
	return share{ratio: ratio, credit: credit, tokens: credit, filled: now, calls: pulse{start: now}}
}

// first notes a first try.
func (s *share) first(now time.Time) {
	s.fill(now)
	s.tokens = min(s.credit, s.tokens+s.ratio)
	s.calls.add(now)
}

// retry takes a token for a retry, or returns when it is to come back for one.
func (s *share) retry(now, place time.Time) (until time.Time, ok bool) {
	s.fill(now)
	if s.tokens > 1-1e-6 && s.line.turn(now, place) {
		s.tokens--
		return time.Time{}, true
	}
	per := alwaysPerSecond + s.ratio*s.calls.perSecond(now)
	return s.line.wait(now, place, seconds(1/per), seconds(max(0, 1-s.tokens)/per), shareAhead), false
}

func (s *share) fill(now time.Time) {
	if d := now.Sub(s.filled); d > 0 {
		s.tokens = min(s.credit, s.tokens+d.Seconds()*alwaysPerSecond)
		s.filled = now
	}
}

// pulse measures how many come per second, over the seconds in which any came.
type pulse struct {
	start  time.Time
	second int64
	count  int
	rate   float64 // 0: no whole second has passed
}

func (p *pulse) add(now time.Time) {
	if second := int64(now.Sub(p.start) / time.Second); second != p.second {
		p.fold(second == p.second+1)
		p.second = second
	}
	p.count++
}

// fold takes a second that is over into the rate. One after which none came was cut short: it says only that
// the rate is not less.
func (p *pulse) fold(whole bool) {
	switch {
	case !whole && float64(p.count) < p.rate:
	case p.rate == 0:
		p.rate = float64(p.count)
	default:
		p.rate += 0.3 * (float64(p.count) - p.rate)
	}
	p.count = 0
}

// perSecond returns the rate as of now: 0 where nothing came for two seconds.
func (p *pulse) perSecond(now time.Time) float64 {
	switch age := int64(now.Sub(p.start)/time.Second) - p.second; {
	case age > 1:
		return 0
	case p.rate == 0:
		return float64(p.count)
	}
	return p.rate
}

// usual returns the rate when something came last.
func (p *pulse) usual() float64 { return p.rate }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
