//go:build unix

package kafka_test

import (
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// checkSeen holds what was seen last of a worker that was killed to what the broker had of it then.
//
// At least once, what had been written and was not counted was in flight, or was so when the worker went back and heard no
// more of it: each no more than the limit. An event that was written has an outcome, but where the partition was taken away
// meanwhile: then another has written it too.
//
// In transactions all is counted that was written up to the last but one commit that the broker had taken by then: see counted.
//
// What was read has an outcome, was in flight, was given back when partitions went away, each time no more than the limit, or
// was written in a transaction that was not counted yet or was aborted.
func (u *suite) checkSeen(w *worker, t told, made []job.Output, b books, kept []commit) {
	u.t.Helper()
	if w.watch.Samples() == 0 {
		return
	}
	seen, limit := t.last.At.Truncate(time.Millisecond), float64(u.setup.limit)
	until := seen
	if w.once {
		until = u.counted(w, seen, kept)
	}
	written, open, again := 0.0, 0.0, 0.0
	for _, o := range made {
		switch at := b.times[job.Place{Partition: o.Partition, Offset: o.Offset}]; {
		case at.Before(until):
			written++
			if t.handed && b.written[o.ID] > 1 {
				again++
			}
		case w.once:
			open++
		}
	}
	least := written - limit*float64(1+t.unheard)
	if w.once {
		least, again = written, 0
	}
	if known := !w.once || t.unheard == 0; known && (t.Outputs < least || t.Emitted < least-again) {
		u.t.Errorf("%s had counted %.0f outputs of %.0f events when it was seen last, want at least %.0f, and %.0f that were not written again: by %v the broker had %.0f of it",
			w.Name, t.Outputs, t.Emitted, least, least-again, until.Format(time.StampMilli), written)
	}
	// The metrics are read one after the other, while events come and go.
	skew := limit
	most := t.outcomes() + limit*float64(1+len(t.partings)) + skew
	if w.once {
		most += open + float64(b.hidden[w.Name])
	}
	if !u.through() && (t.Read+skew < t.outcomes() || t.Read > most) {
		u.t.Errorf("%s had counted %.0f events as read when it was seen last, and %.0f that have an outcome, want at most %.0f: it gave events back %d times, and had %.0f in a transaction and %d in those that were aborted",
			w.Name, t.Read, t.outcomes(), most, len(t.partings), open, b.hidden[w.Name])
	}
}

// counted returns up to when a worker in transactions had counted all that it had written, when it was seen at a time. That is
// the last but one commit that the broker had taken of it by then: a transaction begins when the one before is counted, and the
// last one may have been taken and not be counted yet. Where a partition begins is committed without a transaction.
func (u *suite) counted(w *worker, seen time.Time, kept []commit) (before time.Time) {
	type place struct {
		topic     string
		partition int32
	}
	var last time.Time
	begun, by := map[place]bool{}, u.committers(kept)
	for i, c := range kept {
		of := place{c.topic, c.partition}
		if begun[of] && by[i] == w.Name && c.at.Before(seen) && c.at.After(last) {
			before, last = last, c.at
		}
		begun[of] = true
	}
	return before
}
