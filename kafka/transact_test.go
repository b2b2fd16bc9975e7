package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// txWorker is a stream from in to out, and to errors, in transactions.
type txWorker struct {
	stream *streammanager.Stream
	log    *lines
	stop   func() error // ends it and returns what Run returned
}

func (c *cluster) txWorker(id string, fn event.FuncOf, options map[string]string) *txWorker {
	c.t.Helper()
	w := &txWorker{log: &lines{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	src := kafka.Connection{Brokers: c.fake.ListenAddrs(), Options: map[string]string{"heartbeat.interval.ms": "100", "metadata.max.age.ms": "200"}}
	dst := kafka.Connection{Brokers: src.Brokers, Options: options}
	tx, err := kafka.NewTransaction(kafka.TransactionConfig{
		ID: id, Source: kafka.SourceConfig{Connection: src, Topics: []string{"in"}, Group: "g"},
		Sinks: []*kafka.SinkConfig{{Connection: dst, Topic: "out"}, {Connection: dst, Topic: "errors"}},
	}, log)
	if err != nil {
		c.t.Fatal(err)
	}
	w.stream, err = streammanager.New(streammanager.Config{Name: "g", Logger: log, CommitInterval: 50 * time.Millisecond}).
		From(tx.Source()).Process(streammanager.Step{Name: "fn", Func: fn}).To(tx.Sink(0)).ErrorsTo(tx.Sink(1), nil).Build()
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := w.stream.Run(ctx)
		log.Info("ended", "err", err)
		done <- err
	}()
	w.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			return errors.New("the stream did not stop")
		}
	})
	c.t.Cleanup(func() {
		_ = w.stop()
		if c.t.Failed() {
			c.t.Log(w.log.text.String())
		}
	})
	return w
}

// seen reads out and errors as one who reads what is committed, until n values came, and then a while longer.
func (c *cluster) seen(n int) (outputs, errs map[string]int) {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.fake.ListenAddrs()...), kgo.ConsumeTopics("out", "errors"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	outputs, errs = map[string]int{}, map[string]int{}
	deadline := time.Now().Add(40 * time.Second)
	for {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		if len(outputs)+len(errs) >= n {
			ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
		}
		fetches := cl.PollFetches(ctx)
		over := ctx.Err() != nil
		cancel()
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Topic == "out" {
				outputs[string(r.Value)]++
			} else {
				errs[string(r.Value)]++
			}
		})
		if over && fetches.Empty() || over && len(fetches.Records()) == 0 {
			return outputs, errs
		}
	}
}

// once fails unless each of n events is seen once, those that are bad as error events.
func (c *cluster) once(n int, bad func(i int) bool) {
	c.t.Helper()
	outputs, errs := c.seen(n)
	for i := range n {
		v, want, other := fmt.Sprint(i), outputs, errs
		if bad != nil && bad(i) {
			want, other = errs, outputs
		}
		if want[v] != 1 || other[v] != 0 {
			c.t.Errorf("event %s is seen %d times as an output and %d times as an error event", v, outputs[v], errs[v])
		}
	}
}

var quickTx = map[string]string{"transaction.timeout.ms": "4000", "linger.ms": "0", "compression.type": "none"}

func TestReadersOfWhatIsCommittedSeeEachOutputOnce(t *testing.T) {
	c := newCluster(t)
	bad := func(i int) bool { return i%10 == 3 }
	fn := func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		var i int
		_, _ = fmt.Sscan(string(ev.Value()), &i)
		if bad(i) {
			return nil, errors.New("bad")
		}
		select {
		case <-time.After(time.Duration(i%7) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return []*event.Event{ev}, nil
	}
	c.produce(0, 300)
	one := c.txWorker("one", fn, quickTx)
	eventually(t, "some are emitted", func() bool { return one.stream.Status().Emitted > 20 })
	two := c.txWorker("two", fn, quickTx)
	c.members(2)
	n := 300
	for _, f := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.TxnOffsetCommit, kerr.IllegalGeneration},
		{kmsg.EndTxn, kerr.UnknownServerError},
		{kmsg.Produce, kerr.RequestTimedOut},
		{kmsg.TxnOffsetCommit, kerr.CoordinatorNotAvailable},
		{kmsg.EndTxn, kerr.CoordinatorNotAvailable},
	} {
		refuse(c.fake, f.key, f.err, 2)
		for range 4 {
			before := one.stream.Status().Emitted + two.stream.Status().Emitted
			c.produce(n, 20)
			n += 20
			eventually(t, "some more are emitted", func() bool { return one.stream.Status().Emitted+two.stream.Status().Emitted > before })
		}
	}
	eventually(t, "some are emitted by the other", func() bool { return two.stream.Status().Emitted > 20 })
	if err := one.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	c.produce(n, 100)
	c.committed()
	if err := two.stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	c.once(n+100, bad)
}

func TestAnEndWhoseAnswerIsLostIsNotWrittenTwice(t *testing.T) {
	c := newCluster(t)
	var cut atomic.Int32
	c.fake.ControlKey(int16(kmsg.EndTxn), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		if cut.Add(1) == 3 {
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	w := c.txWorker("one", pass, quickTx)
	c.members(1)
	for i := range 10 {
		c.produce(10*i, 10)
		c.committed()
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	c.once(100, nil)
}

func TestASecondWorkerWithTheSameTransactionalIDIsNamed(t *testing.T) {
	c := newCluster(t)
	one := c.txWorker("same", pass, quickTx)
	c.members(1)
	c.produce(0, 50)
	c.committed()
	two := c.txWorker("same", pass, quickTx)
	c.members(2)
	failed := func(w *txWorker) bool { return w.log.count("msg=ended") > 0 }
	n := 50
	eventually(t, "one of them says it", func() bool {
		c.produce(n, 8)
		n += 8
		return failed(one) || failed(two)
	})
	err := errors.Join(one.stop(), two.stop())
	if err == nil || !strings.Contains(err.Error(), `transactional id "same" was taken over: another worker uses it`) {
		t.Errorf("the streams ended with: %v", err)
	}
	if failed := (*streammanager.FailedError)(nil); !errors.As(err, &failed) || failed.Reason != streammanager.ReasonTransaction {
		t.Errorf("it fails for %+v, want the reason that is told of transactions", failed)
	}
}

func TestARecordThatTheTopicRefusesInATransactionBecomesAnErrorEvent(t *testing.T) {
	c := newCluster(t)
	c.fake.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				info := c.fake.TopicIDInfo(topic.TopicID)
				out := topic.Topic == "out" || info != nil && info.Topic == "out"
				if out && strings.Contains(string(p.Records), "poison") {
					return tooLarge(req), nil, true
				}
			}
		}
		return nil, nil, false
	})
	w := c.txWorker("one", pass, quickTx)
	c.members(1)
	c.produce(0, 20)
	if err := c.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Key: []byte("k1"), Value: []byte("poison")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.produce(20, 20)
	c.committed()
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	outputs, errs := c.seen(41)
	if len(outputs) != 40 || len(errs) != 1 || errs["poison"] != 1 {
		t.Errorf("%d outputs and error events %v, want 40 and poison once", len(outputs), errs)
	}
}

func tooLarge(req *kmsg.ProduceRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, kerr.MessageTooLarge.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func TestSourceAndSinksOfATransactionShareOneClient(t *testing.T) {
	conn := func(change func(*kafka.Connection)) kafka.Connection {
		c := kafka.Connection{Brokers: []string{"a:1", "b:1"}, Options: map[string]string{"client.id": "x"}}
		if change != nil {
			change(&c)
		}
		return c
	}
	for _, tc := range []struct {
		name string
		sink func(*kafka.Connection)
		errs func(*kafka.Connection)
		want string // empty: fine
	}{
		{name: "the same"},
		{name: "brokers in another order", sink: func(c *kafka.Connection) { c.Brokers = []string{"b:1", "a:1"} }},
		{name: "other brokers", sink: func(c *kafka.Connection) { c.Brokers = []string{"c:1"} }, want: "brokers: with exactly_once source and sinks share one client"},
		{name: "other brokers for errors", errs: func(c *kafka.Connection) { c.Brokers = []string{"c:1"} }, want: "brokers: with exactly_once"},
		{name: "another login", sink: func(c *kafka.Connection) { c.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p"} }, want: "sasl: "},
		{name: "TLS at one end", errs: func(c *kafka.Connection) { c.TLS = &kafka.TLS{} }, want: "tls: "},
		{name: "another name", sink: func(c *kafka.Connection) { c.Options = map[string]string{"client.id": "y"} }, want: `options["client.id"]: with exactly_once`},
		{name: "a setting of writing", sink: func(c *kafka.Connection) { c.Options = map[string]string{"linger.ms": "7"} }},
		{name: "two settings of writing", errs: func(c *kafka.Connection) { c.Options = map[string]string{"linger.ms": "7"} }, want: `options["linger.ms"]: with exactly_once one client writes`},
		{name: "a time that brokers give no transaction", sink: func(c *kafka.Connection) { c.Options = map[string]string{"transaction.timeout.ms": "10"} }, want: `options["transaction.timeout.ms"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := kafka.NewTransaction(kafka.TransactionConfig{
				ID: "id", Source: kafka.SourceConfig{Connection: conn(nil), Topics: []string{"in"}, Group: "g"},
				Sinks: []*kafka.SinkConfig{{Connection: conn(tc.sink), Topic: "out"}, {Connection: conn(tc.errs), Topic: "errors"}},
			}, nil)
			if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := kafka.NewTransaction(kafka.TransactionConfig{}, nil); err == nil {
		t.Error("a transaction without an id was made")
	}
}

// All that was polled is not all that is finished: what the stream has not taken yet must be read again.
func TestATransactionCommitsThePositionsThatItIsGiven(t *testing.T) {
	c := newCluster(t)
	conn := kafka.Connection{Brokers: c.fake.ListenAddrs()}
	tx, err := kafka.NewTransaction(kafka.TransactionConfig{
		ID: "one", Source: kafka.SourceConfig{Connection: conn, Topics: []string{"in"}, Group: "g"}, Sinks: []*kafka.SinkConfig{{Connection: conn, Topic: "out"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &record{log: &lines{}, starts: map[tp]int64{}, finished: map[tp][]streammanager.Range{}, changed: make(chan struct{})}
	src, sink := tx.Source(), tx.Sink(0)
	if err := errors.Join(sink.Open(t.Context()), src.Open(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	defer func() { src.Close(context.Background()); _ = sink.Close(context.Background()) }()
	eventually(t, "the partitions are assigned", func() bool { return len(r.held()) == 4 })
	c.produce(0, 100)
	polled := 0
	for polled < 100 {
		got, err := src.Poll(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		polled += len(got.Records)
	}
	ends := src.(streammanager.Transactor)
	if err := ends.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	part := tp{Topic: "in", Partition: 1}
	kept, err := ends.End(t.Context(), true, map[tp]streammanager.Position{part: {Offset: 3}})
	if err != nil || !kept {
		t.Fatalf("End = %v, %v", kept, err)
	}
	if got := committed(t, c.admin); got[0] != 0 || got[1] != 3 || got[2] != 0 || got[3] != 0 {
		t.Errorf("committed %v, want 3 of partition 1 alone", got)
	}
}

func TestAProducerThatWasTakenOverIsNoFaultOfTheSink(t *testing.T) {
	for _, taken := range []*kerr.Error{kerr.InvalidProducerEpoch, kerr.ProducerFenced} {
		t.Run(taken.Message, func(t *testing.T) {
			c := newCluster(t)
			w := c.txWorker("same", pass, quickTx)
			c.members(1)
			c.produce(0, 10)
			c.committed()
			c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Err: taken})
			c.produce(10, 10)
			eventually(t, "it is said", func() bool { return w.log.count("level=ERROR") > 0 || w.log.count("msg=ended") > 0 })
			_ = w.stop()
			log := w.log.text.String()
			if !strings.Contains(log, `was taken over: another worker uses it (give each worker an instance or transactional_id of its own)`) ||
				strings.Contains(log, "sink failed") || strings.Contains(log, "kind=sink") || strings.Contains(log, "writing to topic") {
				t.Errorf("it said:\n%s", log)
			}
		})
	}
}
