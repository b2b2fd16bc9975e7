package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

type tp = streammanager.TopicPartition

// quick makes rebalances and discoveries fast enough for tests.
var quick = map[string]string{"heartbeat.interval.ms": "100", "metadata.max.age.ms": "200"}

// brokers starts brokers in the process, one unless opts say otherwise.
func brokers(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// fake starts brokers with topic "in" of the given partitions.
func fake(t *testing.T, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client, *kadm.Client) {
	t.Helper()
	if partitions > 0 {
		opts = append(opts, kfake.SeedTopics(partitions, "in"))
	}
	c := brokers(t, opts...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return c, cl, kadm.NewClient(cl)
}

// within returns a client of brokers in a bubble, which is closed before they are.
func within(t *testing.T, dial dialer) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(dial), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// over has a source reach its brokers so.
func over(dial dialer) func(*kafka.SourceConfig) {
	return func(cfg *kafka.SourceConfig) { cfg.Dialer = dial }
}

// reading has a source read a topic.
func reading(topic string) func(*kafka.SourceConfig) {
	return func(cfg *kafka.SourceConfig) { cfg.Topics = []string{topic} }
}

// write produces n records to one partition; their values are their numbers from the given one.
func write(t *testing.T, cl *kgo.Client, topic string, partition int32, from, n int) {
	t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Append(nil, from+i)})
	}
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// transact writes values to topic "in", each batch in a transaction that ends as said.
func transact(t *testing.T, c *kfake.Cluster, ends []kgo.TransactionEndTry, batch func(i int) []*kgo.Record) {
	t.Helper()
	tx, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("x"), kgo.DefaultProduceTopic("in"))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	for i, end := range ends {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(t.Context(), batch(i)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
}

func put(t *testing.T, adm *kadm.Client, partition int32, at int64) {
	t.Helper()
	var o kadm.Offsets
	o.AddOffset("in", partition, at, -1)
	if err := adm.CommitAllOffsets(t.Context(), "g", o); err != nil {
		t.Fatal(err)
	}
}

// committed returns the group's offsets of topic "in".
func committed(t *testing.T, adm *kadm.Client) map[int32]int64 {
	t.Helper()
	found, err := adm.FetchOffsets(t.Context(), "g")
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatal(err)
	}
	got := map[int32]int64{}
	for p, o := range found["in"] {
		got[p] = o.At
	}
	return got
}

// record is what a source told, and what it gave.
type record struct {
	src *kafka.Source
	log *lines

	mu       sync.Mutex // guards the rest
	told     []string
	starts   map[tp]int64
	finished map[tp][]streammanager.Range
	revoke   func(ctx context.Context, tps []tp)
	changed  chan struct{}
}

func (r *record) tell(format string, args ...any) {
	r.told = append(r.told, fmt.Sprintf(format, args...))
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *record) Assigned(starts map[tp]streammanager.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, start := range starts {
		r.starts[at], r.finished[at] = start.Offset, start.Finished
	}
	r.tell("assigned %d", len(starts))
}

func (r *record) Revoked(ctx context.Context, tps []tp) {
	r.mu.Lock()
	revoke := r.revoke
	r.mu.Unlock()
	if revoke != nil {
		revoke(ctx, tps)
	}
	r.gone("revoked", tps)
}

func (r *record) Lost(tps []tp) { r.gone("lost", tps) }

func (r *record) gone(how string, tps []tp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range tps {
		delete(r.starts, at)
	}
	r.tell("%s %d", how, len(tps))
}

func (r *record) held() map[tp]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := map[tp]int64{}
	for at, start := range r.starts {
		got[at] = start
	}
	return got
}

func (r *record) heard() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.told, ", ")
}

// until waits for what the source tells.
func (r *record) until(t *testing.T, what string, ok func(told string, held map[tp]int64) bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if ok(r.heard(), r.held()) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("waiting until %s: was told %q, holds %v, health %v", what, r.heard(), r.held(), r.src.Health())
		}
	}
}

func (r *record) untilHeld(t *testing.T, n int) {
	t.Helper()
	r.until(t, fmt.Sprintf("%d partitions are held", n), func(_ string, held map[tp]int64) bool { return len(held) == n })
}

// poll gathers at least n records, and fails after a while.
func (r *record) poll(t *testing.T, n int) []streammanager.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []streammanager.Record
	for len(got) < n {
		polled, err := r.src.Poll(ctx, n-len(got))
		if err != nil {
			t.Fatalf("Poll after %d of %d records: %v", len(got), n, err)
		}
		for _, rec := range polled.Records {
			rec.Value = bytes.Clone(rec.Value)
			got = append(got, rec)
		}
	}
	return got
}

// nothing fails the test if a record comes within a while.
func (r *record) nothing(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if got, err := r.src.Poll(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Poll = %v, %v, want no record", got.Records, err)
	}
}

// open starts a source of topic "in" in group "g".
func open(t *testing.T, c *kfake.Cluster, change ...func(*kafka.SourceConfig)) *record {
	t.Helper()
	cfg := kafka.SourceConfig{Connection: kafka.Connection{Options: quick}, Topics: []string{"in"}, Group: "g"}
	if c != nil {
		cfg.Brokers = c.ListenAddrs()
	}
	for _, ch := range change {
		ch(&cfg)
	}
	r := &record{log: &lines{}, starts: map[tp]int64{}, finished: map[tp][]streammanager.Range{}, changed: make(chan struct{})}
	var err error
	if r.src, err = kafka.NewSource(cfg, slog.New(slog.NewTextHandler(r.log, nil))); err != nil {
		t.Fatal(err)
	}
	if err := r.src.Open(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.src.Close(context.Background()) })
	return r
}

// lines keeps a log.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// eventually waits for a condition that nothing announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waiting until %s", what)
		}
	}
}

func text(rs []streammanager.Record) string {
	var s []string
	for _, r := range rs {
		s = append(s, string(r.Value))
	}
	return strings.Join(s, " ")
}

// refuse has requests of a kind fail with err, count times; -1 is always.
func refuse(c *kfake.Cluster, key kmsg.Key, err *kerr.Error, count int) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: count})
}

// at makes positions of offsets.
func at(offsets map[tp]int64) map[tp]streammanager.Position {
	positions := map[tp]streammanager.Position{}
	for part, o := range offsets {
		positions[part] = streammanager.Position{Offset: o}
	}
	return positions
}
