package asynchttp

import (
	"math"
	"testing"
	"time"
)

// The ways that others find a limit by, as docs/decisions/0050-adaptive-concurrency.md compares them. Each
// is told of an answer at a time, and says how many calls may run.

// aimd adds one while answers come within a time, and takes a tenth off at one that does not.
func aimd(within time.Duration) func(time.Duration, int) float64 {
	limit := 8.0
	return func(took time.Duration, running int) float64 {
		switch {
		case took > within:
			limit = max(1, limit*0.9)
		case float64(running+1)*2 >= limit:
			limit = min(128, limit+1)
		}
		return limit
	}
}

// gradient compares the time of an answer to a long average, as Netflix's Gradient2Limit does.
func gradient() func(time.Duration, int) float64 {
	limit, long, n := 20.0, 0.0, 0.0
	return func(took time.Duration, running int) float64 {
		short := took.Seconds()
		if n++; n <= 10 {
			long += (short - long) / n
		} else {
			long += (short - long) * 2 / 601
		}
		if long > 2*short {
			long *= 0.9
		}
		if float64(running+1) < limit/2 {
			return limit
		}
		slope := math.Max(0.5, math.Min(1, long/short))
		limit = 0.8*limit + 0.2*(limit*slope+4)
		limit = math.Max(1, math.Min(128, limit))
		return limit
	}
}

// vegas takes the shortest answer for that of a server that is not loaded, as Netflix's VegasLimit does.
func vegas() func(time.Duration, int) float64 {
	limit, base, n := 20.0, 0.0, 0.0
	return func(took time.Duration, running int) float64 {
		rtt := took.Seconds()
		if n++; n >= 0.75*30*limit {
			n, base = 0, rtt
			return limit
		}
		if base == 0 || rtt < base {
			base = rtt
			return limit
		}
		if float64(running+1)*2 < limit {
			return limit
		}
		log := max(1, math.Floor(math.Log10(limit)))
		switch queue := math.Ceil(limit * (1 - base/rtt)); {
		case queue <= log:
			limit += 6 * log
		case queue < 3*log:
			limit += log
		case queue > 6*log:
			limit -= log
		}
		limit = math.Max(1, math.Min(128, limit))
		return limit
	}
}

func TestAdaptiveIsNoWorseThanOtherWays(t *testing.T) {
	worst := map[string]float64{}
	for _, power := range []float64{1, 4} {
		for _, spread := range []float64{0.5} {
			ways := map[string]*simulated{
				"this one":   {limit: newAdaptive(128, began)},
				"aimd 40ms":  {other: aimd(40 * time.Millisecond), allowed: 8},
				"aimd 100ms": {other: aimd(100 * time.Millisecond), allowed: 8},
				"gradient":   {other: gradient(), allowed: 20},
				"vegas":      {other: vegas(), allowed: 20},
			}
			for name, s := range ways {
				s.workers, s.events, s.answer = 128, 1000, degrading(power, spread, phases)
				got := s.run(2 * time.Minute)
				for i, carries := range []int{32, 16, 32, 64} {
					answers, limit := mean(got[i*30+10 : i*30+30])
					share := answers / bestFixed(carries)
					if old, ok := worst[name]; !ok || share < old {
						worst[name] = share
					}
					t.Logf("power %v spread %v carries %d: %-10s %3.0f%% of the best, limit %.1f", power, spread, carries, name, 100*share, limit)
				}
			}
		}
	}
	t.Logf("worst: %v", worst)
	for name, share := range worst {
		if share > worst["this one"]+0.01 {
			t.Errorf("%s is at %.2f of the best fixed number at its worst, adaptive at %.2f", name, share, worst["this one"])
		}
	}
}
