//go:build unix

package kafka_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// figures are what a worker has counted of its events.
type figures struct {
	Read, Emitted, Dropped, Errors, Outputs, Skipped float64

	Over float64 `json:"passed_over"`
}

// outcomes returns how many events have one.
func (f figures) outcomes() float64 { return f.Emitted + f.Dropped + f.Errors }

func (f *figures) add(of figures) {
	f.Read, f.Emitted, f.Dropped = f.Read+of.Read, f.Emitted+of.Emitted, f.Dropped+of.Dropped
	f.Errors, f.Outputs, f.Over, f.Skipped = f.Errors+of.Errors, f.Outputs+of.Outputs, f.Over+of.Over, f.Skipped+of.Skipped
}

// figuresOf returns what is in the metrics of a worker.
func figuresOf(m job.Families) figures {
	events := m.ByLabel("enricher_events_total", "outcome")
	return figures{
		Read: m.Value("enricher_events_read_total"), Over: m.Value("enricher_source_passed_over_total"),
		Emitted: events["emitted"], Dropped: events["dropped"],
		Errors: m.Value("enricher_errors_total"), Outputs: m.Value("enricher_outputs_total"), Skipped: m.Value("enricher_source_skipped_total"),
	}
}

// figuresIn returns what was seen of a worker.
func figuresIn(s job.Sample) figures {
	return figures{Read: s.Read, Emitted: s.Emitted, Dropped: s.Dropped, Errors: s.Errors, Outputs: s.Outputs, Over: s.Over, Skipped: s.Skipped}
}

// told is what a worker has told in its life.
type told struct {
	figures // at its end, where it has told them then; else when it was seen last

	Unfinished, Returned float64 // as told at its end

	last     job.Sample  // what was seen of it last
	ended    bool        // it has told its counts at its end
	back     bool        // it went back after a failure of the sink or of a transaction, and may not know what was written before
	handed   bool        // it gave partitions away, or lost them, or went back: events were read without an outcome, or written without one
	lost     bool        // it lost partitions without having been asked for them: what is written of those has no outcome
	assigned int         // how often it got a partition
	went     int         // how often it went back to what was committed
	starts   []time.Time // when it was started again after a failure
	partings []time.Time // when it gave events back that it had read: it gave partitions away, lost them or went back
	unheard  int         // how often it may not have heard what became of what it had sent
}

// toldBy returns what w has told.
func toldBy(w *worker) told {
	last := w.watch.Last()
	t := told{last: last, figures: figuresIn(last)}
	for line := range strings.Lines(w.Log()) {
		has := func(part string) bool { return strings.Contains(line, part) }
		switch {
		case has(`: going back to the committed offsets"`):
			t.back, t.went, t.unheard = true, t.went+1, t.unheard+1
			t.parted(line)
		case has(`"msg":"transaction aborted`):
			t.back = true
			t.parted(line)
		case has(`"msg":"transaction left open`), has(`"msg":"the pipeline failed and is started again`):
			t.back, t.unheard = true, t.unheard+1
			t.parted(line)
		case has(`"msg":"starting the pipeline again"`):
			t.starts = append(t.starts, timeOf(line))
		case has(`"msg":"partition assigned"`):
			t.assigned++
		case has(`"msg":"partition lost"`):
			t.handed, t.lost = true, true
			t.parted(line)
		case has(`"msg":"partition revoked"`):
			t.handed = true
			t.parted(line)
		case has(`"msg":"ended"`) && !has(`"pipeline":"`+job.Kept+`"`):
			t.ended = json.Unmarshal([]byte(line), &t) == nil
		}
	}
	t.handed = t.handed || t.back
	if w.once && len(w.sleeps) > 0 { // a transaction may have ended meanwhile
		t.unheard++
	}
	return t
}

// parted notes that events were given back, as a line of the log says. Lines of one moment are of one time.
func (t *told) parted(line string) {
	at := timeOf(line)
	if n := len(t.partings); n == 0 || at.Sub(t.partings[n-1]) > time.Millisecond {
		t.partings = append(t.partings, at)
	}
}

// timeOf returns the time of a line of the log.
func timeOf(line string) time.Time {
	var l logLine
	_ = json.Unmarshal([]byte(line), &l) // a kill may have cut the last one
	return l.Time
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
	u.restedWith(w, m)
}

// restedWith holds what a worker says at its end to what its metrics said before, when it had nothing to do any more.
func (u *suite) restedWith(w *worker, m job.Families) {
	u.t.Helper()
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
	if n := m.Value("enricher_restarts_total"); n != float64(len(t.starts)) {
		u.t.Errorf("%s has counted that it was started again %.0f times, and its log says %d", w.Name, n, len(t.starts))
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
//     partition and gave nothing up; in transactions also where it did;
//   - so are its error events, of each type and function, where events fail on purpose: checkCountedErrors;
//   - the events that it read are those that have an outcome, were given back or given up;
//   - the commits that it tried are no fewer than the broker took of it, and those that succeeded no more: checkCountedCommits;
//
// and for one that was killed what was seen last holds within what it had in flight then: checkSeen says so. Its commits hold to
// the one that was on its way. Of all together:
//
//   - the events read are those of the input and what was read again, and where each partition had one reader, those;
//   - error events;
//   - no record was gone before it could be read but for those that a suite has deleted, and no pipeline was started again but for what the suite says (again).
func (u *suite) checkAgreement(b books, kept []commit) {
	u.t.Helper()
	by := job.ByOwner(b.outputs)
	var sum figures
	exact, back, lost, assigned, again := true, false, false, 0, int64(0)
	for _, w := range u.workers {
		t := toldBy(w)
		w.checked = true
		again += int64(len(t.starts))
		u.checkTold(w, t, float64(len(by[w.Name])))
		u.checkOver(w, t)
		u.checkOutputs(w, t, by[w.Name], b, kept)
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
	twice := 0.0
	if u.through() {
		twice = float64(b.Repeated)
	}
	if exact && sum.Read+twice < sum.outcomes() {
		u.t.Errorf("the workers have counted %.0f events as read and %.0f that have an outcome", sum.Read, sum.outcomes())
	}
	if failed := float64(len(b.failed)); sum.Errors > failed || exact && !back && !lost && sum.Errors != failed {
		u.t.Errorf("the workers have counted %.0f error events, and the broker has %.0f", sum.Errors, failed)
	}
	u.checkCountedErrors(b.failed)
	if sum.Skipped != float64(u.passed) {
		u.t.Errorf("the workers have counted %.0f records as gone before they could be read, and there were %d", sum.Skipped, u.passed)
	}
	if !u.again.hold(again) {
		u.t.Errorf("the workers have been started again %d times, want %v", again, u.again)
	}
	u.checkCountedCommits(kept)
}

// checkOver holds what was seen last of a worker to what it has told since: no counter was beyond that. Of how often it was
// started again the log alone has told, and a kill may have come between the counter and that.
func (u *suite) checkOver(w *worker, t told) {
	u.t.Helper()
	if s := figuresIn(t.last); t.ended && (s.Read > t.Read || s.Emitted > t.Emitted || s.Dropped > t.Dropped || s.Errors > t.Errors ||
		s.Outputs > t.Outputs || s.Over > t.Over || s.Skipped > t.Skipped) {
		u.t.Errorf("%s had counted %+v when it was seen last, and at its end it says %+v", w.Name, s, t.figures)
	}
	least, most := 0, len(t.starts)
	for _, at := range t.starts {
		if at.Before(t.last.At) {
			least++
		}
	}
	if w.crashed {
		most++
	}
	if n := int(t.last.Restarts); n < least || n > most {
		u.t.Errorf("%s had counted when it was seen last that it was started again %d times, and its log says %d by then and %d at its end", w.Name, n, least, len(t.starts))
	}
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
func (u *suite) checkOutputs(w *worker, t told, made []job.Output, b books, kept []commit) {
	u.t.Helper()
	all := float64(len(made))
	if t.Outputs > all || t.Emitted > all {
		u.t.Errorf("%s has counted %.0f outputs of %.0f events, and the broker has %.0f of it", w.Name, t.Outputs, t.Emitted, all)
	}
	if !t.ended {
		u.checkSeen(w, t, made, b, kept)
		return
	}
	if t.unheard == 0 && t.Unfinished == 0 && t.Outputs != all {
		u.t.Errorf("%s has counted %.0f outputs, and the broker has %.0f of it", w.Name, t.Outputs, all)
	}
	if t.unheard == 0 && t.Unfinished == 0 && (!t.lost || w.once) && t.Emitted != all {
		u.t.Errorf("%s has counted %.0f events as emitted, and the broker has %.0f of it", w.Name, t.Emitted, all)
	}
	if has := t.outcomes() + t.Unfinished + t.Returned; !u.through() && t.Read != has {
		u.t.Errorf("%s has counted %.0f events as read, and %.0f that have an outcome, were given up or given back", w.Name, t.Read, has)
	}
}
