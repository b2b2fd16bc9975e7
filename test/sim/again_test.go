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
)

var (
	seeds = flag.Uint64("seeds", 20, "how many seeds TestSeeds runs")
	start = flag.Uint64("start", 1, "the first seed of TestSeeds")
)

// TestSeeds runs the simulation for every seed. All promises must hold under each.
//
// It runs in a second go test with the build tag synctests, with which franz-go's own locks let virtual
// time go on: a commit that waits for a rebalance waits on such a lock.
func TestSeeds(t *testing.T) {
	args := []string{"test", "-tags", "synctests", "-count", "1", "-timeout", "20m"}
	if raceEnabled {
		args = append(args, "-race")
	}
	args = append(args, ".", "-run", "^TestSeeds$", "-seeds", fmt.Sprint(*seeds), "-start", fmt.Sprint(*start), "-v")
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	ran := len(regexp.MustCompile(`(?m)^    --- (PASS|FAIL): TestSeeds/seed=`).FindAll(out, -1))
	if err != nil {
		t.Errorf("%d of %d seeds ran: %v\n%s", ran, *seeds, err, failures(out))
		return
	}
	if uint64(ran) != *seeds {
		t.Errorf("%d seeds ran, want %d\n%s", ran, *seeds, failures(out))
	}
	t.Logf("%d seeds passed", ran)
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
