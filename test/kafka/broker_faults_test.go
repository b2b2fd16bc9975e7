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
	for range rounds(2, 12) {
		n := u.c.Nodes[u.rounds%3]
		u.rounds++
		over := u.fault()
		if u.rounds%2 == 1 {
			n.Kill()
			u.progress(100) // without it
			must(t, n.Start(t.Context()))
		} else {
			must(t, n.Restart(t.Context()))
		}
		must(t, u.c.WaitReady(t.Context()))
		waitFor(t, "every partition has its three replicas again", u.replicated)
		over(unanswered)
		u.progress(100)
	}
	u.check(taken)
}

// replicated reports whether all replicas of the suite's topics and of the group's offsets are in sync.
func (u *suite) replicated() bool {
	topics, err := u.c.Admin.ListTopicsWithInternal(u.t.Context(), u.input, u.output, u.errors, offsetsTopic)
	if err != nil {
		return false
	}
	whole := true
	topics.EachPartition(func(p kadm.PartitionDetail) { whole = whole && p.Err == nil && len(p.ISR) == len(u.c.Nodes) })
	return whole
}

const offsetsTopic = "__consumer_offsets"
