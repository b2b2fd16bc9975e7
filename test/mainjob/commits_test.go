//go:build unix

package mainjob_test

import (
	"context"
	"sync"
	"time"
)

// metricsNow is what the metrics of a worker said at some time.
type metricsNow struct {
	commits  float64 // that succeeded
	emitted  float64 // events
	inFlight float64 // events
}

// commitWatch reads the metrics of a worker all the time, until the worker has ended.
type commitWatch struct {
	done sync.WaitGroup

	// last is the newest sample, and atCommit the one before the newest commit was seen. Both hold after done.
	last, atCommit metricsNow
}

func watchCommits(w *worker) *commitWatch {
	found := &commitWatch{}
	ctx := w.t.Context()
	found.done.Go(func() { found.run(ctx, w) })
	return found
}

func (f *commitWatch) run(ctx context.Context, w *worker) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		metrics, err := w.scrape(ctx)
		if err != nil {
			return // the worker has ended
		}
		now := metricsNow{
			commits:  metrics.value("enricher_commits_total", "outcome=ok"),
			emitted:  metrics.value("enricher_events_total", "outcome=emitted"),
			inFlight: metrics.value("enricher_in_flight_events"),
		}
		if now.commits > f.last.commits {
			f.atCommit = f.last
		}
		f.last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stop returns the samples after the worker has ended.
func (f *commitWatch) stop() (last, atCommit metricsNow) {
	f.done.Wait()
	return f.last, f.atCommit
}
