package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a broker in the process with an input of four partitions.
type cluster struct {
	t     *testing.T
	fake  *kfake.Cluster
	admin *kadm.Client
	cl    *kgo.Client
}

func newCluster(t *testing.T, opts ...kfake.Opt) *cluster {
	t.Helper()
	fake := brokers(t, append(opts, kfake.SeedTopics(4, "in", "out"), kfake.SeedTopics(1, "errors"))...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.ConsumeTopics("out", "errors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &cluster{t: t, fake: fake, cl: cl, admin: kadm.NewClient(cl)}
}

// members waits until the group has settled with n members.
func (c *cluster) members(n int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the group has %d members", n), func() bool {
		g := c.fake.GroupInfo("g")
		return g != nil && len(g.Members) == n && g.State == "Stable"
	})
}

// produce writes n keyed events numbered from `from`.
func (c *cluster) produce(from, n int) {
	c.t.Helper()
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: "in", Key: fmt.Append(nil, "k", (from+i)%50), Value: fmt.Append(nil, from+i)})
	}
	if err := c.cl.ProduceSync(context.Background(), recs...).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
}

// collect reads outputs until n distinct values came.
func (c *cluster) collect(n int) (values map[string]int, order map[string][]string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	values, order = map[string]int{}, map[string][]string{}
	for len(values) < n {
		fetches := c.cl.PollFetches(ctx)
		if ctx.Err() != nil {
			c.t.Fatalf("got %d of %d outputs in time", len(values), n)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			values[string(r.Value)]++
			if values[string(r.Value)] == 1 {
				order[string(r.Key)] = append(order[string(r.Key)], string(r.Value))
			}
		})
	}
	return values, order
}

// worker is a stream from in to out.
func (c *cluster) worker(fn event.FuncOf, options map[string]string) (stop func()) {
	c.t.Helper()
	log := slog.New(slog.NewTextHandler(testLog{c.t}, nil))
	conn := kafka.Connection{Brokers: c.fake.ListenAddrs()}
	src, err := kafka.NewSource(kafka.SourceConfig{Connection: kafka.Connection{Brokers: c.fake.ListenAddrs(), Options: options}, Topics: []string{"in"}, Group: "g"}, log)
	if err != nil {
		c.t.Fatal(err)
	}
	sink, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "out"}, log)
	if err != nil {
		c.t.Fatal(err)
	}
	errs, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "errors"}, log)
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := streammanager.New(streammanager.Config{Name: "g", Logger: log, CommitInterval: 50 * time.Millisecond}).
		From(src).Process(streammanager.Step{Name: "fn", Func: fn}).To(sink).ErrorsTo(errs, nil).Build()
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Run(ctx); err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); done.Wait() }) }
	c.t.Cleanup(stop)
	return stop
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	if os.Getenv("KAFKA_TEST_LOG") != "" {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

func pass(_ context.Context, ev *event.Event) ([]*event.Event, error) {
	return []*event.Event{ev}, nil
}

// committed waits until the group's offsets are at the ends of the input.
func (c *cluster) committed() {
	c.t.Helper()
	eventually(c.t, "committed offsets are at the end of the log", func() bool {
		ends, err := c.admin.ListEndOffsets(context.Background(), "in")
		if err != nil {
			c.t.Fatal(err)
		}
		offsets, err := c.admin.FetchOffsetsForTopics(context.Background(), "g", "in")
		if err != nil {
			c.t.Fatal(err)
		}
		all := true
		ends.Each(func(end kadm.ListedOffset) {
			o, ok := offsets.Lookup("in", end.Partition)
			all = all && ok && o.At == end.Offset
		})
		return all
	})
}

// wait lets time pass in a bubble.
func wait(d time.Duration) { <-time.After(d) }

func check(t *testing.T, values map[string]int, order map[string][]string, n int, once bool) {
	t.Helper()
	for i := range n {
		if got := values[fmt.Sprint(i)]; got == 0 || once && got != 1 {
			t.Errorf("event %d was written %d times", i, got)
		}
	}
	for key, vs := range order {
		last := -1
		for _, v := range vs {
			var i int
			_, _ = fmt.Sscan(v, &i)
			if i < last {
				t.Errorf("key %s: event %d after event %d", key, i, last)
			}
			last = i
		}
	}
}

func TestEventsAreCarriedOnceInOrderAndCommitted(t *testing.T) {
	c := newCluster(t)
	c.produce(0, 2000)
	stop := c.worker(pass, nil)
	values, order := c.collect(2000)
	check(t, values, order, 2000, true)
	c.committed()
	stop()
	c.produce(2000, 100)
	c.worker(pass, nil)
	values, order = c.collect(100)
	if values["2000"] != 1 || len(values) != 100 {
		t.Errorf("a restart read again: %d values", len(values))
	}
	check(t, map[string]int{}, order, 0, true)
}

func TestOffsetsAreCommittedUpToTheEndBehindTheMarkersOfTransactions(t *testing.T) {
	c := newCluster(t)
	stop := c.worker(pass, nil)
	transact(t, c.fake, []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort}, func(i int) []*kgo.Record {
		var rs []*kgo.Record
		for n := range 20 {
			rs = append(rs, &kgo.Record{Key: fmt.Append(nil, n), Value: fmt.Append(nil, 100*i+n)})
		}
		return rs
	})
	values, _ := c.collect(40)
	c.committed()
	stop()
	if len(values) != 40 || values["100"]+values["300"] != 0 {
		t.Errorf("wrote %d values, and of aborted transactions %d", len(values), values["100"]+values["300"])
	}
}

func TestRebalancesLoseNothing(t *testing.T) {
	c := newCluster(t)
	c.produce(0, 1000)
	slow := func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		wait(2 * time.Millisecond)
		return []*event.Event{ev}, nil
	}
	options := map[string]string{"heartbeat.interval.ms": "100"}
	first := c.worker(slow, options)
	c.produce(1000, 500)
	second := c.worker(slow, options)
	c.produce(1500, 500)
	c.members(2)
	first()
	c.produce(2000, 500)
	c.worker(slow, options)
	c.members(2)
	second()
	values, order := c.collect(2500)
	check(t, values, order, 2500, false)
	c.committed()
}

func TestARefusedProduceTakesTheStreamBack(t *testing.T) {
	c := newCluster(t)
	refusals := 3
	c.fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		pr := req.(*kmsg.ProduceRequest)
		out := false
		for _, topic := range pr.Topics {
			info := c.fake.TopicIDInfo(topic.TopicID)
			out = out || topic.Topic == "out" || info != nil && info.Topic == "out"
		}
		c.fake.KeepControl()
		if !out || refusals == 0 {
			return nil, nil, false
		}
		refusals--
		resp := pr.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range pr.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	c.produce(0, 300)
	c.worker(pass, nil)
	values, order := c.collect(300)
	check(t, values, order, 300, false)
	c.committed()
}
