//go:build unix

package kafka_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// once are the overrides of a worker that works in transactions under the name instance.
func once(instance string) []string {
	return []string{"delivery=exactly_once", "instance=" + instance, `sink.kafka.options["transaction.timeout.ms"]=10000`}
}

// brief are those of one whose transactions the brokers abort sooner.
func brief(instance string) []string {
	return append(once(instance), `sink.kafka.options["transaction.timeout.ms"]=5000`)
}

// Of two workers one is killed at a random moment, again and again, and now and then a third joins and leaves.
func TestExactlyOnceHoldsThroughKillsAndRebalances(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{fails: true})
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
	u.settle()
	u.checkSettled(nothing)
}

// One worker becomes four and one again, and no sooner than every other time have they shared the partitions before. None is
// killed, and what a transaction loses by a rebalance is done again.
func TestExactlyOnceHoldsThroughAStormOfRebalances(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{fails: true, set: []string{steady}})
	u.begin()
	u.working(u.start(once("a")...))
	for range rounds(2, 15) {
		u.rounds++
		var more []*worker
		for _, instance := range []string{"b", "c", "d"} {
			more = append(more, u.start(once(instance)...))
		}
		if u.rounds%2 == 0 {
			waitFor(t, "four workers have partitions", func() bool { return u.owners() == 4 })
			u.progress(100)
		}
		for _, w := range more {
			w.Terminate()
		}
		for _, w := range more {
			u.ended(w)
		}
		u.progress(100)
	}
	waitFor(t, "one worker has all", func() bool { return u.owners() == 1 })
	u.settle()
	u.checkSettled(nothing)
}

// A worker is killed and another takes its place at once: until the session of the killed one has ended, the group waits for
// it, and the library commits nothing. A transaction that is open meanwhile would outlive its timeout, and its worker be fenced off.
func TestARebalanceThatOutlastsATransactionEndsNoWorker(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{fails: true, set: []string{`source.kafka.options["session.timeout.ms"]=10000`}})
	u.begin()
	stays, goes := u.start(brief("a")...), u.start(brief("b")...)
	u.working(stays)
	u.working(goes)
	u.rounds++
	u.crash(goes)
	u.working(u.start(brief("c")...))
	u.progress(100)
	u.settle()
	u.checkSettled(nothing)
	log := stays.Log()
	if strings.Contains(log, "was taken over") {
		t.Errorf("the worker that stayed was fenced off:\n%s", log)
	}
	if !strings.Contains(log, "as in a long rebalance") {
		t.Errorf("no transaction of the worker that stayed waited for the rebalance:\n%s", log)
	}
}

// Kills through a repartition topic, which both hops reach in transactions. Now and then a worker stands still in the
// middle of one until the group has given it up, and comes back.
func TestExactlyOnceHoldsOverARepartitionTopic(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{file: repartitionFile, fails: true})
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
	u.stop(pair[0])
	pair[0] = u.start(once("a")...) // one that has never stood still counts what it writes to the last
	u.working(pair[0])
	u.progress(200)
	u.settle()
	u.checkSettled(nothing)
}
