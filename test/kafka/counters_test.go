//go:build unix

package kafka_test

import (
	"encoding/json"
	"runtime"
	"strings"

	"github.com/a0c75104/enricher/test/internal/job"
)

// told is what a worker has counted.
type told struct {
	Read, Emitted, Dropped, Errors, Outputs, Unfinished float64

	over, commits, tried, rewinds float64

	exact    bool // to its end; else at least so much
	back     bool // it went back after a failure of the sink or of a transaction, and may not know what was written before
	assigned int  // how often it got a partition
}

// toldBy returns what w says now, what it said when it ended in good order, or what was seen of it last before it was
// killed.
func toldBy(w *worker) told {
	last := w.watch.Last()
	t := told{Read: last.Read, Emitted: last.Emitted, Errors: last.Errors, Outputs: last.Outputs}
	for line := range strings.Lines(w.Log()) {
		t.back = t.back || strings.Contains(line, `: going back to the committed offsets"`) || strings.Contains(line, `"msg":"transaction aborted`) ||
			strings.Contains(line, `"msg":"the pipeline failed and is started again`)
		if strings.Contains(line, `"msg":"partition assigned"`) {
			t.assigned++
		}
		if strings.Contains(line, `"msg":"ended"`) && json.Unmarshal([]byte(line), &t) == nil {
			t.exact = true
		}
	}
	t.over, t.commits, t.tried = last.Over, last.Commits, last.Tried
	if !w.Running() {
		return t
	}
	m := w.Metrics()
	events := m.ByLabel("enricher_events_total", "outcome")
	t.exact = true
	t.Read, t.over = m.Value("enricher_events_read_total"), m.Value("enricher_source_passed_over_total")
	t.Emitted, t.Dropped, t.Errors = events["emitted"], events["dropped"], m.Value("enricher_errors_total")
	t.Outputs, t.rewinds = m.Value("enricher_outputs_total"), m.Value("enricher_rewinds_total")
	t.commits, t.tried = m.Value("enricher_commits_total", "outcome=ok"), m.Value("enricher_commits_total")
	return t
}

// checkTold fails where the checks would look at nothing: a message that they look for has other words now, or the worker
// was not watched.
func (u *suite) checkTold(w *worker, t told, made float64) {
	u.t.Helper()
	if made > 0 && t.assigned == 0 {
		u.t.Errorf("%s has made outputs, and its log has no partition that it was assigned: look for the message that says so now", w.Name)
	}
	if t.rewinds > 0 && !t.back {
		u.t.Errorf("%s went back %.0f times, and its log has no such line: look for the message that says so now", w.Name, t.rewinds)
	}
	if w.crashed {
		return
	}
	if !w.Running() && !t.exact {
		u.t.Errorf("%s has ended, and its log has no counts at its end: look for the message that says them now", w.Name)
	}
	if most := w.watch.Most(); made > 0 && (w.watch.Samples() == 0 || runtime.GOOS == "linux" && most.Resident == 0) {
		u.t.Errorf("%s has made outputs, and of %d looks at it none has told how much memory it has", w.Name, w.watch.Samples())
	}
}

// checkAgreement compares what the workers have counted to what the broker has:
//
//   - outputs of each worker that runs or has ended in good order, with nothing unfinished and no going back;
//   - the events read, which are those of the input and what was read again, and what each has an outcome of;
//   - error events, and commits.
//
// Of a worker that was killed what was seen last is a lower bound, and so are the commits of one that has ended: the sums
// are held to no more than the broker has then, and to exactly so much where none is of that kind.
func (u *suite) checkAgreement(b books, kept []commit) {
	u.t.Helper()
	by := job.ByOwner(b.outputs)
	sum, exact, running, back := told{}, true, true, false
	for _, w := range u.workers {
		t := toldBy(w)
		made := float64(len(by[w.Name]))
		u.checkTold(w, t, made)
		whole := t.exact && t.Unfinished == 0 && !t.back
		if t.Outputs > made || whole && t.Outputs != made {
			u.t.Errorf("%s has counted %.0f outputs, and the broker has %.0f of it", w.Name, t.Outputs, made)
		}
		sum.Read += t.Read + t.over
		sum.Emitted += t.Emitted + t.Dropped
		sum.Errors += t.Errors
		sum.commits += t.commits
		sum.tried += t.tried
		sum.assigned += t.assigned
		exact, running, back = exact && t.exact, running && w.Running(), back || t.back
	}
	there := float64(len(u.events) - len(u.gone))
	once := sum.assigned == u.setup.partitions && !back // each partition was read by one worker from its start to its end
	if exact && (sum.Read < there || once && sum.Read != there) {
		u.t.Errorf("the workers have counted %.0f events as read, and the input had %.0f", sum.Read, there)
	}
	// Not by each: where there is a hop, another one may finish what one has read, and what is read again behind it is
	// not counted as read once more.
	again := 0.0
	if u.through() {
		again = float64(b.Repeated)
	}
	if outcomes := sum.Emitted + sum.Errors; exact && sum.Read+again < outcomes {
		u.t.Errorf("the workers have counted %.0f events as read and %.0f that have an outcome", sum.Read, outcomes)
	}
	if failed := float64(b.failed); sum.Errors > failed || exact && sum.Errors != failed {
		u.t.Errorf("the workers have counted %.0f error events, and the broker has %.0f", sum.Errors, failed)
	}
	// Where each partition of a topic begins is committed before any is read, and is no commit of what was finished.
	offsets, commits, starts := countCommits(kept)
	if sum.commits > float64(offsets) || running && sum.tried+float64(starts) < float64(commits) {
		u.t.Errorf("the workers have counted %.0f commits, %.0f with those that failed, and the broker has %d, with that of the start, of %d offsets",
			sum.commits, sum.tried, commits, offsets)
	}
}
