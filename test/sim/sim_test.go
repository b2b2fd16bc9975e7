//go:build synctests

package sim_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/test/sim"
)

var (
	seeds = flag.Uint64("seeds", 20, "how many seeds TestSeeds runs")
	start = flag.Uint64("start", 1, "the first seed of TestSeeds")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSeeds runs the simulation for every seed. All promises must hold under each.
func TestSeeds(t *testing.T) {
	for seed := *start; seed < *start+*seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				report(t, seed, sim.Run(sim.Draw(seed)))
			})
		})
	}
}

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
	t.Errorf("again: go test ./test/sim -run TestSeeds -start %d -seeds 1 -v", seed)
}
