//go:build unix

package kafka_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// figures are what a worker has counted of its events.
type figures struct {
	Read, Emitted, Dropped, Errors, Outputs float64

	Over float64 `json:"passed_over"`
}

// outcomes returns how many events have one.
func (f figures) outcomes() float64 { return f.Emitted + f.Dropped + f.Errors }

func (f *figures) add(of figures) {
	f.Read, f.Emitted, f.Dropped = f.Read+of.Read, f.Emitted+of.Emitted, f.Dropped+of.Dropped
	f.Errors, f.Outputs, f.Over = f.Errors+of.Errors, f.Outputs+of.Outputs, f.Over+of.Over
}

// figuresOf returns what is in the metrics of a worker.
func figuresOf(m job.Families) figures {
	events := m.ByLabel("enricher_events_total", "outcome")
	return figures{
		Read: m.Value("enricher_events_read_total"), Over: m.Value("enricher_source_passed_over_total"),
		Emitted: events["emitted"], Dropped: events["dropped"],
		Errors: m.Value("enricher_errors_total"), Outputs: m.Value("enricher_outputs_total"),
	}
}

// told is what a worker has told in its life.
type told struct {
	figures // at its end, where it has told them then; else when it was seen last

	Unfinished, Returned float64 // as told at its end

	last     job.Sample // what was seen of it last
	ended    bool       // it has told its counts at its end
	back     bool       // it went back after a failure of the sink or of a transaction, and may not know what was written before
	open     bool       // it does not know either what became of a transaction
	handed   bool       // it gave partitions away, or lost them, or went back: events were read without an outcome, or written without one
	lost     bool       // it lost partitions without having been asked for them: what is written of those has no outcome
	assigned int        // how often it got a partition
	went     int        // how often it went back to what was committed
}

// toldBy returns what w has told.
func toldBy(w *worker) told {
	last := w.watch.Last()
	t := told{last: last, figures: figures{
		Read: last.Read, Emitted: last.Emitted, Dropped: last.Dropped, Errors: last.Errors, Outputs: last.Outputs, Over: last.Over,
	}}
	for line := range strings.Lines(w.Log()) {
		has := func(part string) bool { return strings.Contains(line, part) }
		switch {
		case has(`: going back to the committed offsets"`):
			t.back, t.open, t.went = true, true, t.went+1
		case has(`"msg":"transaction aborted`):
			t.back = true
		case has(`"msg":"transaction left open`), has(`"msg":"the pipeline failed and is started again`):
			t.back, t.open = true, true
		case has(`"msg":"partition assigned"`):
			t.assigned++
		case has(`"msg":"partition lost"`):
			t.handed, t.lost = true, true
		case has(`"msg":"partition revoked"`):
			t.handed = true
		case has(`"msg":"ended"`):
			t.ended = json.Unmarshal([]byte(line), &t) == nil
		}
	}
	t.handed = t.handed || t.back
	return t
}

// checkTold fails where the checks would look at nothing: a message that they look for has other words now, or the worker
// was not watched.
func (u *suite) checkTold(w *worker, t told, made float64) {
	u.t.Helper()
	if made > 0 && t.assigned == 0 {
		u.t.Errorf("%s has made outputs, and its log has no partition that it was assigned: look for the message that says so now", w.Name)
	}
	if w.crashed {
		return
	}
	if !t.ended {
		u.t.Errorf("%s has ended, and its log has no counts at its end: look for the message that says them now", w.Name)
	}
	if most := w.watch.Most(); made > 0 && (w.watch.Samples() == 0 || runtime.GOOS == "linux" && most.Resident == 0) {
		u.t.Errorf("%s has made outputs, and of %d looks at it none has told how much memory it has", w.Name, w.watch.Samples())
	}
}

// rest has a worker that has nothing to do end, and holds what it says then to what its metrics said before.
func (u *suite) rest(w *worker) {
	u.t.Helper()
	m := w.Metrics()
	u.stop(w)
	w.rested, w.moved, w.failed = true, m.Value("enricher_repartitioned_total"), m.ByLabel("enricher_errors_total", "type", "function")
	if errors, events := m.Value("enricher_errors_total"), m.Value("enricher_events_total", "outcome=error"); errors != events {
		u.t.Errorf("%s has counted %.0f error events, and %.0f events of that outcome", w.Name, errors, events)
	}
	w.commits, w.tried = m.Value("enricher_commits_total", "outcome=ok"), m.Value("enricher_commits_total")
	t := toldBy(w)
	if before := figuresOf(m); t.figures != before {
		u.t.Errorf("%s had nothing to do and its metrics said %+v, and at its end it says %+v", w.Name, before, t.figures)
	}
	if n := m.Value("enricher_rewinds_total"); n != float64(t.went) {
		u.t.Errorf("%s has counted that it went back %.0f times, and its log says %d", w.Name, n, t.went)
	}
	if u.through() && !t.lost && !t.back && t.Unfinished == 0 && t.Read != w.moved+w.early()+t.Returned {
		u.t.Errorf("%s has counted %.0f events as read, and %.0f that were written to the topic in between, %.0f that failed before and %.0f that were given back",
			w.Name, t.Read, w.moved, w.early(), t.Returned)
	}
}

// checkAgreement compares what the workers have counted to what the broker has. All have ended. For one that did so in good
// order everything is exact:
//
//   - its outputs are those that the broker has of it, and each event that was emitted is one, if it did not go back, lost no
//     partition and gave nothing up;
//   - so are its error events, of each type and function, where events fail on purpose: checkCountedErrors;
//   - the events that it read are those that have an outcome, were given back or given up;
//
// and for one that was killed what was seen last holds within what it had in flight then. Of all together:
//
//   - the events read are those of the input and what was read again, and where each partition had one reader, those;
//   - error events, and commits, which can be told apart within a millisecond alone.
func (u *suite) checkAgreement(b books, kept []commit) {
	u.t.Helper()
	by := job.ByOwner(b.outputs)
	var sum figures
	exact, back, lost, assigned := true, false, false, 0
	for _, w := range u.workers {
		t := toldBy(w)
		u.checkTold(w, t, float64(len(by[w.Name])))
		u.checkOutputs(w, t, by[w.Name], b.times)
		sum.add(t.figures)
		assigned += t.assigned
		exact, back, lost = exact && t.ended, back || t.back, lost || t.lost
	}
	if u.through() {
		u.checkMoved()
	}
	sum.Read += sum.Over
	there := float64(len(u.events) - len(u.gone))
	once := exact && assigned == u.setup.partitions && !back // each partition was read by one worker from its start to its end
	if exact && sum.Read < there || once && sum.Read != there {
		u.t.Errorf("the workers have counted %.0f events as read, and the input had %.0f", sum.Read, there)
	}
	if once && sum.outcomes() != there {
		u.t.Errorf("the workers have counted %.0f events that have an outcome, and the input had %.0f", sum.outcomes(), there)
	}
	// Not by each: where there is a hop, another one may finish what one has read, and what is read again behind it is
	// not counted as read once more.
	again := 0.0
	if u.through() {
		again = float64(b.Repeated)
	}
	if exact && sum.Read+again < sum.outcomes() {
		u.t.Errorf("the workers have counted %.0f events as read and %.0f that have an outcome", sum.Read, sum.outcomes())
	}
	if failed := float64(len(b.failed)); sum.Errors > failed || exact && !back && !lost && sum.Errors != failed {
		u.t.Errorf("the workers have counted %.0f error events, and the broker has %.0f", sum.Errors, failed)
	}
	u.checkCountedErrors(b.failed)
	u.checkCountedCommits(kept)
}

// checkMoved holds what the workers have counted as written to the topic in between to what it got, as far as that is known:
// marks of transactions have a place in it too.
func (u *suite) checkMoved() {
	u.t.Helper()
	ends, err := job.Ends(u.t.Context(), u.c.Admin, u.between())
	must(u.t, err)
	got, moved, exact := float64(job.Sum(ends)), 0.0, true
	for _, w := range u.workers {
		t := toldBy(w)
		moved += max(t.last.Moved, w.moved)
		exact = exact && w.rested && !t.lost && !t.back && !w.once
	}
	if moved > got || exact && moved != got {
		u.t.Errorf("the workers have counted %.0f events as written to the topic in between, and it got %.0f", moved, got)
	}
}

// checkOutputs holds what a worker has counted to what the broker has of it.
func (u *suite) checkOutputs(w *worker, t told, made []job.Output, times map[job.Place]time.Time) {
	u.t.Helper()
	all := float64(len(made))
	if t.Outputs > all || t.Emitted > all {
		u.t.Errorf("%s has counted %.0f outputs of %.0f events, and the broker has %.0f of it", w.Name, t.Outputs, t.Emitted, all)
	}
	if !t.ended {
		u.checkSeen(w, t, made, times)
		return
	}
	if !t.back && t.Unfinished == 0 && t.Outputs != all {
		u.t.Errorf("%s has counted %.0f outputs, and the broker has %.0f of it", w.Name, t.Outputs, all)
	}
	if !t.back && t.Unfinished == 0 && !t.lost && t.Emitted != all {
		u.t.Errorf("%s has counted %.0f events as emitted, and the broker has %.0f of it", w.Name, t.Emitted, all)
	}
	if has := t.outcomes() + t.Unfinished + t.Returned; !u.through() && t.Read != has {
		u.t.Errorf("%s has counted %.0f events as read, and %.0f that have an outcome, were given up or given back", w.Name, t.Read, has)
	}
}

// checkSeen holds what was seen last of a worker that was killed to what the broker had of it then: what had been written and
// was not counted yet was in flight, or in a transaction.
func (u *suite) checkSeen(w *worker, t told, made []job.Output, times map[job.Place]time.Time) {
	u.t.Helper()
	if t.handed || w.watch.Samples() == 0 {
		return
	}
	written := 0.0
	for _, o := range made {
		if times[job.Place{Partition: o.Partition, Offset: o.Offset}].Before(t.last.At.Truncate(time.Millisecond)) {
			written++
		}
	}
	limit := float64(u.setup.limit)
	if w.once { // what is in a transaction is not in flight, and how much that is nobody tells
		limit = t.Read
	}
	if t.Outputs+limit < written || t.Emitted+limit < written {
		u.t.Errorf("%s had counted %.0f outputs of %.0f events when it was seen last, and the broker had %.0f of it: %.0f were in flight at most",
			w.Name, t.Outputs, t.Emitted, written, limit)
	}
	// The metrics are read one after the other, while events come and go.
	if skew := limit; !u.through() && (t.Read+skew < t.outcomes() || t.Read > t.outcomes()+limit+skew) {
		u.t.Errorf("%s had counted %.0f events as read when it was seen last, and %.0f that have an outcome: %.0f were in flight at most",
			w.Name, t.Read, t.outcomes(), limit)
	}
}

// checkCountedCommits holds the commits that the workers have counted to those that the broker took. Those after a worker was
// seen last are not known: they are no more than one in each commit_interval, and what it gave away at its end.
func (u *suite) checkCountedCommits(kept []commit) {
	u.t.Helper()
	least, most := 0.0, 0.0
	said := ""
	for _, w := range u.workers {
		last, unseen := w.watch.Last(), 1.0
		if !last.At.IsZero() { // else it was killed before it could be looked at
			unseen += float64(w.EndedAt().Sub(last.At) / commitInterval)
		}
		switch {
		case w.rested: // what it had, it had committed
			last.Commits, last.Tried, unseen = w.commits, w.tried, 0
		case !w.crashed:
			unseen += 2
		}
		least, most = least+last.Commits, most+last.Tried+unseen
		said += fmt.Sprintf(" %.0f of %.0f", last.Commits, last.Tried)
	}
	// Where each partition of a topic begins is committed before any is read, and is no commit of what was finished.
	requests, anew, starts := countCommits(kept)
	if merged := 5 + float64(requests)/10; least > float64(requests)+merged || most+float64(starts) < float64(anew) {
		u.t.Errorf("the workers have counted %.0f commits at least and %.0f at most (%s that succeeded), and the broker has %d, %d of them with something new and %d of the start",
			least, most, strings.TrimSpace(said), requests, anew, starts)
	}
}
