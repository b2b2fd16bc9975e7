//go:build unix

package kafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// inTransactions are workers like patient ones, whose events also fail in each way.
var inTransactions = setup{delay: patient.delay, set: patient.set, fails: true}

// Brokers are stopped in good order, killed and started again, one after the other: those that transactions write to, and
// those that coordinate the group and the transactions.
func TestExactlyOnceHoldsWhileBrokersComeAndGo(t *testing.T) {
	u := newSuite(t, shared.three(t), inTransactions)
	u.begin()
	u.start(once("a")...)
	u.working(u.start(once("b")...))
	u.comeAndGo(rounds(1, 6)) // each of the three in both ways
	u.checkOnce(once("a"))
}

// The coordinator of the group moves to another broker, then those of the transactions, then both, while all brokers live.
func TestExactlyOnceHoldsWhileCoordinatorsMove(t *testing.T) {
	u := newSuite(t, shared.three(t), inTransactions)
	u.begin()
	u.working(u.start(once("a")...))
	u.working(u.start(once("b")...))
	for range rounds(2, 15) {
		u.rounds++
		waitFor(t, "every partition has its three replicas", u.replicated)
		group, transactions := u.coordinator(), u.ending("a")
		over := u.fault()
		if u.rounds%3 != 2 {
			u.move(offsetsTopic, group, u.coordinator)
		}
		if u.rounds%3 != 1 {
			u.move(transactionsTopic, transactions, func() int32 { return u.ending("a") })
		}
		over(unanswered)
		u.progress(200)
	}
	u.checkOnce(once("a"))
}

// move has another broker coordinate than the one that does, by where of tells.
func (u *suite) move(topic string, from int32, of func() int32) {
	u.t.Helper()
	to := from%3 + 1
	elect := u.prefer(topic, to, to%3+1, from)
	waitFor(u.t, "another broker coordinates by "+topic, func() bool {
		_, err := elect.RequestWith(u.t.Context(), u.c.Client) // its effect says whether it was taken
		return err == nil && of() == to
	})
}

// ending returns the node that coordinates the transactions of an instance.
func (u *suite) ending(instance string) int32 {
	u.t.Helper()
	node := int32(-1)
	waitFor(u.t, "a broker coordinates the transactions of "+instance, func() bool {
		id := u.group + "-" + instance
		found := u.c.Admin.FindTxnCoordinators(u.t.Context(), id)[id]
		node = found.NodeID
		return found.Err == nil
	})
	return node
}

// The network between workers and broker carries nothing for a while, in both directions, and no connection ends: until the
// brokers have aborted what was open, for longer than a session lasts, and shorter. At last connections are cut.
func TestExactlyOnceHoldsThroughASilentNetwork(t *testing.T) {
	c := shared.one(t)
	u := newSuite(t, c, setup{fails: true})
	u.begin()
	pair := []*worker{u.start(brief("a")...), u.start(brief("b")...)}
	proxy := c.Nodes[0].Proxy
	t.Cleanup(proxy.Heal)
	for range rounds(1, 15) {
		u.working(pair[0])
		u.working(pair[1])
		over := u.fault()
		switch u.rounds % 3 {
		case 0:
			waitFor(t, "the network falls silent while a transaction is open", func() bool {
				proxy.Stall()
				if u.open("a", "b") > 0 {
					return true
				}
				proxy.Heal()
				return false
			})
			waitFor(t, "the brokers have aborted it", func() bool { return u.open("a", "b") == 0 })
		case 1:
			proxy.Stall()
			pause(t, 3*time.Second)
		case 2:
			proxy.Stall()
			pause(t, 500*time.Millisecond)
		}
		proxy.Heal()
		over(unanswered)
		u.rounds++
		u.progress(200)
	}
	for range rounds(1, 10) {
		u.rounds++
		over := u.fault()
		proxy.Cut()
		over(unanswered)
		u.progress(100)
	}
	u.again = between(0, 2*int64(rounds(1, 5))) // of one that the brokers have aborted the worker may be fenced off
	u.checkOnce(brief("a"))
	for _, w := range pair {
		if log := w.Log(); strings.Contains(log, "the pipeline failed") && !strings.Contains(log, "stood still for longer than transaction.timeout.ms") {
			t.Errorf("%s failed of something else than a transaction that the brokers ended:\n%s", w.Name, log)
		}
	}
}

// open returns how many of the instances have a transaction open.
func (u *suite) open(instances ...string) (n int) {
	u.t.Helper()
	for _, instance := range instances {
		id := u.group + "-" + instance
		all, err := u.c.Admin.DescribeTransactions(u.t.Context(), id)
		must(u.t, errors.Join(err, all[id].Err))
		if all[id].State == "Ongoing" {
			n++
		}
	}
	return n
}

// checkOnce ends the first worker, has another one take its place, with overrides, which has met no fault and counts all that it
// writes, and checks that nothing is repeated.
func (u *suite) checkOnce(set []string) {
	u.t.Helper()
	u.stop(u.workers[0])
	u.working(u.start(set...))
	u.progress(200)
	u.settle()
	u.checkSettled(nothing)
}
