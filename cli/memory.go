package cli

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/a0c75104/enricher/pipeline"
)

const (
	// idleMemory is what a process takes that has nothing to do, beside its code.
	idleMemory = 32 << 20
	// lookAtMemory is how often the limit is fitted to what is in use.
	lookAtMemory = time.Second
)

// boundMemory keeps Go's runtime within what the pipelines say that their events take at most, until the function
// that it returns is called. Left to itself the runtime lets the heap double before it collects garbage, and a process
// that waits for a sink would take twice its limits. A replay runs a pipeline as any run does. GOMEMLIMIT in the environment is the user's own word.
func boundMemory(loaded []*pipeline.Pipeline, log *slog.Logger) (release func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	bound := int64(idleMemory)
	for _, p := range loaded {
		worst, err := p.WorstCaseBytes()
		if err != nil {
			return func() {}
		}
		bound += worst.Total()
	}
	before := debug.SetMemoryLimit(bound)
	log.Debug("the memory of Go's runtime is bounded", "bytes", bound)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		fitMemory(ctx, bound)
	}()
	return func() {
		stop()
		<-done
		debug.SetMemoryLimit(before)
	}
}

// fitMemory lets the limit give way to what is in use all the same, until ctx ends: large answers while they are read,
// what functions keep, the broker inside the process. A limit that is used up has the runtime do nothing but collect.
func fitMemory(ctx context.Context, bound int64) {
	tick := time.NewTicker(lookAtMemory)
	defer tick.Stop()
	fit := memoryFit{bound: bound, limit: bound}
	read := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(read)
		if fit.look(int64(read[0].Value.Uint64()), read[1].Value.Uint64()) {
			debug.SetMemoryLimit(fit.limit)
		}
	}
}

// memoryFit is what fitMemory knows.
type memoryFit struct {
	bound, limit int64
	live         int64  // after the last collection that was looked at
	cycles       uint64 // collections by then
}

// look takes note of what was in use when garbage was collected last, and reports whether the limit has changed. What
// is allocated while a collection runs counts as in use until the next one, be it garbage or not: the limit goes by the less of
// two, or a few large texts at such a moment would let the heap grow by half as much again.
func (f *memoryFit) look(live int64, cycles uint64) bool {
	if cycles == f.cycles {
		return false
	}
	limit := memoryLimit(f.bound, min(f.live, live))
	f.live, f.cycles = live, cycles
	changed := limit != f.limit
	f.limit = limit
	return changed
}

// memoryLimit returns the limit for a heap of which so much is in use: half as much again has room in it.
func memoryLimit(bound, live int64) int64 {
	return max(bound, live+live/2+idleMemory)
}
