package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// between is the repartition topic.
const between = "between"

// leading leads a source through a topic of n partitions.
func leading(n int32) func(*kafka.SourceConfig) {
	return func(cfg *kafka.SourceConfig) { cfg.Repartition = &kafka.Repartition{Topic: between, Partitions: n} }
}

// heldOf counts the partitions of topic that r holds.
func heldOf(held map[tp]int64, topic string) int {
	n := 0
	for at := range held {
		if at.Topic == topic {
			n++
		}
	}
	return n
}

func TestTheRepartitionTopicIsMadeSoThatItLosesNothing(t *testing.T) {
	c, _, adm := fake(t, 2)
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: new("3000000")}}, "in"); err != nil {
		t.Fatal(err)
	}
	r := open(t, c, leading(6))
	r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return heldOf(held, "in") == 2 && heldOf(held, between) == 6 })
	found, err := adm.DescribeTopicConfigs(t.Context(), between)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, cfg := range found[0].Configs {
		got[cfg.Key] = cfg.MaybeValue()
	}
	for name, want := range map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "6065536"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

func TestARepartitionTopicThatWouldLoseEventsIsRefused(t *testing.T) {
	good := map[string]*string{"retention.ms": new("-1"), "cleanup.policy": new("delete")}
	for _, c := range []struct {
		name       string
		partitions int32
		configs    map[string]*string
		want       string
	}{
		{"too few partitions", 3, good, `"between" has 3 partitions, and repartition.partitions asks for 4: write 3 there`},
		{"retention by time", 4, map[string]*string{"retention.ms": new("604800000")}, "has retention.ms=604800000 and must have -1"},
		{"retention by size", 4, map[string]*string{"retention.ms": new("-1"), "retention.bytes": new("1000000")}, "has retention.bytes=1000000 and must have -1"},
		{"compaction", 4, map[string]*string{"retention.ms": new("-1"), "cleanup.policy": new("compact")}, "has cleanup.policy=compact and must have delete"},
		{"more partitions are well", 8, good, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster, cl, adm := fake(t, 1)
			if made, err := adm.CreateTopic(t.Context(), c.partitions, 1, c.configs, between); err != nil || made.Err != nil {
				t.Fatal(err, made.Err)
			}
			r := open(t, cluster, leading(4))
			if c.want == "" {
				write(t, cl, "in", 0, 0, 1)
				r.poll(t, 1)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := r.src.Poll(ctx, 1)
			var fatal *event.FatalError
			if !errors.As(err, &fatal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("polling: %v, want an end that says %q", err, c.want)
			}
		})
	}
}

func TestTheRepartitionTopicIsSharedOutByItself(t *testing.T) {
	c, _, _ := fake(t, 4)
	var rs []*record
	for range 3 {
		rs = append(rs, open(t, c, leading(6)))
	}
	shared := func(n int) func() bool {
		return func() bool {
			for _, r := range rs[:n] {
				if held := r.held(); heldOf(held, between) != 6/n || heldOf(held, "in") > (4+n-1)/n {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "each of three has two of six partitions, and one or two of the input", shared(3))
	rs[2].src.Close(context.Background())
	eventually(t, "each of two has three of them", shared(2))
	rs[1].src.Close(context.Background())
	eventually(t, "one has all", shared(1))
}

func TestOnlyWhatIsCommittedIsDeletedFromTheRepartitionTopic(t *testing.T) {
	upTo12 := func(_ context.Context, _ tp, committed int64) (int64, error) { return min(committed, 12), nil }
	for name, c := range map[string]struct {
		floor func(context.Context, tp, int64) (int64, error)
		want  int64
	}{"all of it": {nil, 30}, "not what something else still needs": {upTo12, 12}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fake *kfake.Cluster, dial dialer) {
				r := open(t, fake, leading(2), func(cfg *kafka.SourceConfig) {
					cfg.Dialer, cfg.Repartition.Floor = dial, c.floor
				})
				defer r.src.Close(context.Background())
				r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return len(held) == 3 })
				cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.Dialer(dial), kgo.RecordPartitioner(kgo.ManualPartitioner()))
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				write(t, cl, between, 0, 0, 100)
				write(t, cl, between, 1, 0, 100)
				adm := kadm.NewClient(cl)
				first := func(partition int32) int64 {
					starts, err := adm.ListStartOffsets(t.Context(), between)
					if err != nil {
						t.Fatal(err)
					}
					o, _ := starts.Lookup(between, partition)
					return o.Offset
				}
				r.poll(t, 200)
				wait(2 * time.Minute)
				if first(0) != 0 || first(1) != 0 {
					t.Errorf("records were deleted that were polled and not committed: the log begins at %d and %d", first(0), first(1))
				}
				if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: between}: 30})); err != nil {
					t.Fatal(err)
				}
				wait(2 * time.Minute)
				if first(0) != c.want || first(1) != 0 {
					t.Errorf("after a commit of 30 the log begins at %d and %d, want %d and 0", first(0), first(1), c.want)
				}
			})
		})
	}
}

func TestEventsThatTheRepartitionTopicHasLostEndThePipeline(t *testing.T) {
	c, cl, adm := fake(t, 1)
	r := open(t, c, leading(1))
	r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return len(held) == 2 })
	write(t, cl, between, 0, 0, 20)
	r.poll(t, 20)
	if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: between}: 5})); err != nil {
		t.Fatal(err)
	}
	r.src.Close(context.Background())
	gone := kadm.Offsets{}
	gone.AddOffset(between, 0, 9, -1)
	if _, err := adm.DeleteRecords(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	next := open(t, c, leading(1), func(cfg *kafka.SourceConfig) { cfg.OutOfRange = kafka.Earliest })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := next.src.Poll(ctx, 1)
	var fatal *event.FatalError
	if want := `the repartition topic "between" has lost events: group "g" is at offset 5 of partition 0, and the log holds 9 to 20`; !errors.As(err, &fatal) || !strings.Contains(err.Error(), want) {
		t.Errorf("polling: %v, want an end that says %q", err, want)
	}
}

func TestATopicIsSettledWhenTheGroupHasCommittedAllOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := within(t, dial)
		defer cl.Close()
		r := open(t, c, leading(3), over(dial))
		defer r.src.Close(context.Background())
		r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return len(held) == 4 })
		if err := r.src.Settled(t.Context(), between); err != nil {
			t.Errorf("an empty topic: %v", err)
		}
		write(t, cl, between, 1, 0, 10)
		r.poll(t, 10)
		commit := func(offset int64) {
			if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: between, Partition: 1}: offset})); err != nil {
				t.Fatal(err)
			}
		}
		commit(9)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.src.Settled(short, between); err == nil {
			t.Error("settled with a record that is not committed")
		}
		settled := make(chan error, 1)
		go func() { settled <- r.src.Settled(t.Context(), between) }()
		commit(10)
		if err := <-settled; err != nil {
			t.Error(err)
		}
	})
}

// byLetter takes the first letter of the value as the key.
func byLetter(_ context.Context, ev *event.Event) (streammanager.Key, error) {
	return streammanager.Key{Value: string(ev.Value()[:1])}, nil
}

func TestOnePartitionIsWorkedOnByAllWorkersInTheOrderOfItsKeys(t *testing.T) {
	c := newCluster(t)
	const events, keys, workers = 600, 12, 3
	var mu sync.Mutex
	calls, order := make([]int, workers), map[byte][]int{}
	var stops []func()
	for w := range workers {
		stops = append(stops, c.repartitioned(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
			n, _ := strconv.Atoi(string(ev.Value()[1:]))
			mu.Lock()
			calls[w]++
			order[ev.Value()[0]] = append(order[ev.Value()[0]], n)
			mu.Unlock()
			if pos := ev.Position(); pos.Topic != "in" || pos.Partition != 2 {
				return nil, fmt.Errorf("it came from %v", pos)
			}
			return []*event.Event{ev}, nil
		}))
	}
	c.members(workers)
	var recs []*kgo.Record
	for i := range events {
		recs = append(recs, &kgo.Record{Topic: "in", Partition: 2, Value: fmt.Appendf(nil, "%c%d", 'a'+i%keys, i)})
	}
	manual, err := kgo.NewClient(kgo.SeedBrokers(c.fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer manual.Close()
	if err := manual.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	values, _ := c.collect(events)
	for v, n := range values {
		if n != 1 {
			t.Errorf("%s was written %d times", v, n)
		}
	}
	for _, stop := range stops {
		stop()
	}
	for key, called := range order {
		if !slices.IsSorted(called) {
			t.Errorf("key %c was worked on in the order %v", key, called)
		}
	}
	for w, n := range calls {
		if n == 0 {
			t.Errorf("worker %d was called for nothing: %v", w, calls)
		}
	}
}

// repartitioned runs a worker from in to out through a topic of six partitions.
func (c *cluster) repartitioned(fn event.FuncOf) (stop func()) {
	c.t.Helper()
	log := slog.New(slog.NewTextHandler(testLog{c.t}, nil))
	conn := kafka.Connection{Brokers: c.fake.ListenAddrs()}
	src, err := kafka.NewSource(kafka.SourceConfig{
		Connection: kafka.Connection{Brokers: conn.Brokers, Options: quick}, Topics: []string{"in"}, Group: "g",
		Repartition: &kafka.Repartition{Topic: between, Partitions: 6},
	}, log)
	if err != nil {
		c.t.Fatal(err)
	}
	sinks := map[string]*kafka.Sink{}
	for _, topic := range []string{"out", "errors", between} {
		if sinks[topic], err = kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: topic}, log); err != nil {
			c.t.Fatal(err)
		}
	}
	s, err := streammanager.New(streammanager.Config{Name: "g", Logger: log, CommitInterval: 50 * time.Millisecond}).
		From(src).PartitionBy(byLetter).Repartition(between, sinks[between]).
		Process(streammanager.Step{Name: "fn", Func: fn}).To(sinks["out"]).ErrorsTo(sinks["errors"], nil).Build()
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
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	c.t.Cleanup(stop)
	return stop
}
