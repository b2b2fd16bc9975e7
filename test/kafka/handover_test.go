//go:build unix

package kafka_test

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// taken lets check accept the repeats of a suite that takes partitions away from workers without a crash: those that
// handedOver explains.
const taken = -1

// assignment is what a worker has logged of a partition that it was assigned.
type assignment struct {
	worker, topic string
	partition     int32
	offset        int64     // where it began
	beyond        int64     // how many offsets behind that were finished
	at, logged    time.Time // it is known from at on, and was logged then or, after a pause, later
}

// assignments returns those of all workers, in the order of each log.
func (u *suite) assignments() []assignment {
	var all []assignment
	for _, w := range u.workers {
		for _, l := range w.logged("partition assigned") {
			all = append(all, l.assignmentOf(w))
		}
	}
	return all
}

// logLine is what is looked at of a line.
type logLine struct {
	Time       time.Time
	Msg, Topic string
	Partition  int32
	Offset     int64
	Beyond     int64 `json:"finished_beyond"`

	First, Resumed, Skipped int64 // where records were gone
}

func (l logLine) assignmentOf(w *worker) assignment {
	return assignment{w.Name, l.Topic, l.Partition, l.Offset, l.Beyond, w.awake(l.Time), l.Time}
}

// logged returns the lines of its log whose message begins so.
func (w *worker) logged(msg string) []logLine { return linesOf(w.Log(), msg) }

// linesOf returns the lines of a log in JSON whose message begins so.
func linesOf(log, msg string) (found []logLine) {
	for text := range strings.Lines(log) {
		var l logLine
		if json.Unmarshal([]byte(text), &l) == nil && strings.HasPrefix(l.Msg, msg) { // a kill may have cut a line
			found = append(found, l)
		}
	}
	return found
}

// sleep is a time in which a worker was paused.
type sleep struct{ from, to time.Time }

// Pause stops a worker where it is.
func (w *worker) Pause() {
	w.sleeps = append(w.sleeps, sleep{from: time.Now()})
	w.Worker.Pause()
}

// Continue lets it go on.
func (w *worker) Continue() {
	w.sleeps[len(w.sleeps)-1].to = time.Now()
	w.Worker.Continue()
}

// awake returns when something was known that was logged at a time: before the pause, where it was logged just after it.
func (w *worker) awake(logged time.Time) time.Time {
	for _, s := range w.sleeps {
		if logged.After(s.from) && logged.Before(s.to.Add(time.Second)) {
			return s.from
		}
	}
	return logged
}

// times returns when the broker wrote each output or error event, in milliseconds.
func (u *suite) times(topic string) map[job.Place]time.Time {
	u.t.Helper()
	found := map[job.Place]time.Time{}
	job.EachRecord(u.t, u.sink.Admin, u.sink.Direct(), topic, func(r *kgo.Record) {
		found[job.Place{Partition: r.Partition, Offset: r.Offset}] = r.Timestamp
	})
	return found
}

// hidden returns how many outputs each worker wrote that are not among those that a reader sees: those of transactions that were
// not committed.
func (u *suite) hidden(seen []job.Output) map[string]int {
	u.t.Helper()
	visible, hidden := map[job.Place]bool{}, map[string]int{}
	for _, o := range seen {
		visible[job.Place{Partition: o.Partition, Offset: o.Offset}] = true
	}
	job.EachRecord(u.t, u.sink.Admin, u.sink.Direct(), u.output, func(r *kgo.Record) {
		if visible[job.Place{Partition: r.Partition, Offset: r.Offset}] {
			return
		}
		o, err := job.ParseOutput(r.Partition, r.Offset, r.Key, r.Value)
		must(u.t, err)
		hidden[o.Owner]++
	})
	return hidden
}

// unanswered is how long a commit waits for an answer at most, be it of a broker that has passed the group on to another, or
// of a group that waits for a member whose connection was cut.
const unanswered = 10 * time.Second

// fault is a time in which commits had a reason to fail, and for how long after it to wait.
type fault struct {
	sleep
	after time.Duration
}

// fault notes that commits have a reason to fail until over is called, and to wait for a time after it.
func (u *suite) fault() (over func(after time.Duration)) {
	f := &fault{sleep: sleep{from: time.Now(), to: time.Now().Add(time.Hour)}}
	u.faults = append(u.faults, f)
	return func(after time.Duration) { f.to, f.after = time.Now(), after }
}

// faulty reports whether a time had something of a fault in it.
func (u *suite) faulty(from, to time.Time) bool {
	return slices.ContainsFunc(u.faults, func(f *fault) bool { return f.from.Before(to) && f.to.After(from) })
}

// well returns in how much of a time nothing kept a worker from committing: no fault, no pause of its own, and no wait of
// the group for a worker that was killed.
func (u *suite) well(name string, from, to time.Time) time.Duration {
	var bad []sleep
	for _, f := range u.faults {
		bad = append(bad, sleep{f.from, f.to.Add(f.after)})
	}
	for _, w := range u.workers {
		switch {
		case w.Name == name:
			bad = append(bad, w.sleeps...)
		case w.crashed:
			bad = append(bad, sleep{w.crashedAt, w.crashedAt.Add(unanswered)})
		}
	}
	slices.SortFunc(bad, func(a, b sleep) int { return a.from.Compare(b.from) })
	well := to.Sub(from)
	for _, f := range bad {
		if f.from.Before(from) {
			f.from = from
		}
		if f.to.After(to) {
			f.to = to
		}
		if d := f.to.Sub(f.from); d > 0 {
			well, from = well-d, f.to
		}
	}
	return well
}
