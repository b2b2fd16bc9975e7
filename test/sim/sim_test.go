//go:build synctests

package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/test/sim"
)

var (
	seeds = flag.Uint64("seeds", 300, "how many seeds TestSeeds runs")
	start = flag.Uint64("start", 1, "the first seed of TestSeeds")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSeeds runs the simulation for every seed. All promises must hold under each.
func TestSeeds(t *testing.T) {
	var seedsOf []uint64
	for seed := *start; seed < *start+*seeds; seed++ {
		seedsOf = append(seedsOf, seed)
	}
	runAll(t, seedsOf)
}

// TestKept runs the seeds that have found a fault.
func TestKept(t *testing.T) { runAll(t, slices.Sorted(maps.Keys(sim.Kept()))) }

func runAll(t *testing.T, seeds []uint64) {
	var sum total
	t.Cleanup(func() { sum.say(t) })
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := sim.Run(sim.Draw(seed))
				sum.add(got)
				report(t, seed, got)
			})
		})
		if seed%betweenEvery != 0 {
			continue
		}
		t.Run(fmt.Sprintf("between=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { report(t, seed, sim.RunBetween(seed)) })
		})
	}
}

// TestSeedsExactlyOnce runs it with streams that work in transactions: each outcome is seen once.
func TestSeedsExactlyOnce(t *testing.T) {
	for seed := *start; seed < *start+*seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { report(t, seed, sim.Run(sim.DrawOnce(seed))) })
		})
		if seed%betweenEvery != 0 {
			continue
		}
		t.Run(fmt.Sprintf("between=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { report(t, seed, sim.RunBetweenOnce(seed)) })
		})
	}
}

// TestAnswerLost holds the ledger to the group's offsets where no worker is left to begin at them.
func TestAnswerLost(t *testing.T) {
	t.Run("seed=0", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got := sim.Run(sim.AnswerLost())
			report(t, 0, got)
			trace := strings.Join(got.Trace, "\n")
			for _, want := range []string{"w0 meets its end at EndTxn (before: false)", "w1 log: kafka: nothing is left to read"} {
				if !strings.Contains(trace, want) {
					t.Errorf("the trace does not hold %q:\n%s", want, trace)
				}
			}
		})
	})
}

// TestRates holds three workers to nearly three times the work of one. What they lack of it is that keys do not
// share out evenly.
func TestRates(t *testing.T) {
	for _, calls := range []int{2, 8} {
		t.Run(fmt.Sprintf("seed=%d", calls), func(t *testing.T) {
			var one, three float64
			synctest.Test(t, func(t *testing.T) { one = rate(t, 1, calls) })
			synctest.Test(t, func(t *testing.T) { three = rate(t, 3, calls) })
			t.Logf("%d calls at once each: one worker %.0f calls/s, three %.0f, ratio %.2f", calls, one, three, three/one)
			if most := 20 * float64(calls); one < 0.97*most || three < 2.7*one {
				t.Errorf("one worker makes %.0f of %.0f calls/s, and three %.2f times as many, want at least 2.7 times", one, most, three/one)
			}
		})
	}
}

func rate(t *testing.T, workers, calls int) float64 {
	got, broken := sim.Rate(workers, calls)
	for _, text := range broken {
		t.Error(text)
	}
	return got
}

// betweenEvery is which of the seeds are also those of workers before a repartition topic.
const betweenEvery = 3

func report(t *testing.T, seed uint64, got sim.Result) {
	if len(got.Broken) == 0 {
		return
	}
	if testing.Verbose() {
		for _, line := range got.Trace {
			t.Log(line)
		}
	}
	for _, text := range got.Broken {
		t.Error(text)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	t.Errorf("again: go test ./test/sim -run '%s$' -start %d -seeds 1 -v", name, seed)
}

// total sums up what happened under all seeds.
type total struct {
	mu                                                 sync.Mutex // guards all below
	seeds, events, calls, deaths, shared, gone, passed int
	deeds                                              map[string]int
}

func (s *total) add(got sim.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	s.events += got.Events
	s.calls += got.Calls
	s.deaths += got.Deaths
	s.shared += got.Shared
	s.gone += got.Gone
	s.passed += got.Passed
	if s.deeds == nil {
		s.deeds = map[string]int{}
	}
	for name, n := range got.Deeds {
		s.deeds[name] += n
	}
}

// say fails when a run of many seeds left out what rarely happens: then the plans have gone stale.
func (s *total) say(t *testing.T) {
	t.Logf("%d seeds: %d events, %d calls, %d streams stopped by an event, %d events taken along by a call for others, %d events compacted away, %d events passed over when they were read again",
		s.seeds, s.events, s.calls, s.deaths, s.shared, s.gone, s.passed)
	for _, name := range slices.Sorted(maps.Keys(s.deeds)) {
		t.Logf("%6d times %s", s.deeds[name], name)
	}
	if s.seeds >= 300 && (s.deaths == 0 || s.shared == 0 || s.gone == 0 || s.passed == 0) {
		t.Error("something that is to happen under some seeds never did")
	}
}
