//go:build unix

// These tests measure the real binary: a broker, and workers that are stopped and killed, each in a
// process of its own. With -full they have the size of the first release's promises; see `make mainjob`.
package mainjob_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// patience bounds every wait for what must come.
var patience = time.Minute

var full = flag.Bool("full", false, "run the scenarios at full size: 100,000 events over 10,000 keys")

// Paths of what TestMain builds.
var enricherBinary, brokerBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	if *full {
		patience = 5 * time.Minute
	}
	commands := map[*string]string{&enricherBinary: "../../cmd/enricher", &brokerBinary: "./broker"}
	os.Exit(job.Main(commands, m.Run)) //nolint:forbidigo // TestMain ends the process
}

// size is how much a scenario has to do.
type size struct{ events, keys int }

// scenarioSize is full or small, by the flag.
func scenarioSize() size {
	if *full {
		return size{events: 100_000, keys: 10_000}
	}
	return size{events: 4_000, keys: 400}
}

// limit is the setting that bounds what is in flight: the default, or so little that a small job has a middle.
func (s size) limit() string {
	return fmt.Sprintf("limits.in_flight_events=%d", min(10_000, s.events/8))
}

// commitInterval is the setting that makes commits come in a small job too.
func (s size) commitInterval() string {
	if *full {
		return "commit_interval=1s"
	}
	return "commit_interval=100ms"
}

// waitFor polls until cond holds, and fails the test when patience is over.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	job.WaitFor(t, patience, what, cond)
}
