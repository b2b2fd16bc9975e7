//go:build unix

package kafka_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// uncommitted is how long a worker goes on writing of a partition at most after the first that it does not come to commit:
// a commit_interval, and what a busy machine adds.
const uncommitted = 200*time.Millisecond + time.Second

// owed is what was written in a turn and is read again, by what explains it.
type owed struct {
	before []*made // in flight at the last commit that the broker took
	since  []*made // left after it, for no longer than uncommitted
	after  []*made // in flight when the worker said that the partition was lost

	wrong string // with what nothing explains
	bad   []*made
}

// made returns what the workers wrote of the events, outputs and error events, with the broker's times.
func (u *suite) made(b books) []*made {
	var all []*made
	for _, o := range b.outputs {
		from := u.events[o.ID]
		all = append(all, &made{
			id: o.ID, of: []job.Place{{Partition: from.Partition, Offset: from.Offset}}, worker: o.Owner,
			at: b.times[job.Place{Partition: o.Partition, Offset: o.Offset}],
		})
	}
	for _, e := range b.failed {
		from := u.events[e.id]
		all = append(all, &made{id: e.id, of: []job.Place{{Partition: from.Partition, Offset: from.Offset}}, worker: e.worker, at: e.at})
	}
	return all
}

// handedOver returns how many repeats the books explain of what was written of a topic's events, since partitions went
// from one turn to another. Of what the next turn read again, and of nothing else, there may be
//
//   - what was in flight at the last commit that the broker took of the partition, and what was when the worker said that it
//     was lost: each no more than the limit, of all partitions together;
//   - what left between these two. That ends with the next commit: it goes on no longer than uncommitted, but for the time
//     of a fault;
//   - nothing where the partition was given back in good order, but for a fault, and nothing that was committed as finished.
//
// It fails the test for what is beyond that. What ended with a kill is left to others unless kills says so.
func (u *suite) handedOver(topic string, all []*made, kept []commit, kills bool) int {
	u.t.Helper()
	turns := u.turns(topic, kept)
	if none := give(turns, all); len(none) > 0 {
		u.t.Errorf("%d times a worker wrote of %s what it had not been assigned again, at last %s of %v", len(none), topic, none[0].worker, none[0].of)
	}
	n := 0
	before, after := flights{}, flights{}
	for _, of := range turns {
		for _, t := range of {
			if len(t.open) == 0 || t.how == killed && !kills {
				continue
			}
			o := u.owes(t, kept)
			if len(o.bad) > 0 {
				byOffset := func(a, b *made) int { return cmp.Compare(a.place.Offset, b.place.Offset) }
				first, last := slices.MinFunc(o.bad, byOffset).place.Offset, slices.MaxFunc(o.bad, byOffset).place.Offset
				u.t.Errorf("%s had partition %d of %s from offset %d on, %s, and %s read on from %d: %d of what it had written was written again, want at most %d: %d from %d to %d %s",
					t.worker, t.partition, topic, t.offset, t.ending(), t.next.worker, t.next.offset, o.n()+len(o.bad), o.n(), len(o.bad), first, last, o.wrong)
			}
			before.add(t, t.kept, len(o.before))
			after.add(t, t.end, len(o.after))
			n += o.n()
		}
	}
	before.check(u, "at the commit", 0)
	after.check(u, "when it lost them", 100*time.Millisecond)
	return n
}

func (o owed) n() int { return len(o.before) + len(o.since) + len(o.after) }

func (t *turn) ending() string {
	if t.how == "" {
		return "with no end in its log"
	}
	return fmt.Sprintf("%s at %v", t.how, t.end.Format(time.TimeOnly+".000"))
}

// owes sorts what is open of a turn.
func (u *suite) owes(t *turn, kept []commit) owed {
	var o owed
	slices.SortFunc(t.open, func(a, b *made) int { return a.at.Compare(b.at) })
	wrong := func(m *made, why string) {
		if m.again {
			o.bad, o.wrong = append(o.bad, m), why
		}
	}
	from, known := t.next.given(kept)
	orderly := (t.how == revoked || t.how == stopped) && !u.faulty(t.end, t.next.began)
	for _, m := range t.open {
		switch {
		case known && t.how != back && from.has(m.place.Offset):
			wrong(m, "although it was committed as finished")
		case orderly:
			wrong(m, "although it was given back in good order")
		case m.at.Before(t.kept.Truncate(time.Millisecond)) && u.well(t.worker, m.at, t.kept) == t.kept.Sub(m.at):
			o.before = append(o.before, m) // else the commit may have been on its way since before the fault
		case t.how == back || t.how == lost && m.at.After(t.end):
			o.after = append(o.after, m)
		case len(o.since) > 0 && u.well(t.worker, o.since[0].at, m.at) > uncommitted:
			wrong(m, fmt.Sprintf("although %v had passed in which it could be committed", u.well(t.worker, o.since[0].at, m.at)))
		default:
			o.since = append(o.since, m)
		}
	}
	return o
}

// flights counts what each worker had in flight at some times.
type flights map[string][]flight

type flight struct {
	at time.Time
	n  int
}

func (f flights) add(t *turn, at time.Time, n int) {
	if n > 0 {
		f[t.worker] = append(f[t.worker], flight{at, n})
	}
}

// check holds what was in flight at one time, or at times that are no farther apart than near, to the limit.
func (f flights) check(u *suite, when string, near time.Duration) {
	u.t.Helper()
	for worker, all := range f {
		slices.SortFunc(all, func(a, b flight) int { return a.at.Compare(b.at) })
		n := 0
		for i, l := range all {
			if i > 0 && l.at.Sub(all[i-1].at) > near {
				n = 0
			}
			if n += l.n; n > u.setup.limit {
				u.t.Errorf("%s had %d in flight %s at %v, want at most %d", worker, n, when, l.at, u.setup.limit)
			}
		}
	}
}

// A commit that is held up says what was finished when it was sent, and the broker notes when it took it: what has left in
// between was not in flight, and may be far more than the limit.
func TestWhatLeftWhileACommitWasHeldUpIsNotTakenForInFlight(t *testing.T) {
	began := time.Now().Truncate(time.Second)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	for _, tt := range []struct {
		name          string
		faults        []*fault
		before, since int
	}{
		{"nothing is wrong", nil, 100, 0},
		{"the coordinator moves", []*fault{{sleep: sleep{from: at(time.Second), to: at(4 * time.Second)}}}, 0, 100},
		{"and nobody waits for it", []*fault{{sleep: sleep{from: at(6 * time.Second), to: at(7 * time.Second)}}}, 100, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := &suite{t: t, faults: tt.faults}
			a := &turn{assignment: assignment{worker: "a"}, began: at(0), kept: at(5 * time.Second), how: lost, end: at(5100 * time.Millisecond)}
			a.next = &turn{assignment: assignment{worker: "b"}, began: at(6 * time.Second)}
			for i := range 100 {
				a.open = append(a.open, &made{at: at(2*time.Second + time.Duration(i)*time.Millisecond), again: true})
			}
			if o := u.owes(a, nil); len(o.before) != tt.before || len(o.since) != tt.since || len(o.bad) > 0 {
				t.Errorf("%d were in flight, %d have left since and %d are not explained, want %d, %d and 0", len(o.before), len(o.since), len(o.bad), tt.before, tt.since)
			}
		})
	}
}
