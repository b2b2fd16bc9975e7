package asynchttp

import (
	"slices"
	"testing"
	"time"
)

// comer is an event that waits for something, and when it comes back.
type comer struct {
	id    int
	at    time.Time
	place time.Time
}

func next(waiting []comer) int {
	first := 0
	for i := range waiting {
		if waiting[i].at.Before(waiting[first].at) {
			first = i
		}
	}
	return first
}

func TestRetriesStayWithinTheirShareOfTheCalls(t *testing.T) {
	now := began
	s := newShare(0.1, 64, now)
	var waiting []comer
	calls, retries, second := 0, 0, []int{}
	for step := range 30_000 { // of a millisecond: a call in each, and all fail
		now = began.Add(time.Duration(step) * time.Millisecond)
		s.first(now)
		calls++
		if len(waiting) < 300 { // the limits of a pipeline stop the reading
			waiting = append(waiting, comer{id: step, at: now})
		}
		for len(waiting) > 0 {
			i := next(waiting)
			w := &waiting[i]
			if w.at.After(now) {
				break
			}
			until, ok := s.retry(now, w.place)
			if !ok {
				w.at, w.place = until, until
				continue
			}
			retries++
			waiting = slices.Delete(waiting, i, i+1)
		}
		if step%1000 == 999 {
			second = append(second, retries)
		}
		if bound := 0.1*float64(calls) + now.Sub(began).Seconds() + 64; float64(retries) > bound {
			t.Fatalf("%d retries after %d calls and %v, want at most %.0f", retries, calls, now.Sub(began), bound)
		}
	}
	if per := float64(second[29]-second[9]) / 20; per < 95 {
		t.Errorf("%.1f retries per second for 1000 calls, want 101: what is allowed is not used", per)
	}
}

func TestOneRetryASecondIsAlwaysAllowed(t *testing.T) {
	s := newShare(0, 1, began)
	var went []time.Duration
	var waiting []comer
	for id := range 40 {
		waiting = append(waiting, comer{id: id, at: began})
	}
	for len(waiting) > 0 {
		i := next(waiting)
		w := &waiting[i]
		if until, ok := s.retry(w.at, w.place); !ok {
			if until.Sub(w.at) > 5*time.Second {
				t.Fatalf("told to come back after %v", until.Sub(w.at))
			}
			w.at, w.place = until, until
			continue
		}
		went = append(went, w.at.Sub(began))
		waiting = slices.Delete(waiting, i, i+1)
	}
	if went[9] != 0 || went[10] == 0 {
		t.Errorf("retries went after %v, want ten at once", went)
	}
	for i := 10; i < len(went); i++ {
		if n := float64(i+1) - 10; n > went[i].Seconds()+0.001 || n < went[i].Seconds()-5 {
			t.Errorf("%.0f retries within %v, want about one a second", n, went[i])
		}
	}
	if last := went[len(went)-1]; last > 45*time.Second {
		t.Errorf("the last of 30 went after %v", last)
	}
}

func TestARetryThatAlsoWaitsForTheRateIsCountedOnce(t *testing.T) {
	o := Options{RateLimit: &RateLimitOptions{PerSecond: 20, Burst: 1, Per: "all"}} // a share of 0: what is saved up, and one a second
	g := newGates(o, 1, newGateMetrics(nil).of("f"), began)
	type event struct {
		at time.Time
		c  claim
	}
	waiting := make([]event, 10)
	for i := range waiting {
		waiting[i] = event{at: began, c: claim{tried: true, retry: true}}
	}
	now := began
	for len(waiting) > 0 {
		slices.SortStableFunc(waiting, func(a, b event) int { return a.at.Compare(b.at) })
		now = waiting[0].at
		a := g.admit("h", now, &waiting[0].c, time.Time{})
		if a.why == whyNot {
			g.done(a.pass, now, 0, resultAnswered)
			waiting = waiting[1:]
			continue
		}
		waiting[0].at = a.until
	}
	if took := now.Sub(began); took > 600*time.Millisecond {
		t.Errorf("ten retries took %v at 20 a second", took)
	}
}
