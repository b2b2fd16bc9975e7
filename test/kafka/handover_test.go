//go:build unix

package kafka_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// taken lets check accept the repeats of a suite that takes the partitions of so many workers away in each round, at most:
// those that the logs of the workers explain, since a partition was assigned again, or the sink failed, and what had left
// of it was not committed. checkStarts and mostRepeated bound how much that is.
func taken(workers int) int { return -workers }

// assignment is what a worker has logged of a partition that it was assigned.
type assignment struct {
	worker, topic string
	partition     int32
	offset        int64 // where it began
	at            time.Time
}

// assignments returns those of all workers, in the order of each log.
func (u *suite) assignments() []assignment {
	var all []assignment
	for _, w := range u.workers {
		for _, l := range w.logged("partition assigned") {
			all = append(all, assignment{w.Name, l.Topic, l.Partition, l.Offset, w.awake(l.Time)})
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
}

// logged returns the lines of a log whose message begins so.
func (w *worker) logged(msg string) []logLine {
	var found []logLine
	for text := range strings.Lines(w.Log()) {
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

// times returns when the broker wrote each output, in milliseconds.
func (u *suite) times() map[job.Place]time.Time {
	u.t.Helper()
	found := map[job.Place]time.Time{}
	job.EachRecord(u.t, u.sink.Admin, u.sink.Direct(), u.output, func(r *kgo.Record) {
		found[job.Place{Partition: r.Partition, Offset: r.Offset}] = r.Timestamp
	})
	return found
}

// unexplained returns how many outputs there are for which there was no reading: a worker writes an event once for each
// time that it had been assigned its partition at or before it until then, or had gone back after a failure of the sink.
// Behind a repartition topic that is not known, since another worker reads what one has read.
func (u *suite) unexplained(outputs []job.Output, times map[job.Place]time.Time) int {
	if u.through() {
		return 0
	}
	taken := map[string][]assignment{}
	for _, a := range u.assignments() {
		if a.topic == u.input {
			taken[a.worker] = append(taken[a.worker], a)
		}
	}
	n := 0
	for name, of := range job.ByOwner(outputs) {
		var back []logLine
		for _, w := range u.workers {
			if w.Name == name {
				back = append(w.logged("sink failed: going back"), w.logged("transaction lost: going back")...)
			}
		}
		made := map[int]int{}
		for _, o := range of {
			made[o.ID]++
			from, written := u.events[o.ID], times[job.Place{Partition: o.Partition, Offset: o.Offset}]
			readings := 0
			for _, a := range taken[name] {
				if a.partition == from.Partition && a.offset <= from.Offset && !a.at.Truncate(time.Millisecond).After(written) {
					readings++
				}
			}
			for _, l := range back {
				if !l.Time.After(written) {
					readings++
				}
			}
			if made[o.ID] > readings {
				n++
			}
		}
	}
	return n
}

// mostRepeated returns how many outputs may be repeated: in each round those that workers had in flight, and those that
// left since the last commit.
func (u *suite) mostRepeated(workers int, times map[job.Place]time.Time, kept []commit) int {
	since := mostBetween(slices.Collect(maps.Values(times)), kept)
	u.t.Logf("at most %d outputs left between two commits", since)
	return u.rounds * (workers*u.setup.limit + since)
}

// mostBetween returns how much of what happened at some times did so between two commits of the group at most. Brokers
// that are away take none; what happens later than five seconds after one has no such reason.
func mostBetween(times []time.Time, kept []commit) int {
	slices.SortFunc(times, time.Time.Compare)
	var commits []time.Time
	for _, c := range kept {
		commits = append(commits, c.at)
	}
	slices.SortFunc(commits, time.Time.Compare)
	most, next := 0, 0
	for i, at := range commits {
		n := 0
		for ; next < len(times) && (i == len(commits)-1 || times[next].Before(commits[i+1])); next++ {
			if d := times[next].Sub(at); d >= 0 && d < 5*time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
