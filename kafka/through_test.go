package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// carrier is a worker in transactions, with a topic in between or without. It begins anew when it fails.
type carrier struct {
	id      string
	between bool
	timeout time.Duration // transaction.timeout.ms
	gate    *gate         // its network; nil: one that is never shut
	call    event.FuncOf

	log    *lines
	metric *prometheus.Registry
	end    func() error
}

func (c *cluster) carrier(w *carrier) *carrier {
	c.t.Helper()
	w.log, w.metric = &lines{}, prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			s, err := c.carrierStream(w)
			if err == nil {
				err = s.Run(ctx)
			}
			w.metric = prometheus.NewRegistry()
			if err == nil || ctx.Err() != nil {
				done <- err
				return
			}
		}
	}()
	w.end = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	c.t.Cleanup(func() {
		_ = w.end()
		if c.t.Failed() {
			c.t.Log(w.id, w.log.text.String())
		}
	})
	return w
}

func (c *cluster) carrierStream(w *carrier) (*streammanager.Stream, error) {
	log := slog.New(slog.NewTextHandler(w.log, nil))
	src := kafka.Connection{Brokers: c.fake.ListenAddrs(), Options: map[string]string{
		"heartbeat.interval.ms": "100", "metadata.max.age.ms": "200", "session.timeout.ms": "1000",
	}}
	dst := kafka.Connection{Brokers: src.Brokers, Options: map[string]string{"transaction.timeout.ms": fmt.Sprint(w.timeout.Milliseconds())}}
	if w.gate != nil {
		src.Dialer, dst.Dialer = w.gate.dial, w.gate.dial
	}
	source := kafka.SourceConfig{Connection: src, Topics: []string{"in"}, Group: "g"}
	sinks := []*kafka.SinkConfig{{Connection: dst, Topic: "out"}, {Connection: dst, Topic: "errors"}}
	if w.between {
		leading(3)(&source)
		sinks = append(sinks, &kafka.SinkConfig{Connection: dst, Topic: between, AnySize: true})
	}
	tx, err := kafka.NewTransaction(kafka.TransactionConfig{ID: w.id, Source: source, Sinks: sinks}, log)
	if err != nil {
		return nil, err
	}
	b := streammanager.New(streammanager.Config{Name: "g", Logger: log, CommitInterval: 50 * time.Millisecond, Metrics: w.metric}).From(tx.Source()).
		PartitionBy(func(_ context.Context, ev *event.Event) (streammanager.Key, error) {
			return streammanager.Key{Value: string(ev.Key())}, nil
		}).
		Process(streammanager.Step{Name: "fn", Func: w.call}).To(tx.Sink(0)).ErrorsTo(tx.Sink(1), nil)
	if w.between {
		b.Repartition(between, tx.Sink(2))
	}
	return b.Build()
}

// gate is a network that can stand still, and go on where it stopped.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed: it is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) opened() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case <-g.opened():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &gated{Conn: conn, g: g, closed: make(chan struct{})}, nil
}

type gated struct {
	net.Conn
	g      *gate
	once   sync.Once
	closed chan struct{}
}

func (c *gated) wait() error {
	select {
	case <-c.g.opened():
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *gated) Write(b []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err := c.wait(); err != nil {
		return 0, err
	}
	return n, err
}

func (c *gated) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A worker that stood still in the middle of a transaction comes back when others have its partitions. Nothing of what
// it had written may be seen beside what they wrote, whether the brokers still hold its transaction open or have aborted it.
func TestAWorkerThatStoodStillInATransactionIsSeenByNobody(t *testing.T) {
	for _, tc := range []struct {
		name    string
		between bool
		timeout time.Duration
	}{
		{"its transaction is still open", false, time.Minute},
		{"its transaction was aborted", false, 3 * time.Second},
		{"its transaction was aborted, over a topic in between", true, 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, kfake.GroupMinSessionTimeout(100*time.Millisecond))
			held, entered := make(chan struct{}), make(chan struct{}, 100)
			one := c.carrier(&carrier{id: "one", between: tc.between, timeout: tc.timeout, gate: newGate(), call: func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "150" {
					entered <- struct{}{}
					<-held
				}
				return []*event.Event{ev}, nil
			}})
			c.members(1)
			c.produce(0, 100)
			c.committed()
			c.produce(100, 100)
			<-entered // the others of the transaction are on their way to the topic
			eventually(t, "some of an open transaction is written", func() bool { return highWatermark(c, "out") > 130 })
			one.gate.shut()
			two := c.carrier(&carrier{id: "two", between: tc.between, timeout: tc.timeout, call: pass})
			eventually(t, "the other worker has done all", func() bool { return behind(c, "in", between) == 0 })
			close(held)
			one.gate.reopen()
			c.produce(200, 100)
			c.members(2)
			eventually(t, "all is committed", func() bool { return behind(c, "in", between) == 0 })
			c.once(300, nil)
			if err := errors.Join(one.end(), two.end()); err != nil {
				t.Error(err)
			}
		})
	}
}

func highWatermark(c *cluster, topic string) (n int64) {
	for _, info := range c.fake.PartitionInfos(topic) {
		n += info.HighWatermark
	}
	return n
}

// behind is how many offsets of topics the group has not committed.
func behind(c *cluster, topics ...string) (n int64) {
	got, err := c.admin.FetchOffsets(context.Background(), "g")
	if err != nil {
		return -1
	}
	for _, topic := range topics {
		for _, info := range c.fake.PartitionInfos(topic) {
			o, _ := got.Lookup(topic, info.Partition)
			n += info.HighWatermark - max(o.At, 0)
		}
	}
	return n
}

// A tombstone waits for what was before it in its partition to be committed, over both ways, which is not done as long as the
// transaction lasts that it was met in.
func TestTombstonesKeepTheirPlaceInTransactions(t *testing.T) {
	for _, tc := range []struct {
		name    string
		between bool
		workers int
	}{{"one worker", false, 1}, {"one worker over a topic in between", true, 1}, {"three workers over a topic in between", true, 3}} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, kfake.GroupMinSessionTimeout(100*time.Millisecond))
			var workers []*carrier
			for i := range tc.workers {
				workers = append(workers, c.carrier(&carrier{id: fmt.Sprint("w", i), between: tc.between, timeout: time.Minute, call: slowly}))
			}
			c.members(tc.workers)
			want := map[string][]string{}
			for round := range 3 {
				for k := range 2 {
					key := fmt.Sprint("k", k)
					for _, value := range [][]byte{fmt.Append(nil, round, "a"), fmt.Append(nil, round, "b"), nil} {
						if err := c.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Key: []byte(key), Value: value}).FirstErr(); err != nil {
							t.Fatal(err)
						}
						want[key] = append(want[key], string(value))
					}
				}
			}
			topics := []string{"in"}
			if tc.between {
				topics = append(topics, between)
			}
			eventually(t, "all is committed", func() bool { return behind(c, topics...) == 0 })
			got := c.readCommitted("out", 18)
			for key, values := range want {
				if strings.Join(got[key], ",") != strings.Join(values, ",") {
					t.Errorf("key %s: a reader of what is committed sees %q, want %q", key, got[key], values)
				}
			}
			for _, w := range workers {
				if err := w.end(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func slowly(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	select {
	case <-time.After(5 * time.Millisecond):
		return []*event.Event{ev}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readCommitted returns the values of each key, of n records that are committed.
func (c *cluster) readCommitted(topic string, n int) map[string][]string {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.fake.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	got := map[string][]string{}
	for n > 0 && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
			n--
		})
	}
	return got
}
