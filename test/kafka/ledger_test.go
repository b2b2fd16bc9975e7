//go:build unix

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// ledger compares what the pipelines of a test have counted to what the broker has, whenever the last of those that ran at
// the same time has ended. That time is a span. Nobody has to ask for it: each run is noted when it starts.
type ledger struct {
	t *lasting
	c *cluster.Cluster
	p places

	running, ended []*inside // of the span
	from           picture   // when the span began
	deleted        tally     // of topics that were deleted in the span
	disordered     int64     // outputs in these that were out of order
	differs        differences
}

// lasting is a test whose context goes on while it is cleaned up.
type lasting struct{ testing.TB }

func (l *lasting) Context() context.Context { return context.WithoutCancel(l.TB.Context()) }

// differences say how far the figures of a span may be from those of one in which nothing happened: exactly the records
// that were there are read, each once, and leave once. A test says by how much and why.
type differences struct {
	early    bool   // a run ends before all is committed
	ahead    int64  // events that have left beyond what is committed then
	over     bounds // records that were passed over, since they were finished before
	rewinds  bounds // how often it goes back to what was committed
	each     int64  // events that it gives back each time, at most; at least one
	restarts bounds // how often a pipeline is started again
	returned bounds // events that are given back otherwise

	unfinished bounds
	repeated   bounds // events that have an outcome once more, since it was not committed
	unheard    bounds // records that the broker took and did not come to answer for
	failed     bounds // commits that failed
	unordered  bool   // events of a key do not keep their order
}

// bounds of a number; the zero value is none.
type bounds struct{ least, most int64 }

func exactly(n int64) bounds             { return bounds{n, n} }
func between(least, most int64) bounds   { return bounds{least, most} }
func (b bounds) hold(n int64) bool       { return b.least <= n && n <= b.most }
func (b bounds) plus(more bounds) bounds { return bounds{b.least + more.least, b.most + more.most} }
func (b bounds) String() string {
	if b.least == b.most {
		return fmt.Sprint(b.least)
	}
	return fmt.Sprintf("%d to %d", b.least, b.most)
}

// picture is what the broker had at some time.
type picture struct {
	first, end, committed map[int32]int64 // of the input
	out, errors           map[int32]int64 // where they ended
	commits               int             // of the group
}

// tally is what the broker has of a span.
type tally struct {
	input, gone int64          // records that the group has gone past, and those that were gone before it came to them
	outputs     map[string]int // by their values
	errors      map[string]int
}

func (y *tally) add(more tally) {
	y.input += more.input
	y.gone += more.gone
	y.outputs, y.errors = sums(y.outputs, more.outputs), sums(y.errors, more.errors)
}

func sums(a, b map[string]int) map[string]int {
	all := maps.Clone(b)
	if all == nil {
		all = map[string]int{}
	}
	for v, n := range a {
		all[v] += n
	}
	return all
}

// total returns how many there are, and how many of them for the second time or more.
func total(values map[string]int) (n, again int64) {
	for _, times := range values {
		n, again = n+int64(times), again+int64(times-1)
	}
	return n, again
}

// open notes a run that starts.
func (l *ledger) open(t *testing.T, c *cluster.Cluster, p places, in *inside) {
	t.Helper()
	l.t, l.c, l.p = &lasting{t}, c, p
	if len(l.running) == 0 {
		l.from, l.ended, l.deleted, l.disordered = l.look(), nil, tally{}, 0
	}
	l.running = append(l.running, in)
}

// look takes a picture.
func (l *ledger) look() picture {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	p := picture{first: map[int32]int64{}}
	job.WaitFor(l.t, patience, "the broker tells what "+l.p.group+" has committed", func() bool { // the first who asks has the topic made
		var err, missing error
		p.committed, err = job.Committed(ctx, l.c.Admin, l.p.group, l.p.in)
		if err == nil {
			_, missing = job.Ends(ctx, l.c.Admin, offsetsTopic)
		}
		return err == nil && missing == nil
	})
	p.commits = len(commitsOf(l.t, l.c, l.p.group))
	job.WaitFor(l.t, patience, "the broker tells what the topics of "+l.p.group+" have", func() bool { // one that was just made may not be known
		starts, err := l.c.Admin.ListStartOffsets(ctx, l.p.in)
		if err == nil {
			err = starts.Error()
		}
		starts.Each(func(o kadm.ListedOffset) { p.first[o.Partition] = o.Offset })
		for topic, into := range map[string]*map[int32]int64{l.p.in: &p.end, l.p.out: &p.out, l.p.errors: &p.errors} {
			var unknown error
			*into, unknown = job.Ends(ctx, l.c.Admin, topic)
			err = errors.Join(err, unknown)
		}
		return err == nil
	})
	return p
}

// delete deletes a topic, and keeps what it had.
func (l *ledger) delete(t *testing.T, topic string) {
	t.Helper()
	switch now := l.look(); topic {
	case l.p.in:
		now.committed = now.end // all of it was read, or the figures do not add up
		l.deleted.add(l.passed(now))
		l.from.first, l.from.end, l.from.committed = nil, nil, nil
	case l.p.out:
		l.deleted.outputs = sums(l.deleted.outputs, l.values(topic, l.from.out))
		l.disordered += disordered(l.t, l.c, topic, l.from.out)
		l.from.out = nil
	}
	deleteTopic(t, l.c, topic)
}

// passed returns how far the group has come since the span began.
func (l *ledger) passed(now picture) (y tally) {
	for partition, to := range now.committed {
		from, any := l.from.committed[partition]
		first := l.from.first[partition]
		switch {
		case !any || from > l.from.end[partition]: // nothing to go on from: it began with the first
			from = first
		case from < first:
			y.gone += max(min(first, to)-from, 0)
		}
		y.input += to - from
	}
	return y
}

// values returns what was written to a topic from offsets on.
func (l *ledger) values(topic string, from map[int32]int64) map[string]int {
	found := map[string]int{}
	job.EachRecord(l.t, l.c.Admin, l.c.Direct(), topic, func(r *kgo.Record) {
		if r.Offset >= from[r.Partition] {
			found[string(r.Value)]++
		}
	}, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	return found
}

// settle waits until all that the input has is committed and the pipelines that run have nothing to do and say so.
func (l *ledger) settle() {
	if l.t.Failed() || l.differs.early {
		return
	}
	var err error
	job.WaitFor(l.t, patience, "everything of "+l.p.in+" is committed", func() bool {
		var idle bool
		idle, err = job.Idle(l.t.Context(), l.c.Admin, l.p.group, l.p.in)
		return idle && err == nil
	})
	for _, in := range l.running {
		if in.ended() {
			l.t.Errorf("a pipeline of %s has ended by itself", l.p.group)
			continue
		}
		said := ""
		job.WaitFor(l.t, patience, "a pipeline of "+l.p.group+" has nothing to do", func() bool {
			said = ""
			for _, name := range []string{"enricher_in_flight_events", "enricher_in_flight_bytes", "enricher_source_lag", "enricher_lanes", "enricher_workers_busy"} {
				if n := in.counted(name, "pipeline="+l.p.group); n != 0 {
					said += fmt.Sprintf(" %s=%v", name, n)
				}
			}
			return said == ""
		})
	}
}

// close notes a run that has ended, and compares when it was the last.
func (l *ledger) close(in *inside) {
	l.t.Helper()
	l.ended = append(l.ended, in)
	for i, other := range l.running {
		if other == in {
			l.running = append(l.running[:i:i], l.running[i+1:]...)
		}
	}
	if len(l.running) == 0 && !l.t.Failed() {
		checkNoneLeft(l.t)
		l.compare()
		l.differs = differences{}
	}
}

// counts is what the pipelines of a span have counted.
type counts struct {
	read, emitted, dropped, errors, outputs, unfinished, returned, over, skipped, rewinds, restarts, commits, tried int64
}

// add adds what one has counted, and holds its metrics to its status and its log.
func (s *counts) add(l *ledger, in *inside) {
	l.t.Helper()
	st := in.runs.Status()
	n := func(name string, labels ...string) int64 {
		return int64(in.counted(name, append(labels, "pipeline="+l.p.group)...))
	}
	var types int64
	for _, of := range st.ErrorsByType {
		types += of
	}
	rewinds, restarts := n("enricher_rewinds_total"), n("enricher_restarts_total")
	for _, c := range []struct {
		what         string
		metric, said int64
	}{
		{"events read", n("enricher_events_read_total"), st.Read},
		{"events emitted", n("enricher_events_total", "outcome=emitted"), st.Emitted},
		{"events dropped", n("enricher_events_total", "outcome=dropped"), st.Dropped},
		{"events that failed", n("enricher_events_total", "outcome=error"), st.Errors},
		{"error events", n("enricher_errors_total"), st.Errors},
		{"error events by type", types, st.Errors},
		{"outputs", n("enricher_outputs_total"), st.Outputs},
		{"records passed over", n("enricher_source_passed_over_total"), st.PassedOver},
		{"records that were gone", n("enricher_source_skipped_total"), st.Skipped},
		{"rewinds", rewinds, int64(in.said(": going back to the committed offsets"))},
		{"restarts", restarts, int64(in.said("starting the pipeline again"))},
		{"events that are accounted for", st.Emitted + st.Dropped + st.Errors + st.Unfinished + st.Returned, st.Read},
	} {
		if c.metric != c.said {
			l.t.Errorf("a pipeline of %s has counted %d %s, and its status or log has %d", l.p.group, c.metric, c.what, c.said)
		}
	}
	s.read, s.emitted, s.dropped, s.errors, s.outputs = s.read+st.Read, s.emitted+st.Emitted, s.dropped+st.Dropped, s.errors+st.Errors, s.outputs+st.Outputs
	s.unfinished, s.returned, s.over, s.skipped = s.unfinished+st.Unfinished, s.returned+st.Returned, s.over+st.PassedOver, s.skipped+st.Skipped
	s.rewinds, s.restarts = s.rewinds+rewinds, s.restarts+restarts
	s.commits, s.tried = s.commits+n("enricher_commits_total", "outcome=ok"), s.tried+n("enricher_commits_total")
}

// compare holds what the pipelines of the span have counted to what the broker has of it.
func (l *ledger) compare() {
	l.t.Helper()
	now := l.look()
	there := tally{outputs: l.values(l.p.out, l.from.out), errors: l.values(l.p.errors, l.from.errors)}
	there.add(l.passed(now))
	there.add(l.deleted)
	var s counts
	for _, in := range l.ended {
		s.add(l, in)
	}
	outputs, again := total(there.outputs)
	failed, againFailed := total(there.errors)
	once := there.input - there.gone - s.over + l.differs.ahead // what had to be read, and to leave
	d := l.differs
	left := d.repeated.plus(exactly(once))
	if l.disordered += disordered(l.t, l.c, l.p.out, l.from.out); l.disordered > 0 && !d.unordered {
		l.t.Errorf("the pipelines of %s have written %d outputs out of the order of their key", l.p.group, l.disordered)
	}
	for _, c := range []struct {
		what   string
		n      int64
		bounds bounds
	}{
		{"events read, without those that were given back or are unfinished", s.read - s.returned - s.unfinished, left},
		{"events with an outcome", s.emitted + s.dropped + s.errors, left},
		{"events unfinished", s.unfinished, d.unfinished},
		{"records passed over", s.over, d.over},
		{"records that were gone", s.skipped, exactly(there.gone)},
		{"rewinds", s.rewinds, d.rewinds},
		{"restarts", s.restarts, d.restarts},
		{"events given back", s.returned, d.returned.plus(between(s.rewinds, s.rewinds*d.each))},
		{"outputs of events that have no outcome by them", s.outputs - s.emitted, between(0, s.returned)},
		{"outputs too few", outputs - s.outputs, d.unheard},
		{"error events too few", failed - s.errors, bounds{}},
		{"outputs and error events by the broker that are there again", again + againFailed, d.repeated.plus(between(0, s.returned))},
		{"events of which the broker has an output or an error event, or that were dropped", outputs - again + failed - againFailed + s.dropped, exactly(once)},
		{"commits that failed", s.tried - s.commits, d.failed},
	} {
		if !c.bounds.hold(c.n) {
			l.t.Errorf("the pipelines of %s have %d %s, want %v: they have counted %+v, and the broker has %d records of the input, of which %d were gone, %d outputs and %d error events",
				l.p.group, c.n, c.what, c.bounds, s, there.input, there.gone, outputs, failed)
		}
	}
	l.compareCommits(s, now)
	if there.input == 0 && !d.early {
		l.t.Errorf("the pipelines of %s had nothing to read", l.p.group)
	}
	report.add(line{
		suite: l.t.Name(), rounds: 1, events: int(once), lost: int(max(once-(outputs-again+failed-againFailed+s.dropped), 0)),
		repeated: int(again + againFailed), allowed: int(d.repeated.most + s.returned),
		disordered: int(l.disordered), keyless: d.unordered,
	})
	l.t.Logf("agreed: %d pipelines of %s have counted %+v; the broker has %d records of the input, of which %d were gone, %d outputs and %d error events",
		len(l.ended), l.p.group, s, there.input, there.gone, outputs, failed)
}

// compareCommits holds the commits that were counted to those that the broker took. Where a topic begins is committed before
// it is read, and so is that records were gone: those commits are not counted.
func (l *ledger) compareCommits(s counts, now picture) {
	l.t.Helper()
	all := commitsOf(l.t, l.c, l.p.group)
	begun, gaps := starts(all, l.from.commits), int64(0)
	for partition, first := range l.from.first {
		if at, any := l.from.committed[partition]; any && at < first && now.committed[partition] >= first {
			gaps++
		}
	}
	requests, anew, _ := countCommits(all[l.from.commits:])
	uncounted := int64(begun) + gaps
	if s.commits+uncounted > int64(requests) || s.tried+uncounted < int64(anew) {
		l.t.Errorf("the pipelines of %s have counted %d commits, %d with those that failed, and the broker has %d, %d of them with something new and %d of where it began",
			l.p.group, s.commits, s.tried, requests, anew, uncounted)
	}
	l.t.Logf("agreed: %d commits were counted, %d with those that failed; the broker has %d, %d of them of where it began", s.commits, s.tried, requests, uncounted)
}

// starts returns how many commits from a place on say where a topic begins: the first of each, also of one that was made
// again. A partition that is added has none.
func starts(all []commit, from int) int {
	first := map[string]int{}
	for i, c := range all {
		of := c.topic
		for _, field := range strings.Fields(c.metadata) {
			if strings.HasPrefix(field, "topic=") {
				of += " " + field
			}
		}
		if at, known := first[of]; !known || c.at.Before(all[at].at) {
			first[of] = i
		}
	}
	n := 0
	for _, i := range first {
		if i >= from {
			n++
		}
	}
	return n
}
