package asynchttp

import (
	"slices"
	"testing"
	"time"
)

// goes lets n events that come at once through take, and returns when each went, in the order of their numbers.
func goes(n int, late time.Duration, take func(now, place time.Time) (time.Time, bool)) []time.Duration {
	var waiting []comer
	for id := range n {
		waiting = append(waiting, comer{id: id, at: began})
	}
	went := make([]time.Duration, n)
	for len(waiting) > 0 {
		i := next(waiting)
		w := &waiting[i]
		until, ok := take(w.at, w.place)
		if ok {
			went[w.id] = w.at.Sub(began)
			waiting = slices.Delete(waiting, i, i+1)
			continue
		}
		w.at, w.place = until.Add(late), until
	}
	return went
}

func TestRateLimitLetsEventsGoInOrderOfArrival(t *testing.T) {
	l := newLimiter(&RateLimitOptions{PerSecond: 50, Burst: 5})
	went := goes(200, 0, l.take)
	if !slices.IsSorted(went) {
		t.Errorf("events went at %v, want them in order", went)
	}
	if went[4] != 0 || went[5] == 0 {
		t.Errorf("the first went at %v, want five at once", went[:7])
	}
	if last := went[199]; last < 3890*time.Millisecond || last > 3910*time.Millisecond {
		t.Errorf("the last of 200 went after %v, want 3.9s", last)
	}
}

func TestRateLimitHoldsForCallsAsTheyAreSent(t *testing.T) {
	for _, late := range []time.Duration{0, 3 * time.Millisecond, 700 * time.Millisecond} {
		l := newLimiter(&RateLimitOptions{PerSecond: 50, Burst: 5})
		went := goes(500, late, l.take)
		slices.Sort(went)
		for i := range went {
			for j := i; j < len(went); j++ {
				if n, span := j-i+1, went[j]-went[i]; float64(n) > 50*span.Seconds()+5+1e-3 {
					t.Fatalf("%d events within %v, %v late; want at most 50 a second and 5", n, span, late)
				}
			}
		}
		if last := went[499]; last > 12*time.Second {
			t.Errorf("%v late: the last of 500 went after %v, want about 10s", late, last)
		}
	}
}

func TestAHostThatMayBeCalledAgainIsCalledAtItsUsualRate(t *testing.T) {
	var p pace
	p.begin(began, 200)
	went := goes(3000, 0, p.take)
	slices.Sort(went)
	for from, n := 0*time.Second, 0; from < 5*time.Second; from += time.Second {
		n = 0
		for _, at := range went {
			if at >= from && at < from+time.Second {
				n++
			}
		}
		if growth := 200 * (1 + from.Seconds()*0.2); n < 190 || float64(n) > growth*1.25 {
			t.Errorf("%d events in the second from %v on, want 200 and a little more each second", n, from)
		}
	}
	if _, ok := p.take(began.Add(time.Minute), time.Time{}); !ok || !p.from.IsZero() {
		t.Error("a minute later the host is not called as before")
	}
}
