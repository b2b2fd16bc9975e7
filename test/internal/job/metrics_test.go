//go:build unix

package job_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// A worker that is busy may not answer once, and is watched on: bounds that nobody measures any more hold.
func TestAWorkerThatDoesNotAnswerOnceIsWatchedOn(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := asked.Add(1)
		if n%2 == 1 {
			panic(http.ErrAbortHandler) // hangs up
		}
		fmt.Fprintf(w, "enricher_in_flight_events %d\n", n)
	}))
	defer server.Close()
	binary := filepath.Join(t.TempDir(), "worker")
	script := fmt.Sprintf("#!/bin/sh\necho '{\"msg\":\"serving all\",\"url\":%q}' >&2\nexec sleep 60\n", server.URL)
	job.Must(t, os.WriteFile(binary, []byte(script), 0o700)) //nolint:gosec // it is run
	w := job.StartWorker(t, job.WorkerConfig{Binary: binary, Patience: time.Minute})
	watch := job.NewWatch(w, time.Millisecond)
	job.WaitFor(t, time.Minute, "two samples, with a failure before each", func() bool { return watch.Samples() >= 2 })
	if most := watch.Most().InFlight; most < 4 {
		t.Errorf("the most that was seen is %v, want what the second sample says, at least 4", most)
	}
	w.Kill()
	watch.Ended()
}
