//go:build unix

package mainjob_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// clockAPI notes when calls come. It can refuse one.
type clockAPI struct {
	mu      sync.Mutex // guards all below
	came    []time.Time
	armed   bool // the next call is refused
	refused time.Time
}

func (a *clockAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	refuse := a.armed
	a.armed = false
	now := time.Now()
	if refuse {
		a.refused = now
	} else {
		a.came = append(a.came, now)
	}
	a.mu.Unlock()
	if refuse {
		w.Header().Set("Retry-After", "2")
		http.Error(w, "too many", http.StatusTooManyRequests)
		return
	}
	takeTime(r)
	w.Header().Set("Content-Type", "application/json")
	id := r.URL.Query().Get("id")
	fmt.Fprintf(w, `{"id":%s,"text":"content of event %s"}`, id, id)
}

func (a *clockAPI) arm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = true
}

// between counts calls from one time until before another.
func (a *clockAPI) between(from, to time.Time) int {
	n := 0
	for _, at := range a.came {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// most returns the most calls within so long, between two times.
func (a *clockAPI) most(within time.Duration, from, to time.Time) int {
	n := 0
	for _, at := range a.came {
		if !at.Before(from) && !at.Add(within).After(to) {
			n = max(n, a.between(at, at.Add(within)))
		}
	}
	return n
}

// One of 64 workers is told by a host to come again in two seconds. None of them calls it before that, and then they call
// no faster than they did. The other host sees nothing of it.
func TestRetryAfterToOneOfManyWorkersHoldsAllAndNoOtherHost(t *testing.T) {
	rate, soon, more := 300, time.Second, 2.0
	if *full {
		rate, soon, more = 2000, 100*time.Millisecond, 1.25
	}
	refuses, other := &clockAPI{}, &clockAPI{}
	even, odd := httptest.NewServer(refuses), httptest.NewServer(other)
	defer even.Close()
	defer odd.Close()
	f := twoHosts(t, rate, even.URL, odd.URL)
	f.flow(3 * time.Second) // the group settles
	settled := time.Now()
	f.flow(4 * time.Second)
	armed := len(f.loaded)
	refuses.arm()
	f.flow(6 * time.Second)
	must(t, f.b.client.Flush(t.Context()))
	waitFor(t, "everything is committed", func() bool { return idle(t, f.b, group, inputTopic) })
	d, _ := checkDelivered(t, f.b, f.loaded)
	f.w.Terminate()
	f.w.Wait()

	told := refuses.refused
	again := told.Add(2 * time.Second)
	onTheWay, held := refuses.between(told, told.Add(soon)), refuses.between(told.Add(soon), again)
	if told.IsZero() || onTheWay > 64 || held > 0 {
		t.Errorf("in the two seconds after Retry-After: 2 there were %d calls, the last %d of them later than %v; want none but the up to 64 that were on their way",
			onTheWay+held, held, soon)
	}
	looked := again.Add(2 * time.Second)
	before, after := refuses.most(time.Second, settled, told), refuses.most(time.Second, again, looked)
	if len(refuses.came) == 0 || after == 0 || float64(after) > more*float64(before) {
		t.Errorf("up to %d calls within a second after that, want some, and no more than %.2f times the %d before", after, more, before)
	}
	meanwhile, written := other.between(told, again), f.ofOdd(armed)-f.ofOdd(armed+2*rate)
	if meanwhile < 64 || *full && float64(meanwhile) < 0.95*float64(written) {
		t.Errorf("%d calls of the other host in these two seconds, in which %d of its events were written; want that it keeps its rate", meanwhile, written)
	}
	t.Logf("Retry-After: 2 to one of 64 workers: events=%d %v; calls to the host in these two seconds=%d, the last %v after it was said; "+
		"calls within a second at most=%d before, %d in the two seconds after; within 100ms %d and %d; calls to the other host=%d, events written for it=%d",
		len(f.loaded), d, onTheWay+held, refuses.last(told, again).Sub(told).Round(time.Millisecond), before, after,
		refuses.most(time.Second/10, settled, told), refuses.most(time.Second/10, again, looked), meanwhile, written)
}

// last returns when the last call before a time came, from at the earliest.
func (a *clockAPI) last(from, before time.Time) time.Time {
	last := from
	for _, at := range a.came {
		if at.After(last) && at.Before(before) {
			last = at
		}
	}
	return last
}
