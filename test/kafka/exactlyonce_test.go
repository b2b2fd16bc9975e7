//go:build unix

package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
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
		pair[i] = u.start(once(fmt.Sprint("ab"[i : i+1]))...)
	}
	u.progress(200)
	u.checkOnce()
}
