package kafka_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

func TestARetentionShorterThanTheAgeOfABoundedReadIsSaid(t *testing.T) {
	const said = "some of what is to be read may be deleted already"
	for _, tt := range []struct {
		name, start string
		configs     map[string]*string
		cut         int64 // records before are deleted
		denied      bool
		want        string // in the line; empty: it is not said
	}{
		{name: "shorter", start: "-24h", configs: map[string]*string{"retention.ms": new("3600000")}, want: "start=-24h age=24h0m0s retention=1h0m0s partitions_cut=0"},
		{
			name: "shorter, of a compacted topic that deletes too", start: "-24h", want: "retention=1h0m0s",
			configs: map[string]*string{"retention.ms": new("3600000"), "cleanup.policy": new("compact,delete")},
		},
		{name: "longer", start: "-24h", configs: map[string]*string{"retention.ms": new("172800000")}},
		{name: "for ever", start: "-24h", configs: map[string]*string{"retention.ms": new("-1")}},
		{name: "as long as a number holds", start: "-24h", configs: map[string]*string{"retention.ms": new("9223372036854775807")}},
		{name: "a topic that is compacted alone", start: "-24h", configs: map[string]*string{"retention.ms": new("3600000"), "cleanup.policy": new("compact")}},
		{name: "from the first record there is", start: "earliest", configs: map[string]*string{"retention.ms": new("3600000")}},
		{name: "records of that time are gone", start: "-24h", configs: map[string]*string{"retention.ms": new("-1")}, cut: 2, want: "partitions_cut=1"},
		{name: "the settings may not be read", start: "-24h", configs: map[string]*string{"retention.ms": new("3600000")}, denied: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, cl, adm := fake(t, 0)
			if made, err := adm.CreateTopic(t.Context(), 1, 1, tt.configs, "in"); err != nil || made.Err != nil {
				t.Fatal(err, made.Err)
			}
			for i := range 4 {
				r := &kgo.Record{Topic: "in", Key: []byte("k"), Value: fmt.Append(nil, i), Timestamp: time.Now().Add(-10 * time.Minute)}
				if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.cut > 0 {
				if err := c.DeleteRecords("in", 0, tt.cut); err != nil {
					t.Fatal(err)
				}
			}
			if tt.denied {
				refuse(c, kmsg.DescribeConfigs, kerr.TopicAuthorizationFailed, -1)
			}
			r := open(t, c, ranged(tt.start, "latest"))
			if got := len(strings.Fields(toTheEnd(t, r))); got != 4-int(tt.cut) {
				t.Errorf("read %d records", got)
			}
			want := 1
			if tt.want == "" {
				want = 0
			}
			if r.log.count(said) != want || r.log.count(tt.want) < want {
				t.Errorf("want %d lines with %q, got\n%s", want, tt.want, r.log.text.String())
			}
		})
	}
}

// The guard's cost for a worker is that of what it holds, however large the topic is.
func TestAWorkerAsksForTheEndsOfItsOwnPartitionsOnly(t *testing.T) {
	c, _, _ := fake(t, 12)
	first, second := open(t, c), open(t, c)
	first.untilHeld(t, 6)
	second.untilHeld(t, 6)
	keepPolling(t, first)
	keepPolling(t, second)
	var mu sync.Mutex
	asked, requests := map[string]bool{}, 0
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		requests++
		for _, topic := range req.(*kmsg.ListOffsetsRequest).Topics {
			if n := len(topic.Partitions); n > 6 {
				t.Errorf("the ends of %d partitions are asked for, of which 6 are held", n)
			}
			for _, p := range topic.Partitions {
				asked[fmt.Sprint(topic.Topic, p.Partition)] = true
			}
		}
		return nil, nil, false
	})
	eventually(t, "both have looked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(asked) == 12 && requests >= 4
	})
}

// kept is what is committed of a bounded read of topic "in".
func keptRange(t *testing.T, adm *kadm.Client, at, until int64) {
	t.Helper()
	found, err := adm.ListTopics(t.Context(), "in")
	if err != nil {
		t.Fatal(err)
	}
	id := found["in"].ID
	var o kadm.Offsets
	o.Add(kadm.Offset{
		Topic: "in", At: at, LeaderEpoch: -1,
		Metadata: fmt.Sprintf("enricher/1 topic=%s at=%d read=earliest..latest from=0 until=%d", base64.RawURLEncoding.EncodeToString(id[:]), at, until),
	})
	if err := adm.CommitAllOffsets(t.Context(), "g", o); err != nil {
		t.Fatal(err)
	}
}

func TestALogThatEndsBeforeTheEndOfABoundedReadIsSaidAndWaitedFor(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 4)
	keptRange(t, adm, 2, 6) // as if two had been cut off since
	r := open(t, c, ranged("earliest", "latest"))
	p := keepPolling(t, r)
	if got := p.next(t, r) + p.next(t, r); got != "23" {
		t.Fatalf("read %q", got)
	}
	eventually(t, "the source is unwell", func() bool {
		err := r.src.Health()
		return err != nil && strings.Contains(err.Error(), `topic "in" partition 0 is read up to 6, which lies behind the end of the log at 4`) && strings.Contains(err.Error(), "run with another until")
	})
	if n := r.log.count("the log ends before the end of a bounded read"); n != 1 || r.log.count("offset=4 end=4 until=6") != 1 {
		t.Errorf("it is said %d times:\n%s", n, r.log.text.String())
	}
	write(t, cl, "in", 0, 4, 3)
	if got := p.next(t, r) + p.next(t, r); got != "45" {
		t.Errorf("read %q once the log had grown", got)
	}
	eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
	if n := r.src.Stalled()[streammanager.StallPartition]; n != 0 {
		t.Errorf("counted %d times as a stall", n)
	}
}

func TestABoundedReadThatWaitsForAnOpenTransactionSaysSo(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 2)
	tx, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("x"), kgo.DefaultProduceTopic("in"))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := tx.ProduceSync(t.Context(), kgo.StringRecord("2")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := open(t, c, ranged("earliest", "latest"), func(cfg *kafka.SourceConfig) {
		cfg.Options = map[string]string{"isolation.level": "read_committed", "heartbeat.interval.ms": "100", "metadata.max.age.ms": "200"}
	})
	p := keepPolling(t, r)
	if got := p.next(t, r) + p.next(t, r); got != "01" {
		t.Fatalf("read %q", got)
	}
	eventually(t, "it is said", func() bool { return r.log.count("waits for a transaction that is open") > 0 })
	if err := r.src.Health(); err != nil {
		t.Errorf("it is unwell, although it is another's transaction that goes on: %v", err)
	}
	if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := p.next(t, r); got != "2" {
		t.Errorf("read %q", got)
	}
	if n := r.log.count("waits for a transaction that is open"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
}

// All that is in the repartition topic belongs to the read.
func TestABoundedReadBeforeARepartitionTopicEndsOnceThatIsFinishedToo(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := within(t, dial)
		defer cl.Close()
		adm := kadm.NewClient(cl)
		write(t, cl, "in", 0, 0, 3)
		r := open(t, c, ranged("earliest", "latest"), leading(2), over(dial))
		defer r.src.Close(context.Background())
		r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return heldOf(held, "in") == 1 && heldOf(held, between) == 2 })
		write(t, cl, "in", 0, 3, 2) // too late
		cl.ForceMetadataRefresh()
		write(t, cl, between, 1, 100, 2) // what the first hop has made of them
		polled := r.poll(t, 5)
		if len(polled) != 5 {
			t.Fatalf("read %q", text(polled))
		}
		// The input is finished, what it became is not.
		if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 3, {Topic: between, Partition: 1}: 1})); err != nil {
			t.Fatal(err)
		}
		r.nothing(t, time.Minute)
		if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: between, Partition: 1}: 2})); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if got, err := r.src.Poll(ctx, 10); !errors.Is(err, io.EOF) {
			t.Errorf("Poll = %q, %v, want the end", text(got.Records), err)
		}
		if got := committed(t, adm)[0]; got != 3 {
			t.Errorf("committed %d", got)
		}
	})
}

func TestABoundedReadHasNotEndedWhileItsPartitionsAreGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := within(t, dial)
		defer cl.Close()
		write(t, cl, "two", 0, 0, 1)
		write(t, cl, "two", 1, 10, 1)
		r := open(t, c, ranged("earliest", "latest"), over(dial), reading("two"))
		defer r.src.Close(context.Background())
		r.untilHeld(t, 2)
		r.poll(t, 2)
		inside, release := make(chan struct{}), make(chan struct{})
		r.mu.Lock()
		r.revoke = func(context.Context, []tp) { close(inside); <-release }
		r.mu.Unlock()
		second := open(t, c, ranged("earliest", "latest"), over(dial), reading("two"))
		defer second.src.Close(context.Background())
		keepPolling(t, second)
		ended := make(chan error, 1)
		go func() {
			<-inside // a partition is on its way, and what was read of it is not finished
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			_, err := r.src.Poll(ctx, 10)
			ended <- err
			close(release)
		}()
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Poll = %v while a partition is given back, want no end", err)
		}
	}, kfake.SeedTopics(2, "two"))
}

// What compaction has taken from before the end leaves nothing there to finish: the position comes to the end all the same.
func TestAnEndBehindRecordsThatCompactionTookIsCommitted(t *testing.T) {
	c, cl, adm := fake(t, 0)
	made, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": new("compact"), "retention.ms": new("-1")}, "in")
	if err != nil || made.Err != nil {
		t.Fatal(err, made.Err)
	}
	for i, key := range []string{"a", "b", "b", "c"} {
		r := &kgo.Record{Topic: "in", Key: []byte(key), Value: fmt.Append(nil, i+1), Timestamp: hour(i + 1)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, c, ranged("earliest", "2020-01-01T03:00:00Z")) // up to the second b
	r.untilHeld(t, 1)
	r.src.Close(context.Background())
	c.Compact() // takes the first
	if got := toTheEnd(t, open(t, c, ranged("earliest", "2020-01-01T03:00:00Z"))); got != "1" {
		t.Errorf("read %q, want 1", got)
	}
	if got := committed(t, adm)[0]; got != 2 {
		t.Errorf("committed %d, want the end at 2", got)
	}
}

func TestTheEndsOfAllThatIsHeldAreKnownThoughNobodyReads(t *testing.T) {
	c, cl, _ := fake(t, 2)
	write(t, cl, "in", 0, 0, 5)
	write(t, cl, "in", 1, 0, 60)
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Start = "latest" })
	r.untilHeld(t, 2)
	until := func(want map[tp]int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("the ends are %v", want), func() bool { return maps.Equal(r.src.Ends(), want) })
	}
	until(map[tp]int64{{Topic: "in", Partition: 0}: 5, {Topic: "in", Partition: 1}: 60})
	write(t, cl, "in", 0, 5, 2)
	until(map[tp]int64{{Topic: "in", Partition: 0}: 7, {Topic: "in", Partition: 1}: 60})
}
