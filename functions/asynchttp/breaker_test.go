package asynchttp

import (
	"slices"
	"testing"
	"time"

	"github.com/a0c75104/enricher/functions"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func usualBreaker() breaker {
	return newBreaker(BreakerOptions{Failures: 0.5, Calls: 20, Open: functions.Duration(5 * time.Second)}, 64, began)
}

// end reports one call to a closed breaker.
func end(b *breaker, now time.Time, r result) (opened bool) {
	opened, _ = b.done(now, pass{era: b.era}, r)
	return opened
}

func TestTheBreakerOpensWhereItsShareOfTheLatestCallsFails(t *testing.T) {
	tests := []struct {
		name string
		gap  time.Duration // between calls
		ends string        // of each call: . answered, x failed, t throttled, - nothing
		want int           // the call that opens it; 0: none
	}{
		{"fewer calls than it takes", time.Millisecond, "xxxxxxxxxxxxxxxxxxx", 0},
		{"all fail", time.Millisecond, "xxxxxxxxxxxxxxxxxxxx", 20},
		{"every other fails", time.Millisecond, ".x.x.x.x.x.x.x.x.x.x", 20},
		{"a little fewer", time.Millisecond, "..x.x.x.x.x.x.x.x.x.x.x", 0},
		{"rarely called, the last ones count", time.Minute, "............................xxxxxxxxxx", 38},
		{"rarely called, failures of long ago do not", time.Minute, "xxxxxxxxx....................xxxxxxxxx", 0},
		{"throttled is no failure", time.Millisecond, "tttttttttttttttttttttttttttttttttttttttt", 0},
		{"cancelled is nothing", time.Millisecond, "xxxxxxxxxxxxxxxxxxx-------------x", 33},
	}
	results := map[rune]result{'.': resultAnswered, 'x': resultFailed, 't': resultThrottled, '-': resultNone}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b, got := usualBreaker(), 0
			for i, e := range tc.ends {
				if end(&b, began.Add(time.Duration(i)*tc.gap), results[e]) {
					got = i + 1
					break
				}
			}
			if got != tc.want {
				t.Errorf("opened at call %d, want %d", got, tc.want)
			}
		})
	}
}

func TestMinutesOfGoodCallsDoNotHideAnOutage(t *testing.T) {
	b := usualBreaker()
	now := began
	for range 100_000 {
		end(&b, now, resultAnswered)
		now = now.Add(time.Second / 2000)
	}
	down := now
	for !end(&b, now, resultFailed) {
		if now = now.Add(time.Second / 2000); now.Sub(down) > time.Second {
			t.Fatal("still closed a second after all calls began to fail")
		}
	}
}

// opened returns a breaker that opened at the returned time.
func opened(t *testing.T) (breaker, time.Time) {
	t.Helper()
	b := usualBreaker()
	for range 20 {
		end(&b, began, resultFailed)
	}
	if !b.isOpen() || b.due(began) || b.due(began.Add(5*time.Second-1)) || !b.due(began.Add(5*time.Second)) {
		t.Fatal("want it open, and a try after five seconds")
	}
	return b, began
}

func TestTriesTakeTheWaitingEventsInTurn(t *testing.T) {
	b, now := opened(t)
	type waiter struct {
		id int
		at time.Time
	}
	var waiting []waiter
	for id := range 5 {
		waiting = append(waiting, waiter{id, b.hold(now, 10*time.Millisecond)})
	}
	var tried []int
	for len(tried) < 10 {
		slices.SortStableFunc(waiting, func(a, b waiter) int { return a.at.Compare(b.at) })
		w := &waiting[0]
		now = w.at
		if !b.due(now) {
			w.at = b.hold(now, 10*time.Millisecond)
			continue
		}
		tried = append(tried, w.id)
		p := pass{probe: true, era: b.era}
		b.probe(now)
		b.done(now.Add(time.Millisecond), p, resultFailed)
		w.at = b.again(now.Add(time.Millisecond))
	}
	for i := 1; i < len(tried); i++ {
		if tried[i] == tried[i-1] {
			t.Errorf("tries by events %v: one came twice in a row", tried)
		}
	}
	seen := slices.Clone(tried)
	slices.Sort(seen)
	if len(slices.Compact(seen)) < 4 {
		t.Errorf("tries by events %v, want them shared among the five", tried)
	}
	if took := now.Sub(began); took > 10*5*time.Second+time.Second {
		t.Errorf("ten tries took %v, want one every five seconds", took)
	}
}

func TestATryThatHangsDoesNotKeepTheNextFromTrying(t *testing.T) {
	b, now := opened(t)
	passes := make([]pass, 3)
	for i := range passes {
		now = now.Add(5 * time.Second)
		if !b.due(now) {
			t.Fatalf("no try %v after the breaker opened, with %d that hang", now.Sub(began), i)
		}
		passes[i] = pass{probe: true, era: b.era}
		b.probe(now)
		if b.due(now.Add(5*time.Second - 1)) {
			t.Error("a second try at the same time")
		}
	}
	if _, closed := b.done(now, passes[2], resultAnswered); !closed || b.isOpen() {
		t.Error("the try that was answered did not close it")
	}
	for _, p := range []pass{passes[0], {era: 0}} {
		if o, _ := b.done(now, p, resultFailed); o || b.isOpen() || b.recent.seen != 0 || b.probes != 0 {
			t.Error("what began before counts against the host that answers again")
		}
	}
}

func TestTriesThatHangLeaveMostWorkersFree(t *testing.T) {
	b, now := opened(t)
	n := 0
	for range 100 {
		if now = now.Add(5 * time.Second); b.due(now) {
			b.probe(now)
			n++
		}
	}
	if n != 16 {
		t.Errorf("%d tries hang, want at most a quarter of 64 workers", n)
	}
	if at := b.hold(now, time.Millisecond); at.Sub(now) < time.Second {
		t.Errorf("an event that can be no try comes back after %v", at.Sub(now))
	}
}

func TestACancelledTryLeavesItsPlaceToTheNext(t *testing.T) {
	b, now := opened(t)
	now = now.Add(5 * time.Second)
	p := pass{probe: true, era: b.era}
	b.probe(now)
	b.done(now.Add(time.Second), p, resultNone)
	if !b.due(now.Add(time.Second)) {
		t.Error("no other event may try until the next turn")
	}
}

func TestEventsThatWaitForAHostDoNotComeBackAtOnce(t *testing.T) {
	b, now := opened(t)
	var at []time.Duration
	for range 20_000 {
		at = append(at, b.hold(now, time.Second/2000).Sub(now))
	}
	slices.Sort(at)
	if at[0] != 5*time.Second || at[len(at)-1] > 10*time.Second {
		t.Errorf("they come back %v to %v later, want from the next try on, within the one after", at[0], at[len(at)-1])
	}
	for i, n := 0, 0; i < len(at); i += n {
		for n = 0; i+n < len(at) && at[i+n]-at[i] < 100*time.Millisecond; n++ {
		}
		if n > 700 {
			t.Errorf("%d of 20000 come back within 100ms", n)
		}
	}
}
