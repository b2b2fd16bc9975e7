//go:build unix

package kafka_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// What workers may have, at the default limits or less, whatever happens.
const (
	mostResident   = 256 << 20
	mostGoroutines = 200
)

// books are what a suite's books say once it has settled.
type books struct {
	job.Delivery
	failed  []failure
	allowed int // repeats that the crashes explain
	outputs []job.Output
	times   map[job.Place]time.Time // when the broker wrote each
	written map[int]int             // how often there is an output, by the event
	hidden  map[string]int          // outputs of transactions that were not committed, by the worker
}

// check settles, and holds what was written to the promises, as checkSettled does, with no more repeated than caused says.
func (u *suite) check(allowed int) books {
	u.t.Helper()
	u.settle()
	return u.checkSettled(u.caused(allowed))
}

// caused has checkSettled allow the repeats that crashes explain, and those that handedOver explains where a suite has taken
// partitions away; none of them without an assignment, in the log of the worker that wrote it, that began at or before it again.
func (u *suite) caused(allowed int) func(b books, kept []commit) int {
	return func(b books, kept []commit) int {
		u.t.Helper()
		most := u.explained(b, kept) + max(allowed, 0)
		if u.through() || b.Repeated == 0 {
			return most
		}
		explained := u.handedOver(u.input, u.made(b), kept, false)
		if allowed == taken {
			most += explained
		}
		return most
	}
}

// nothing is what a suite of exactly_once allows to be repeated.
func nothing(books, []commit) int { return 0 }

// checkSettled reads back with another client what was written, and holds it to the promises:
//   - no event is lost, out of the order of its key or in two partitions, and those that are to fail are error events, and no other is;
//   - no more is repeated than allowed returns;
//   - no assignment begins before what was committed;
//   - every partition is committed to its end;
//   - memory and goroutines stay within bounds;
//   - the counters of the workers agree with the broker's: checkAgreement says how far.
//
// It ends the workers, and adds a line to the report.
func (u *suite) checkSettled(allowed func(b books, kept []commit) int) books {
	u.t.Helper()
	b := u.read()
	kept := u.commits()
	u.checkStarts(kept)
	b.allowed = allowed(b, kept)
	if b.Lost > 0 || b.Disordered > 0 || b.Moved > 0 {
		u.t.Errorf("delivered %v and %d error events, want nothing lost, out of order or moved", b.Delivery, len(b.failed))
	}
	if b.Repeated > b.allowed {
		u.t.Errorf("%d outputs and error events are repeated, want at most %d", b.Repeated, b.allowed)
	}
	u.checkCommits()
	u.checkWorkers(b)
	for _, w := range u.workers {
		if w.Running() {
			u.rest(w)
		}
	}
	u.checkAgreement(b, kept)
	if len(u.events) == 0 || b.Outputs == 0 || u.rounds == 0 {
		u.t.Errorf("the suite ran nothing, or does not say so: %d rounds, %d events and %d outputs", u.rounds, len(u.events), b.Outputs)
	}
	report.add(line{
		suite: strings.TrimSuffix(u.t.Name()+"/"+u.setup.as, "/"), rounds: u.rounds, events: len(u.events), lost: b.Lost, repeated: b.Repeated, allowed: b.allowed,
		disordered: b.Disordered, stall: u.api.LongestStall(),
	})
	u.t.Logf("rounds=%d events=%d %v allowed=%d errors=%d longest_stall=%v stops=%d longest_stop=%v took=%v", u.rounds, len(u.events), b.Delivery, b.allowed, len(b.failed),
		u.api.LongestStall().Round(time.Millisecond), len(u.stops), slices.Max(append(u.stops, 0)).Round(time.Millisecond), time.Since(u.began).Round(time.Millisecond))
	return b
}

// read reads outputs and error events with librdkafka, as a reader that wants what is committed.
func (u *suite) read() books {
	u.t.Helper()
	records, err := u.sink.ReadBack(u.t.Context(), u.output, cluster.ReadOptions{Committed: true})
	must(u.t, err)
	var b books
	for _, r := range records {
		o, err := job.ParseOutput(r.Partition, r.Offset, r.Key, r.Value)
		must(u.t, err)
		if o.ID >= len(u.events) {
			u.t.Fatalf("output %d/%d is of event %d, which was not written", r.Partition, r.Offset, o.ID)
		}
		b.outputs = append(b.outputs, o)
	}
	b.failed = u.failures()
	failed := maps.Clone(u.gone)
	for _, e := range b.failed {
		failed[e.id] = true
	}
	b.Delivery = job.DeliveryOf(u.events, b.outputs, failed)
	b.Repeated += u.checkFailed(b)
	b.times, b.hidden = u.times(u.output), u.hidden(b.outputs)
	b.written = map[int]int{}
	for _, o := range b.outputs {
		b.written[o.ID]++
	}
	return b
}

// explained returns how many repeats the crashes explain: what a worker had written and not committed when it was
// killed. That is no more than its limit, and what has left since its last commit.
func (u *suite) explained(b books, kept []commit) int {
	u.t.Helper()
	all, n := u.made(b), 0
	for _, w := range u.workers {
		if !w.crashed {
			continue
		}
		behind, committed := 0, u.committedBy(w, u.input, kept)
		var of []*made
		for _, m := range all {
			if m.worker != w.Name {
				continue
			}
			of = append(of, m)
			if from := m.of[0]; from.Offset >= committed[from.Partition] {
				behind++
			}
		}
		if since := u.since(w, of, kept); behind > u.setup.limit+since {
			u.t.Errorf("%s was killed with %d outputs and error events behind its commits, want at most the %d in flight and %d since the last commit",
				w.Name, behind, u.setup.limit, since)
		}
		n += behind
	}
	return n
}

// checkCommits holds the committed offset of each partition to its end, or to that of a bounded read.
func (u *suite) checkCommits() {
	u.t.Helper()
	ends := u.until
	var err error
	if ends == nil {
		ends, err = job.Ends(u.t.Context(), u.c.Admin, u.input)
		must(u.t, err)
	}
	done, err := job.Committed(u.t.Context(), u.c.Admin, u.group, u.input)
	must(u.t, err)
	for partition, end := range ends {
		if done[partition] != end {
			u.t.Errorf("partition %d is committed to %d, want its end %d", partition, done[partition], end)
		}
	}
}

// checkWorkers compares the counters of those that run to the broker's, and what all had to their bounds.
func (u *suite) checkWorkers(b books) {
	u.t.Helper()
	by := job.ByOwner(b.outputs)
	for _, w := range u.workers {
		if most := w.watch.Most(); most.Resident > mostResident || most.InFlight > float64(u.setup.limit) {
			u.t.Errorf("%s had %.0f MiB and %.0f events in flight, want at most %d MiB and %d events", w.Name,
				most.Resident/(1<<20), most.InFlight, mostResident>>20, u.setup.limit)
		}
		if w.Running() {
			u.checkCounters(w, float64(len(by[w.Name])), toldBy(w).back)
		}
	}
}

// checkCounters holds a worker that runs to what the broker has of it, once it has nothing to do: to no more than that where
// it has gone back.
func (u *suite) checkCounters(w *worker, made float64, back bool) {
	u.t.Helper()
	wrong := ""
	for deadline := time.Now().Add(20 * time.Second); ; pause(u.t, 50*time.Millisecond) {
		m, want := w.Metrics(), made
		if back {
			want = min(made, m.Value("enricher_outputs_total"))
		}
		if wrong = disagreeing(m, want); wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			u.t.Errorf("%s has nothing to do, and says%s", w.Name, wrong)
			return
		}
	}
}

// disagreeing returns what is not as it must be of a worker without work.
func disagreeing(m job.Families, made float64) string {
	wrong := ""
	for name, want := range map[string]float64{
		"enricher_outputs_total": made, "enricher_source_lag": 0, "enricher_in_flight_events": 0, "enricher_lanes": 0,
		"enricher_windows_open": 0, "enricher_workers_busy": 0,
	} {
		if got := m.Value(name); got != want {
			wrong += fmt.Sprintf(" %s=%.0f (want %.0f)", name, got, want)
		}
	}
	if n := m.Value("go_goroutines"); n > mostGoroutines {
		wrong += fmt.Sprintf(" go_goroutines=%.0f (want at most %d)", n, mostGoroutines)
	}
	return wrong
}
