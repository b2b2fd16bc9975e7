//go:build unix

// Suites on Apache Kafka's own broker: what must hold when workers, brokers and the network fail. README.md says how
// to write one.
package kafka_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

var (
	full       = flag.Bool("full", false, "run the suites with all their rounds")
	reportFile = flag.String("report", "", "write the table of what the suites found to this file, or between its marks, if it has such")
)

// patience bounds every wait for what must come.
const patience = 2 * time.Minute

// enricherBinary is what TestMain builds.
var enricherBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	commands := map[*string]string{}
	if cluster.Check() == nil { // otherwise the suites say what is missing
		commands[&enricherBinary] = "../../cmd/enricher"
	}
	os.Exit(job.Main(commands, func() int { return runTests(m) })) //nolint:forbidigo // TestMain ends the process
}

func runTests(m *testing.M) int {
	defer shared.close()
	status := m.Run()
	if err := report.write(*reportFile, status == 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// rounds is how often a suite does what it is about: in make test, and in full.
func rounds(few, all int) int {
	if *full {
		return all
	}
	return few
}

// shared are the clusters that suites have in common, each started by the first that asks for it. To start one is what
// takes longest; a suite that needs another one, of its own, calls cluster.Start.
var shared clusters

type clusters struct {
	mu      sync.Mutex // guards started
	started map[int]*cluster.Cluster
}

// one returns the plain cluster of one node.
func (s *clusters) one(t *testing.T) *cluster.Cluster {
	t.Helper()
	return s.get(t, cluster.Options{Nodes: 1, Proxy: true})
}

// three returns the plain cluster of three nodes. A suite leaves them running.
func (s *clusters) three(t *testing.T) *cluster.Cluster {
	t.Helper()
	return s.get(t, cluster.Options{Nodes: 3})
}

func (s *clusters) get(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	cluster.Need(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.started[o.Nodes]
	if c == nil {
		var err error
		c, err = cluster.New(t.Context(), o)
		must(t, err)
		if s.started == nil {
			s.started = map[int]*cluster.Cluster{}
		}
		s.started[o.Nodes] = c
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Tails(30))
		}
	})
	return c
}

func (s *clusters) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.started {
		if err := c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	job.Must(t, err)
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	job.WaitFor(t, patience, what, cond)
}

// within returns a context that ends after d, or with the test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// pause waits for d, as a part of what a suite does to a worker or a broker: not for luck.
func pause(t testing.TB, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
