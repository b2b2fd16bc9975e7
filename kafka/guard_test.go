package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
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

// miser leads a group and gives nobody anything.
type miser struct{ kgo.GroupBalancer }

func (m miser) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	_, topics, err := m.GroupBalancer.MemberBalancer(members)
	return miserly{}, topics, err
}

type miserly struct{}

func (miserly) Balance(map[string]int32) kgo.IntoSyncAssignment            { return miserly{} }
func (miserly) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return nil }

func TestPartitionsThatBelongToNobodyAreSaid(t *testing.T) {
	c, cl, _ := fake(t, 2)
	write(t, cl, "in", 0, 0, 1)
	leader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"),
		kgo.Balancers(miser{kgo.CooperativeStickyBalancer()}), kgo.HeartbeatInterval(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer leader.Close()
	eventually(t, "the other leads", func() bool { return c.GroupInfo("g") != nil && c.GroupInfo("g").State == "Stable" })
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

func TestAPeekTellsRecordsFromEmptyBatches(t *testing.T) {
	batch := func(first int64, delta, records int32, body int) []byte {
		b := kmsg.RecordBatch{FirstOffset: first, Length: int32(49 + body), LastOffsetDelta: delta, NumRecords: records, Magic: 2, Records: make([]byte, body)}
		return b.AppendTo(nil)
	}
	for _, test := range []struct {
		name    string
		batches []byte
		from    int64
		want    bool
	}{
		{"nothing", nil, 0, false},
		{"a record", batch(5, 0, 1, 10), 5, true},
		{"records before it alone", batch(0, 4, 5, 10), 5, false},
		{"an empty batch", batch(5, 3, 0, 0), 5, false},
		{"a record behind an empty batch", append(batch(5, 3, 0, 0), batch(9, 0, 1, 3)...), 5, true},
		{"a batch that is cut off", batch(5, 0, 1, 100)[:70], 5, true},
		{"a head that is cut off", batch(5, 0, 1, 100)[:40], 5, false},
	} {
		if got := kafka.RecordIn(test.batches, test.from); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}
