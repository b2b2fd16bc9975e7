//go:build !synctests

package sim_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/sim"
)

var (
	seeds = flag.Uint64("seeds", 300, "how many seeds TestSeeds runs")
	start = flag.Uint64("start", 1, "the first seed of TestSeeds")
)

// withRace is how many of the seeds run a second time with the race detector, where it is asked for: it
// makes them ten times slower.
const withRace = 40

// TestSeeds runs the simulation for every seed. All promises must hold under each.
//
// It runs in a second go test with the build tag synctests, with which franz-go's own locks let virtual
// time go on: a commit that waits for a rebalance waits on such a lock.
func TestSeeds(t *testing.T) {
	t.Run("all", func(t *testing.T) { runSeeds(t, "TestSeeds", *seeds) })
	if raceEnabled {
		t.Run("race", func(t *testing.T) { runSeeds(t, "TestSeeds", min(*seeds, withRace), "-race") })
	}
}

// TestSeedsExactlyOnce runs a third as many with streams that work in transactions.
func TestSeedsExactlyOnce(t *testing.T) { runSeeds(t, "TestSeedsExactlyOnce", (*seeds+2)/3) }

// TestThreeWorkersOverARepartitionTopicDoThreeTimesTheWork runs the rates, of two numbers of calls at once.
func TestThreeWorkersOverARepartitionTopicDoThreeTimesTheWork(t *testing.T) {
	runSeeds(t, "TestRates", 2)
}

// TestWhatADeadWorkerHasCommittedIsFinished runs a bounded read whose worker dies before it is told of its last commit.
func TestWhatADeadWorkerHasCommittedIsFinished(t *testing.T) { runSeeds(t, "TestAnswerLost", 1) }

// TestKeptSeeds runs the seeds that have found a fault.
func TestKeptSeeds(t *testing.T) { runSeeds(t, "TestKept", uint64(len(sim.Kept()))) }

func runSeeds(t *testing.T, test string, n uint64, flags ...string) {
	// A seed whose virtual time stands still would never end by itself.
	limit := max(4*time.Minute, time.Duration(n)*time.Second)
	args := append([]string{"test", "-tags", "synctests", "-count", "1", "-timeout", limit.String()}, flags...)
	args = append(args, ".", "-run", "^"+test+"$", "-seeds", fmt.Sprint(n), "-start", fmt.Sprint(*start), "-v")
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	ran := len(regexp.MustCompile(`(?m)^    --- (PASS|FAIL): `+test+`/seed=`).FindAll(out, -1))
	if err != nil {
		t.Errorf("%d of %d seeds ran: %v\n%s", ran, n, err, failures(out))
		return
	}
	if uint64(ran) != n {
		t.Errorf("%d seeds ran, want %d\n%s", ran, n, failures(out))
	}
	t.Logf("passed: %s", regexp.MustCompile(`[0-9]+ seeds: .*`).Find(out))
}

// failures leaves out traces and what passed, unless the test is verbose.
func failures(out []byte) string {
	if testing.Verbose() {
		return string(out)
	}
	var text strings.Builder
	for line := range bytes.Lines(out) {
		trace := traceLine.Match(line)
		if bytes.HasPrefix(line, []byte("=== ")) || bytes.Contains(line, []byte("--- PASS")) || trace {
			continue
		}
		text.Write(line)
	}
	return text.String()
}

var traceLine = regexp.MustCompile(`^ +sim_test\.go:\d+: +[0-9.]+[a-zµ0-9.]* {2}`)

// The default seeds must draw whatever the plans know, else a promise is checked by nobody.
func TestTheDefaultSeedsDrawEverything(t *testing.T) {
	drawn := map[string]int{}
	for seed := uint64(1); seed <= 300; seed++ {
		for _, name := range sim.Draw(seed).Drawn() {
			drawn[name]++
		}
	}
	for _, name := range sim.Drawable() {
		if drawn[name] < 3 {
			t.Errorf("%q is drawn by %d of 300 seeds, want 3 at least", name, drawn[name])
		}
		t.Logf("%4d %s", drawn[name], name)
	}
}
