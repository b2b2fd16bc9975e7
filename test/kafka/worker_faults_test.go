//go:build unix

package kafka_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// One worker becomes four and one again. They share and leave in good order, so that nothing is repeated, and each
// stop ends in time although it falls into the rebalances of the others, at last also while no call is answered.
func TestARebalanceStormLosesAndRepeatsNothingAndEveryStopEndsInTime(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{set: []string{steady}})
	u.begin()
	u.working(u.start())
	for last := rounds(2, 20); u.rounds < last; {
		u.rounds++
		var more []*worker
		for range 3 {
			more = append(more, u.start())
		}
		if u.rounds%2 == 0 { // every other time they go before they have settled
			waitFor(t, "four workers have partitions", func() bool { return u.owners() == 4 })
			u.progress(100)
		}
		if u.rounds == last {
			must(t, u.api.Become(job.Hangs))
		}
		for _, w := range more {
			w.Terminate()
		}
		for _, w := range more {
			u.ended(w)
		}
		must(t, u.api.Become(job.Answers))
		u.progress(100)
	}
	waitFor(t, "one worker has all", func() bool { return u.owners() == 1 })
	u.check(taken)
}

// A worker is stopped where it is until the group has given it up, and goes on then. What it had in flight is repeated;
// what it does not know yet to have lost it neither commits nor puts before newer events of a key.
func TestAWorkerThatComesBackFromAPauseDoesNoHarm(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{})
	random := rand.New(rand.NewPCG(3, 4))
	u.begin()
	pair := []*worker{u.start(), u.start()}
	for range rounds(2, 15) {
		u.rounds++
		sleeper, other := pair[0], pair[1]
		u.working(sleeper)
		u.working(other)
		waitFor(t, "two workers have partitions", func() bool { return u.owners() == 2 })
		u.progress(1 + random.IntN(200))
		sleeper.Pause()
		waitFor(t, "the group has given it up", func() bool { return u.owners() == 1 })
		u.progress(50 + random.IntN(300))
		sleeper.Continue()
		waitFor(t, "two workers have partitions again", func() bool { return u.owners() == 2 })
		pair[0], pair[1] = other, sleeper
	}
	u.progress(100)
	u.check(taken)
}

// The network between workers and broker carries nothing for a while, in both directions, and no connection ends:
// longer than a session lasts, and shorter.
func TestASilentNetworkLosesNothing(t *testing.T) {
	c := shared.one(t)
	u := newSuite(t, c, setup{})
	u.begin()
	pair := []*worker{u.start(), u.start()}
	proxy := c.Nodes[0].Proxy
	t.Cleanup(proxy.Heal)
	for range rounds(2, 10) {
		u.rounds++
		u.working(pair[0])
		u.working(pair[1])
		over := u.fault()
		proxy.Stall()
		pause(t, []time.Duration{3 * time.Second, 500 * time.Millisecond}[u.rounds%2])
		proxy.Heal()
		over(unanswered)
		u.progress(200)
	}
	for range rounds(1, 10) { // and connections that are cut in the middle of what they carry
		u.rounds++
		over := u.fault()
		proxy.Cut()
		over(unanswered)
		u.progress(100)
	}
	u.check(taken)
}
