package kafka_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// polling polls a source until its test ends. What it delivers comes by records, an error by err.
type polling struct {
	records chan string
	err     chan error
}

func keepPolling(t *testing.T, r *record) polling {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p := polling{records: make(chan string, 1000), err: make(chan error, 1)}
	go func() {
		for {
			got, err := r.src.Poll(ctx, 100)
			for _, rec := range got.Records {
				p.records <- string(rec.Value)
			}
			if err != nil {
				p.err <- err
				return
			}
		}
	}()
	return p
}

func (p polling) next(t *testing.T, r *record) string {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case v := <-p.records:
		return v
	default:
	}
	select {
	case v := <-p.records:
		return v
	case err := <-p.err:
		t.Fatalf("Poll: %v", err)
	case <-limit.C:
		t.Fatalf("no record; it said:\n%s", r.log.text.String())
	}
	return ""
}

// deafTo has brokers refuse what the library fetches in its session, and not what is asked beside it.
func deafTo(c *kfake.Cluster) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: -1,
		When: func(req kmsg.Request) bool { return req.(*kmsg.FetchRequest).SessionEpoch != -1 },
	})
}

func TestAPartitionThatIsHeldAndNotReadIsSetGoing(t *testing.T) {
	c, cl, _ := fake(t, 2)
	r := open(t, c)
	r.untilHeld(t, 2)
	p := keepPolling(t, r)
	write(t, cl, "in", 1, 0, 1)
	p.next(t, r)
	r.src.Client().PauseFetchPartitions(map[string][]int32{"in": {1}}) // as if the library had forgotten it
	write(t, cl, "in", 1, 1, 2)
	if got := p.next(t, r) + p.next(t, r); got != "12" {
		t.Errorf("got %q", got)
	}
	if r.log.count("something stands still") != 1 || r.log.count("topic=in partition=1 offset=1") == 0 {
		t.Errorf("it was not said once, with the place:\n%s", r.log.text.String())
	}
	if n := r.src.Stalled()[streammanager.StallPartition]; n != 1 {
		t.Errorf("counted %d times", n)
	}
	eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
}

func TestAPartitionIsSetGoingAlsoWhileAnotherTopicIsMissing(t *testing.T) {
	c, cl, _ := fake(t, 2)
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Topics = []string{"in", "missing"} })
	r.untilHeld(t, 2)
	p := keepPolling(t, r)
	write(t, cl, "in", 1, 0, 1)
	p.next(t, r)
	r.src.Client().PauseFetchPartitions(map[string][]int32{"in": {1}}) // as if the library had forgotten it
	write(t, cl, "in", 1, 1, 2)
	if got := p.next(t, r) + p.next(t, r); got != "12" {
		t.Errorf("got %q", got)
	}
}

// Between what the guard sees and what Poll does, a partition may have moved: it must not be taken back then.
func TestAPartitionIsFetchedAnewOnlyWhereItStands(t *testing.T) {
	c, cl, _ := fake(t, 1)
	in := tp{Topic: "in"}
	r := open(t, c)
	r.untilHeld(t, 1)
	write(t, cl, "in", 0, 0, 3)
	r.poll(t, 3)
	r.src.AskRefetch(in, 1) // it has moved to 3
	p := keepPolling(t, r)
	write(t, cl, "in", 0, 3, 1)
	if got := p.next(t, r); got != "3" {
		t.Errorf("got %q, want the record after those that were delivered", got)
	}
	r.src.Client().PauseFetchPartitions(map[string][]int32{"in": {0}})
	write(t, cl, "in", 0, 4, 1)
	eventually(t, "the poll that waits is woken", func() bool {
		r.src.AskRefetch(in, 4)
		return len(p.records) > 0
	})
	if got := p.next(t, r); got != "4" {
		t.Errorf("got %q", got)
	}
}

func TestATimeInWhichNobodyRanIsNoTimeThatSomethingStoodStill(t *testing.T) {
	const unit = 30 * time.Second
	for _, tt := range []struct {
		name  string
		waits []time.Duration
		still time.Duration
		looks int
	}{
		{"looks one after the other", []time.Duration{0, unit, unit}, 2 * unit, 3},
		{"stopped between two of them", []time.Duration{0, time.Hour}, 0, 1},
		{"looks after that", []time.Duration{0, unit, time.Hour, unit}, unit, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			if still, looks := kafka.Suspect(unit, time.Sleep, tt.waits...); still != tt.still || looks != tt.looks {
				t.Errorf("%s: seen for %v in %d looks, want %v in %d", tt.name, still, looks, tt.still, tt.looks)
			}
		})
	}
}

func TestAPartitionThatCannotBeSetGoingFailsThePoll(t *testing.T) {
	c, cl, _ := fake(t, 1)
	r := open(t, c)
	r.untilHeld(t, 1)
	p := keepPolling(t, r)
	write(t, cl, "in", 0, 0, 1)
	p.next(t, r)
	defer deafTo(c).Remove()
	write(t, cl, "in", 0, 1, 1)
	eventually(t, "the source is unwell", func() bool {
		err := r.src.Health()
		return err != nil && strings.Contains(err.Error(), `topic "in" partition 0 is assigned and stands still at offset 1, with 1 offsets left`)
	})
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case err := <-p.err:
		var failed *streammanager.FailedError
		if !errors.As(err, &failed) || failed.Reason != streammanager.ReasonStalled {
			t.Errorf("Poll = %v, want a failure for what stands still", err)
		}
	case <-limit.C:
		t.Errorf("Poll goes on; it said:\n%s", r.log.text.String())
	}
	if n := r.src.Stalled()[streammanager.StallPartition]; n < 1 {
		t.Errorf("counted %d times", n)
	}
}

func TestWhatNobodyAsksForIsNoStall(t *testing.T) {
	c, cl, _ := fake(t, 1)
	r := open(t, c)
	r.untilHeld(t, 1)
	write(t, cl, "in", 0, 0, 10)
	r.poll(t, 1) // and then nobody polls: limits are full
	looked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeGroups}, Observe: true, Count: -1})
	if err := looked.Wait(t.Context(), 12); err != nil {
		t.Fatal(err)
	}
	if n := r.src.Stalled()[streammanager.StallPartition]; n != 0 || r.src.Health() != nil {
		t.Errorf("counted %d times, health %v", n, r.src.Health())
	}
}

// Its heartbeats are answered well, so that nothing else would tell.
func TestAWorkerThatTheGroupForgotFindsOutByItself(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 3)
	c.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return req.ResponseKind(), nil, true
	})
	r := open(t, c)
	p := keepPolling(t, r)
	p.next(t, r)
	forget(t, c, cl)
	r.until(t, "it begins anew", func(told string, held map[tp]int64) bool {
		return strings.HasSuffix(told, "assigned 1, lost 1, assigned 1") && len(held) == 1
	})
	if n := r.src.Stalled()[streammanager.StallMember]; n != 1 || r.log.count("does not know this worker any more") == 0 {
		t.Errorf("counted %d times, said:\n%s", n, r.log.text.String())
	}
	eventually(t, "it commits again", func() bool { return r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 1})) == nil })
	eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
}

// The group says that it gave the worker more than the library told of.
func TestPartitionsThatAreAssignedAndNotBegunFailThePollWhereNoStepHelps(t *testing.T) {
	c, _, _ := fake(t, 2)
	r := open(t, c)
	r.untilHeld(t, 2)
	p := keepPolling(t, r)
	var looks atomic.Int64
	c.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		given := kmsg.NewConsumerMemberAssignment()
		given.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "in", Partitions: []int32{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}}}
		state := "Stable"
		switch n := looks.Add(1); {
		case n%3 == 0: // another partition is on its way
			given.Topics = append(given.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: "early", Partitions: []int32{0}})
		case n%5 == 0:
			state = "PreparingRebalance"
		}
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, _ = r.src.Client().GroupMetadata()
		member.MemberAssignment = given.AppendTo(nil)
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.State, g.ProtocolType = "g", state, "consumer"
		g.Members = append(g.Members, member)
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case err := <-p.err:
		var failed *streammanager.FailedError
		want := `topic "in" partition 2 is assigned to this worker by group "g", and was not begun`
		if !errors.As(err, &failed) || failed.Reason != streammanager.ReasonStalled || !strings.Contains(err.Error(), want) {
			t.Errorf("Poll = %v, want a failure for what stands still: %s", err, want)
		}
	case <-limit.C:
		t.Errorf("Poll goes on; it said:\n%s", r.log.text.String())
	}
	if n := r.src.Stalled()[streammanager.StallMember]; n != 1 {
		t.Errorf("counted %d times, said:\n%s", n, r.log.text.String())
	}
}

// miser leads a group and gives the others some partitions of a topic, and itself nothing.
type miser struct {
	kgo.GroupBalancer
	gives []int32
}

func (m miser) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	_, topics, err := m.GroupBalancer.MemberBalancer(members)
	return miserly{members, m.gives}, topics, err
}

type miserly struct {
	members []kmsg.JoinGroupResponseMember
	gives   []int32
}

func (m miserly) Balance(map[string]int32) kgo.IntoSyncAssignment { return m }

func (m miserly) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment {
	var all []kmsg.SyncGroupRequestGroupAssignment
	for _, member := range m.members {
		given := kmsg.NewConsumerMemberAssignment()
		if len(m.gives) > 0 && !strings.HasPrefix(member.MemberID, "miser") {
			given.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "in", Partitions: m.gives}}
		}
		all = append(all, kmsg.SyncGroupRequestGroupAssignment{MemberID: member.MemberID, MemberAssignment: given.AppendTo(nil)})
	}
	return all
}

// ledByAMiser has a group led by somebody who gives the others these partitions at most.
func ledByAMiser(t *testing.T, c *kfake.Cluster, gives ...int32) *kgo.Client {
	t.Helper()
	leader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.ClientID("miser"),
		kgo.Balancers(miser{kgo.CooperativeStickyBalancer(), gives}), kgo.HeartbeatInterval(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leader.Close)
	eventually(t, "the other leads", func() bool { return c.GroupInfo("g") != nil && c.GroupInfo("g").State == "Stable" })
	return leader
}

// What a worker reads of a topic is not given up for a partition of it that belongs to nobody.
func TestAWorkerKeepsWhatItReadsOfATopicThatIsNotSharedOutInFull(t *testing.T) {
	c, cl, _ := fake(t, 2)
	ledByAMiser(t, c, 0)
	r := open(t, c)
	r.untilHeld(t, 1)
	p := keepPolling(t, r)
	eventually(t, "all steps are taken", func() bool { return r.log.count("reason=unowned") > 0 && r.log.count("step=3") > 0 })
	write(t, cl, "in", 0, 0, 1)
	if got := p.next(t, r); got != "0" {
		t.Errorf("got %q", got)
	}
	r.until(t, "it holds its partition, and was told so once", func(told string, held map[tp]int64) bool {
		return told == "assigned 1" && len(held) == 1
	})
}

func TestPartitionsThatBelongToNobodyAreSaid(t *testing.T) {
	c, cl, _ := fake(t, 2)
	write(t, cl, "in", 0, 0, 1)
	leader := ledByAMiser(t, c)
	r := open(t, c)
	p := keepPolling(t, r)
	eventually(t, "the source is unwell", func() bool {
		err := r.src.Health()
		return err != nil && strings.Contains(err.Error(), `topic "in" partition 0 belongs to none of the 2 members of group "g"`)
	})
	if n := r.src.Stalled()[streammanager.StallUnowned]; n < 1 {
		t.Errorf("counted %d times", n)
	}
	leader.Close()
	if got := p.next(t, r); got != "0" {
		t.Errorf("got %q", got)
	}
	eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
}

func TestAGroupThatDoesNotComeToRestIsSaid(t *testing.T) {
	c, _, _ := fake(t, 1)
	r := open(t, c, func(cfg *kafka.SourceConfig) {
		cfg.Options = map[string]string{"heartbeat.interval.ms": "100", "metadata.max.age.ms": "200", "max.poll.interval.ms": "1000"}
	})
	r.untilHeld(t, 1)
	c.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.State, g.ProtocolType = "g", "PreparingRebalance", "consumer"
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
	eventually(t, "it is said", func() bool { return r.log.count("does not come to rest") > 0 })
	if n := r.src.Stalled()[streammanager.StallRebalance]; n != 1 {
		t.Errorf("counted %d times", n)
	}
}
