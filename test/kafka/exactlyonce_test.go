//go:build unix

package kafka_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// once are the overrides of a worker that works in transactions under the name instance.
func once(instance string) []string {
	return []string{"delivery=exactly_once", "instance=" + instance, `sink.kafka.options["transaction.timeout.ms"]=10000`}
}

// checkOnce checks the books of a job in transactions: nothing may be repeated, whatever happened.
func (u *suite) checkOnce() books {
	u.t.Helper()
	b := u.check(0)
	if b.Repeated > 0 {
		u.t.Errorf("a reader of what is committed sees %d outputs twice, want none", b.Repeated)
	}
	return b
}

// Of two workers one is killed at a random moment, again and again, and now and then a third joins and leaves.
func TestExactlyOnceHoldsThroughKillsAndRebalances(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{})
	random := rand.New(rand.NewPCG(3, 4))
	u.begin()
	pair := []*worker{u.start(once("a")...), u.start(once("b")...)}
	for round := range rounds(3, 50) {
		u.rounds++
		i := random.IntN(2)
		u.working(pair[i])
		pause(t, time.Duration(random.IntN(400))*time.Millisecond)
		if round%3 == 2 {
			third := u.start(once("c")...)
			pause(t, time.Duration(random.IntN(1500))*time.Millisecond)
			if random.IntN(2) == 0 {
				u.crash(third)
			} else {
				u.stop(third)
			}
			continue
		}
		u.crash(pair[i])
		pair[i] = u.start(once("ab"[i : i+1])...)
	}
	u.progress(200)
	u.checkOnce()
}

// The same through a repartition topic, which both hops reach in transactions. Now and then a worker stands still in the
// middle of one until the group has given it up, and comes back.
func TestExactlyOnceHoldsOverARepartitionTopic(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{file: repartitionFile})
	random := rand.New(rand.NewPCG(5, 6))
	u.begin()
	pair := []*worker{u.start(once("a")...), u.start(once("b")...)}
	for round := range rounds(3, 21) {
		u.rounds++
		i := random.IntN(2)
		u.working(pair[i])
		pause(t, time.Duration(random.IntN(400))*time.Millisecond)
		switch round % 3 {
		case 0:
			u.crash(pair[i])
			pair[i] = u.start(once("ab"[i : i+1])...)
		case 1:
			waitFor(t, "two workers have partitions", func() bool { return u.owners() == 2 })
			pair[i].Pause()
			waitFor(t, "the group has given it up", func() bool { return u.owners() == 1 })
			pause(t, time.Duration(random.IntN(400))*time.Millisecond)
			pair[i].Continue()
			waitFor(t, "two workers have partitions again", func() bool { return u.owners() == 2 })
		case 2:
			third := u.start(once("c")...)
			pause(t, time.Duration(random.IntN(1500))*time.Millisecond)
			u.stop(third)
		}
	}
	u.progress(200)
	u.settle()
	waitFor(t, "the topic in between is committed to its end", func() bool {
		idle, err := job.Idle(t.Context(), u.c.Admin, u.group, u.between())
		must(t, err)
		return idle
	})
	b := u.read()
	if b.Lost > 0 || b.Repeated > 0 || b.Disordered > 0 || b.Moved > 0 || b.failed > 0 || b.Outputs == 0 {
		t.Errorf("delivered %v and %d error events, want each event once", b.Delivery, b.failed)
	}
	u.checkCommits()
	u.checkStarts(u.commits())
	report.add(line{
		suite: t.Name(), rounds: u.rounds, events: len(u.events), lost: b.Lost, repeated: b.Repeated, disordered: b.Disordered,
		errors: b.failed, stall: u.api.LongestStall(), took: time.Since(u.began),
	})
	t.Logf("rounds=%d events=%d %v errors=%d", u.rounds, len(u.events), b.Delivery, b.failed)
}
