package cli_test

import (
	"context"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/a0c75104/enricher/cli"
)

// runLines runs a pipeline of lines, calls while with it running, and stops it.
func runLines(t *testing.T, while func()) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "lines.yaml", "name: lines\nsource: {file: {path: '-'}}\nsink: {file: {path: '-'}}\ngateway: {listen: 127.0.0.1:0}\n")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	in, feed := io.Pipe()
	written := make(chan struct{}, 1)
	ended := make(chan int, 1)
	go func() {
		sink := writerFunc(func(b []byte) (int, error) { written <- struct{}{}; return len(b), nil })
		ended <- cli.Run(ctx, []string{"run", filepath.Join(dir, "lines.yaml")}, in, sink, io.Discard)
	}()
	if _, err := io.WriteString(feed, "1\n"); err != nil {
		t.Fatal(err)
	}
	<-written
	while()
	stop()
	_ = feed.Close()
	if got := <-ended; got != 0 {
		t.Errorf("status %d, want 0", got)
	}
}

// memoryBound is the limit of Go's runtime now.
func memoryBound() int64 { return debug.SetMemoryLimit(-1) }

func TestMemoryIsBoundedByWhatTheEventsMayTakeAndGivesWayToWhatIsInUse(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	runLines(t, func() {
		if got := memoryBound() >> 20; got != 104 {
			t.Errorf("the limit is %d MiB, want 64 in flight, 8 at the ends and 32 of an idle process", got)
		}
		kept := make([]byte, 200<<20)
		runtime.GC()
		deadline := time.After(patience)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for memoryBound() < 300<<20 {
			runtime.GC() // as in a process that allocates: one collection alone may be mistaken
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("the limit is %d MiB with 200 MiB in use, want 300 MiB at least", memoryBound()>>20)
			}
		}
		runtime.KeepAlive(kept)
	})
	if got := memoryBound(); got != math.MaxInt64 {
		t.Errorf("the limit is %d after the run, want none as before", got)
	}
}

// What is allocated while a collection runs counts as in use until the next: large texts at that moment are no reason to
// let the heap grow.
func TestTheLimitOfMemoryDoesNotGoByWhatOneCollectionAloneLeft(t *testing.T) {
	const mib = 1 << 20
	fit := cli.NewMemoryFit(100 * mib)
	for i, look := range []struct {
		live   int64
		cycles uint64
		limit  int64
	}{
		{40, 1, 100},
		{300, 2, 100}, // a moment
		{300, 2, 100}, // there was no other collection, so nothing grows
		{60, 3, 122},
		{50, 4, 107},
		{300, 5, 107},
		{280, 6, 452}, // it stays
		{300, 7, 452},
		{20, 9, 100},
	} {
		before := fit.Limit()
		changed := fit.Look(look.live*mib, look.cycles)
		if got := fit.Limit() / mib; got != look.limit || changed != (fit.Limit() != before) {
			t.Errorf("look %d, %d MiB in use after collection %d: the limit is %d MiB, changed %v, want %d", i, look.live, look.cycles, got, changed, look.limit)
		}
	}
}

func TestALimitOfMemoryInTheEnvironmentIsTheUsersOwn(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "1GiB")
	runLines(t, func() {
		if got := memoryBound(); got != math.MaxInt64 { // the runtime reads the variable when a process starts
			t.Errorf("the limit is %d, want it untouched", got)
		}
	})
}
