//go:build unix

package kafka_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The coordinator of the group moves to another broker, while all brokers live.
func TestACoordinatorThatMovesLosesNothing(t *testing.T) {
	u := newSuite(t, shared.three(t), patient)
	u.begin()
	u.start()
	u.working(u.start())
	for range rounds(2, 15) {
		u.rounds++
		from := u.coordinator()
		to := from%3 + 1
		waitFor(t, "every partition has its three replicas", u.replicated)
		elect := u.prefer(offsetsTopic, to, to%3+1, from)
		over := u.fault()
		waitFor(t, "another broker coordinates the group", func() bool {
			_, err := elect.RequestWith(t.Context(), u.c.Client) // its effect says whether it was taken
			return err == nil && u.coordinator() == to
		})
		over(unanswered)
		u.progress(200)
	}
	u.check(taken)
}

// coordinator returns the node that coordinates the group.
func (u *suite) coordinator() int32 {
	u.t.Helper()
	node := int32(-1)
	waitFor(u.t, "a broker coordinates the group", func() bool {
		found := u.c.Admin.FindGroupCoordinators(u.t.Context(), u.group)[u.group]
		node = found.NodeID
		return found.Err == nil
	})
	return node
}

// prefer gives all partitions of the groups' offsets, or of the transactions, an order of their replicas, and returns the
// request that has the first of them elected.
func (u *suite) prefer(topic string, nodes ...int32) *kmsg.ElectLeadersRequest {
	u.t.Helper()
	var turn kadm.AlterPartitionAssignmentsReq
	of := kmsg.NewElectLeadersRequestTopic()
	of.Topic = topic
	for p := range int32(4) { // as cluster has both topics made
		turn.Assign(topic, p, nodes)
		of.Partitions = append(of.Partitions, p)
	}
	done, err := u.c.Admin.AlterPartitionAssignments(u.t.Context(), turn)
	must(u.t, errors.Join(err, done.Error()))
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Topics = append(elect.Topics, of)
	elect.TimeoutMillis = 10_000
	return elect
}
