package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/kafka"
)

// waiting is what is said while a group waits for a member that was killed.
const waiting = "waiting for the group: a killed member is given up after session.timeout.ms (45s)"

// leaveBehind has a member in the group "g" that is gone without having left. A static one does not leave.
func leaveBehind(t *testing.T, dial dialer) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(dial), kgo.ConsumeTopics("in"), kgo.ConsumerGroup("g"),
		kgo.InstanceID("killed"), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	if err != nil {
		t.Fatal(err)
	}
	poll, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	cl.PollFetches(poll)
	cl.Close()
}

func TestAWorkerThatWaitsForAKilledMemberSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		leaveBehind(t, dial)
		r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer, cfg.Options = dial, nil })
		defer r.src.Close(context.Background())
		wait(4 * time.Second)
		if n := r.log.count(waiting); n != 0 {
			t.Errorf("said after 4 s:\n%s", r.log.text.String())
		}
		wait(4 * time.Second)
		if err := r.src.Health(); err == nil || err.Error() != waiting {
			t.Errorf("Health = %v, want %s", err, waiting)
		}
		wait(time.Minute)
		if err := r.src.Health(); err != nil || r.log.count(waiting) != 1 || len(r.held()) != 1 {
			t.Errorf("a minute later it holds %v and is %v, having said:\n%s", r.held(), err, r.log.text.String())
		}
	})
}

func TestAWorkerThatJoinsAtOnceSaysNothingOfWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer = dial })
		defer r.src.Close(context.Background())
		r.untilHeld(t, 1)
		wait(time.Minute)
		if n := r.log.count("waiting for the group"); n != 0 {
			t.Errorf("it said:\n%s", r.log.text.String())
		}
	})
}

func TestAWorkerThatIsStoppedWhileItJoinsLeavesNoGhost(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		leaveBehind(t, dial)
		r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer = dial })
		wait(3 * time.Second)
		if n := len(c.GroupInfo("g").Members); n != 2 {
			t.Errorf("%d members, want the killed one and one that waits", n)
		}
		r.src.Close(context.Background())
		if members := c.GroupInfo("g").Members; len(members) != 1 {
			t.Errorf("%d members after the stop, want the killed one alone: %+v", len(members), members)
		}
	})
}
