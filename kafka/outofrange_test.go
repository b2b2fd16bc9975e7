package kafka_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
)

// writer is a client for records of given partitions.
func writer(t *testing.T, c *kfake.Cluster, dial dialer) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(dial), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// untilItFails polls until an error, which it hands over.
func (r *record) untilItFails(ctx context.Context) <-chan error {
	failed := make(chan error, 1)
	go func() {
		for {
			if _, err := r.src.Poll(ctx, 100); err != nil {
				failed <- err
				return
			}
		}
	}()
	return failed
}

// Another worker has finished meanwhile what it missed, and deleted it. The log may tell before the group does.
func TestAWorkerThatStoodStillBeforeARepartitionTopicComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		r := open(t, c, leading(1), func(cfg *kafka.SourceConfig) { cfg.Dialer, cfg.Options = dial, nil })
		defer r.src.Close(context.Background())
		both := func(_ string, held map[tp]int64) bool { return len(held) == 2 }
		r.until(t, "it holds both topics", both)
		cl := writer(t, c, dial)
		defer cl.Close()
		write(t, cl, between, 0, 0, 20)
		r.poll(t, 20)
		at30, p0 := at(map[tp]int64{{Topic: between}: 30}), tp{Topic: between}
		r.src.Pause(p0)             // it stands still
		time.Sleep(5 * time.Second) // a fetch that was under way has ended
		write(t, cl, between, 0, 20, 10)
		if err := errors.Join(r.src.Commit(t.Context(), at30), c.DeleteRecords(between, 0, 30)); err != nil { // in place of the other worker
			t.Fatal(err)
		}
		r.src.Resume(p0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := r.src.Poll(ctx, 100); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("before the group has told: Poll = %q, %v, want that it waits", text(got.Records), err)
		}
		if err := r.src.Health(); err == nil || !strings.Contains(err.Error(), `topic "between" partition 0 at offset 20: other workers of group "g" have gone on to offset 30`) {
			t.Errorf("before the group has told: %v", err)
		}
		forget(t, c, cl)
		r.until(t, "it was given both topics once more", func(told string, held map[tp]int64) bool { return strings.Contains(told, "lost") && held[p0] == 30 })
		write(t, cl, between, 0, 30, 3)
		if got := text(r.poll(t, 3)); got != "30 31 32" || r.src.Health() != nil {
			t.Errorf("it goes on with %q, and is %v", got, r.src.Health())
		}
	})
}

func TestAnOffsetOutOfRangeIsNoUnreadableBatchThoughABrokerIsAway(t *testing.T) {
	refusing := func(context.Context) error { return errors.New("connection refused") }
	silent := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("i/o timeout")
		}
	}
	for _, tt := range []struct {
		name string
		away func(context.Context) error
		none bool // that which leads the partition does not say for two minutes where its log begins
	}{
		{name: "another refuses connections", away: refusing},
		{name: "another is silent", away: silent},
		{name: "the leader does not answer", away: refusing, none: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var vnet kfake.VirtualNetwork
				c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(vnet.Listen), kfake.SeedTopics(2, "in"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				cl := writer(t, c, vnet.DialContext)
				defer cl.Close()
				here := c.CoordinatorFor("g")
				for p, node := range []int32{here, 1 - here} {
					if err := c.MoveTopicPartition("in", int32(p), node); err != nil && c.LeaderFor("in", int32(p)) != node {
						t.Fatal(err)
					}
				}
				write(t, cl, "in", 0, 0, 10)
				put(t, kadm.NewClient(cl), 0, 2)
				put(t, kadm.NewClient(cl), 1, 0)
				if err := c.DeleteRecords("in", 0, 6); err != nil {
					t.Fatal(err)
				}
				port := []string{":9092", ":9093"}[1-here]
				r := open(t, c, func(cfg *kafka.SourceConfig) {
					cfg.Options = nil
					cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						if strings.HasSuffix(addr, port) {
							return nil, tt.away(ctx)
						}
						return vnet.DialContext(ctx, network, addr)
					}
				})
				defer r.src.Close(context.Background())
				began, most := time.Now(), time.Minute
				if tt.none {
					most = 3 * time.Minute
					c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
						c.KeepControl()
						return nil, errors.New("no answer"), time.Since(began) < 2*time.Minute
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
				defer cancel()
				got, err := r.src.Poll(ctx, 10)
				for err == nil && got.Records[0].Marker {
					got, err = r.src.Poll(ctx, 10)
				}
				if took := time.Since(began); err != nil || text(got.Records) != "6 7 8 9" || took > most {
					t.Errorf("after %v the poll gave %q, %v; want what is left, in time; logged\n%s", took, text(got.Records), err, r.log.text.String())
				}
			})
		})
	}
}

func TestRecordsOfTheRepartitionTopicThatTheClusterLostEndThePipeline(t *testing.T) {
	c, cl, _ := fake(t, 1, kfake.NumBrokers(3))
	r := open(t, c, leading(1))
	r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return len(held) == 2 })
	write(t, cl, between, 0, 0, 10)
	r.poll(t, 10)
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		resp.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: between, Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{{EndOffset: 6}}}}
		return resp, nil, true
	})
	if err := c.MoveTopicPartition(between, 0, (c.LeaderFor(between, 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := r.src.Poll(ctx, 4)
	var fatal *event.FatalError
	if !errors.As(err, &fatal) || !strings.Contains(err.Error(), `"between" has lost events`) || !strings.Contains(err.Error(), "partition 0 from offset 6 to 10") {
		t.Errorf("Poll = %q, %v, want the end of the pipeline and the offsets", text(got.Records), err)
	}
}
