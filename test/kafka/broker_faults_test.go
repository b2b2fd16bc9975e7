//go:build unix

package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// steady keeps a member in its group where a busy machine holds it up, of a suite in which no session is to end.
const steady = `source.kafka.options["session.timeout.ms"]=6000`

// patient members stay in the group while its coordinator comes up on a busy machine. Their calls take long, so that they
// leave the brokers time to.
var patient = setup{delay: 40 * time.Millisecond, set: []string{steady}}

// Brokers are stopped in good order, killed and started again, one after the other.
func TestBrokersThatComeAndGoLoseNothing(t *testing.T) {
	u := newSuite(t, shared.three(t), patient)
	u.begin()
	u.start()
	u.working(u.start())
	u.comeAndGo(rounds(2, 12))
	u.check(taken)
}

// comeAndGo stops the brokers in good order and kills them, one after the other, and starts each again.
func (u *suite) comeAndGo(times int) {
	u.t.Helper()
	for range times {
		n := u.c.Nodes[u.rounds%3]
		u.rounds++
		over := u.fault()
		if u.rounds%2 == 1 {
			n.Kill()
			u.progress(100) // without it
			must(u.t, n.Start(u.t.Context()))
		} else {
			must(u.t, n.Restart(u.t.Context()))
		}
		must(u.t, u.c.WaitReady(u.t.Context()))
		waitFor(u.t, "every partition has its three replicas again", u.replicated)
		over(unanswered)
		u.progress(100)
	}
}

// replicated reports whether all replicas of the suite's topics, of the group's offsets and of the transactions are in sync.
func (u *suite) replicated() bool {
	topics, err := u.c.Admin.ListTopicsWithInternal(u.t.Context(), u.input, u.output, u.errors, offsetsTopic, transactionsTopic)
	if err != nil {
		return false
	}
	whole := true
	topics.EachPartition(func(p kadm.PartitionDetail) { whole = whole && p.Err == nil && len(p.ISR) == len(u.c.Nodes) })
	return whole
}

// Where the brokers keep what groups have committed, and what becomes of transactions.
const (
	offsetsTopic      = "__consumer_offsets"
	transactionsTopic = "__transaction_state"
)
