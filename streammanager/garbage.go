package streammanager

import (
	"math"
	"runtime"
	"runtime/debug"
	gometrics "runtime/metrics"
)

// largePiece is what a call may be about to allocate at once before garbage is looked at.
const largePiece = 8 << 20

// makeWay collects garbage before n bytes are allocated that would take the heap over the runtime's memory limit. The
// runtime begins to collect only once they are there, and on a busy machine not at once: while it begins, each worker
// may allocate a piece more, and with answers of 50 MiB that is more than all limits together.
func makeWay(n int64) {
	if n < largePiece {
		return
	}
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return
	}
	read := []gometrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	gometrics.Read(read)
	if collects(n, int64(read[0].Value.Uint64()), int64(read[1].Value.Uint64()), limit) {
		runtime.GC()
	}
}

// collects reports whether it is worth it: objects is all that was allocated and not collected yet, live what the last
// collection has left of it.
func collects(n, objects, live, limit int64) bool {
	return objects+n > limit && objects-live >= n/2
}
