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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// written is a sink with its log.
type written struct {
	*kafka.Sink
	log *lines
}

func sinkTo(t *testing.T, c *kfake.Cluster, change ...func(*kafka.SinkConfig)) written {
	t.Helper()
	cfg := kafka.SinkConfig{Connection: kafka.Connection{Options: map[string]string{}}, Topic: "out"}
	if c != nil {
		cfg.Brokers = c.ListenAddrs()
	}
	for _, ch := range change {
		ch(&cfg)
	}
	w := written{log: &lines{}}
	var err error
	if w.Sink, err = kafka.NewSink(cfg, slog.New(slog.NewTextHandler(w.log, nil))); err != nil {
		t.Fatal(err)
	}
	if err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// send hands all records over and returns their answers.
func (w written) send(t *testing.T, rs ...streammanager.Record) []error {
	t.Helper()
	errs := make([]error, len(rs))
	var left sync.WaitGroup
	left.Add(len(rs))
	for i := range rs {
		w.Produce(t.Context(), &rs[i], func(err error) { errs[i] = err; left.Done() })
	}
	done := make(chan struct{})
	go func() { left.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("not every record was answered")
	}
	return errs
}

// read returns all records of a topic, by offset within a partition.
func read(t *testing.T, c *kfake.Cluster, topic string, n int) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var rs []*kgo.Record
	for len(rs) < n {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d records", len(rs), n)
		}
		rs = append(rs, f.Records()...)
	}
	return rs
}

func value(n int) streammanager.Record {
	return streammanager.Record{Value: bytes.Repeat([]byte("x"), n)}
}

func rejected(err error) event.Type {
	var r *event.RejectError
	if errors.As(err, &r) {
		return r.Type
	}
	return ""
}

func TestARecordIsWrittenWithAllItsParts(t *testing.T) {
	c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out", "other"))
	w := sinkTo(t, c)
	at := time.UnixMilli(1700000000123)
	for _, err := range w.send(t,
		streammanager.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: at, Headers: []event.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte{}}}},
		streammanager.Record{},
		streammanager.Record{Key: []byte{}, Value: []byte{}},
		streammanager.Record{Topic: "other", Value: []byte("elsewhere")},
	) {
		if err != nil {
			t.Fatal(err)
		}
	}
	rs := read(t, c, "out", 3)
	if r := rs[0]; string(r.Key) != "k" || string(r.Value) != "v" || !r.Timestamp.Equal(at) ||
		len(r.Headers) != 3 || r.Headers[1].Value != nil || r.Headers[2].Value == nil || r.Headers[2].Key != "a" {
		t.Errorf("got %+v", r)
	}
	if rs[1].Key != nil || rs[1].Value != nil {
		t.Errorf("null key and value were written as %q and %q", rs[1].Key, rs[1].Value)
	}
	if rs[2].Key == nil || rs[2].Value == nil {
		t.Error("empty key and value were written as null")
	}
	if d := time.Since(rs[1].Timestamp); d < -time.Minute || d > time.Minute {
		t.Errorf("a record without a time was stamped %v", rs[1].Timestamp)
	}
	if got := read(t, c, "other", 1); string(got[0].Value) != "elsewhere" {
		t.Errorf("got %q", got[0].Value)
	}
}

func TestPrepareFindsTopicKeyAndTime(t *testing.T) {
	fail := errors.New("no key there")
	at := time.UnixMilli(1700000000123)
	ev := func(key, value []byte) *event.Event { return event.New(event.Position{}, key, value, nil, at) }
	keyOf := func(ev *event.Event) ([]byte, error) {
		if string(ev.Value()) == "bad" {
			return nil, fail
		}
		return []byte("new"), nil
	}
	for _, tt := range []struct {
		name  string
		cfg   kafka.SinkConfig
		ev    *event.Event
		topic string
		key   string
		err   error
	}{
		{name: "as it came", cfg: kafka.SinkConfig{Topic: "t"}, ev: ev([]byte("k"), []byte("v")), topic: "t", key: "k"},
		{name: "key", cfg: kafka.SinkConfig{Topic: "t", KeyOf: keyOf}, ev: ev([]byte("k"), []byte("v")), topic: "t", key: "new"},
		{name: "a tombstone keeps its key", cfg: kafka.SinkConfig{Topic: "t", KeyOf: keyOf}, ev: ev([]byte("k"), nil), topic: "t", key: "k"},
		{name: "no key", cfg: kafka.SinkConfig{Topic: "t", KeyOf: keyOf}, ev: ev(nil, []byte("bad")), err: fail},
		{name: "topic", cfg: kafka.SinkConfig{TopicOf: func(ev *event.Event) (string, error) { return string(ev.Value()), nil }}, ev: ev(nil, []byte("v")), topic: "v"},
		{name: "no topic", cfg: kafka.SinkConfig{TopicOf: func(*event.Event) (string, error) { return "", fail }}, ev: ev(nil, nil), err: fail},
		{name: "now", cfg: kafka.SinkConfig{Topic: "t", Now: true}, ev: ev(nil, nil), topic: "t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Brokers = []string{"localhost:9092"}
			s, err := kafka.NewSink(tt.cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Prepare(tt.ev)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if r.Topic != tt.topic || string(r.Key) != tt.key || !bytes.Equal(r.Value, tt.ev.Value()) || r.Timestamp.Equal(at) == tt.cfg.Now {
				t.Errorf("got %+v, want topic %q, key %q", r, tt.topic, tt.key)
			}
		})
	}
}

// The hashes are those of the tests of Java's client.
func TestAKeyGoesWhereJavasClientPutsIt(t *testing.T) {
	hashes := map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	}
	const partitions = 97
	c, _, _ := fake(t, 0, kfake.SeedTopics(partitions, "out"))
	w := sinkTo(t, c)
	for key := range hashes {
		if err := w.send(t, streammanager.Record{Key: []byte(key)})[0]; err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range read(t, c, "out", len(hashes)) {
		if want := (hashes[string(r.Key)] & 0x7fffffff) % partitions; r.Partition != want {
			t.Errorf("key %q went to partition %d, want %d", r.Key, r.Partition, want)
		}
	}
}

func TestRecordsWithoutAKeyAreSpread(t *testing.T) {
	c, _, _ := fake(t, 0, kfake.SeedTopics(4, "out"))
	w := sinkTo(t, c)
	var rs []streammanager.Record
	for range 2000 {
		rs = append(rs, value(1000))
	}
	for _, err := range w.send(t, rs...) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range c.PartitionInfos("out") {
		if p.HighWatermark < 100 {
			t.Errorf("partition %d got %d of 2000 records", p.Partition, p.HighWatermark)
		}
	}
}

// refusing has produce requests fail that hold poison, as a broker refuses a batch as a whole.
func refusing(c *kfake.Cluster, err *kerr.Error) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: -1, When: func(req kmsg.Request) bool {
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				if bytes.Contains(p.Records, []byte("poison")) {
					return true
				}
			}
		}
		return false
	}})
}

func TestOnlyARecordThatTravelsAloneIsFoundAtFault(t *testing.T) {
	for _, tt := range []struct {
		err  *kerr.Error
		want event.Type
	}{{kerr.InvalidRecord, event.Rejected}, {kerr.InvalidTimestamp, event.Rejected}, {kerr.MessageTooLarge, event.TooLarge}} {
		t.Run(tt.err.Message, func(t *testing.T) {
			c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out"))
			w := sinkTo(t, c, func(cfg *kafka.SinkConfig) {
				cfg.Options = map[string]string{"compression.type": "none", "linger.ms": "50"}
			})
			refused := refusing(c, tt.err)
			good, poison := streammanager.Record{Value: []byte("good")}, streammanager.Record{Value: []byte("poison")}
			if err := w.send(t, poison)[0]; rejected(err) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("alone: %v, want %s", err, tt.want)
			}
			if n := refused.Hits(); n != 1 {
				t.Errorf("a record that will never be taken was sent %d times", n)
			}
			for _, err := range w.send(t, good, poison, good) {
				if err == nil || rejected(err) != "" {
					t.Errorf("among others: %v, want the sink's failure", err)
				}
			}
			if w.Health() == nil {
				t.Error("the sink is well after a failure")
			}
			w.Single(true)
			errs := w.send(t, good, poison, good)
			if errs[0] != nil || rejected(errs[1]) != tt.want || errs[2] != nil {
				t.Errorf("one by one: %v, want the second refused alone", errs)
			}
			w.Single(false)
			if err := w.send(t, good)[0]; err != nil || w.Health() != nil {
				t.Errorf("afterwards: %v, Health %v", err, w.Health())
			}
			if got := len(read(t, c, "out", 3)); got != 3 {
				t.Errorf("%d records were written, want 3", got)
			}
		})
	}
}

func TestAFailureOfTheSinkIsNoFaultOfTheRecordAndHeals(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.PolicyViolation, kerr.UnknownServerError} {
		t.Run(err.Message, func(t *testing.T) {
			c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out"))
			w := sinkTo(t, c)
			refused := refuse(c, kmsg.Produce, err, -1)
			for range 3 {
				got := w.send(t, value(1))[0]
				if !errors.Is(got, err) || rejected(got) != "" || !strings.Contains(got.Error(), `topic "out"`) {
					t.Fatalf("answer %v, want %v as the sink's", got, err)
				}
			}
			if n := w.log.count(said); n != 1 || w.Health() == nil {
				t.Errorf("it was said %d times, Health %v; want once, and unwell", n, w.Health())
			}
			refused.Remove()
			if got := w.send(t, value(1))[0]; got != nil || w.Health() != nil {
				t.Errorf("afterwards %v, Health %v", got, w.Health())
			}
		})
	}
}

func TestTheSinkIsUsableAfterItsProducerIDWasForgotten(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch} {
		t.Run(err.Message, func(t *testing.T) {
			c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out"))
			w := sinkTo(t, c)
			w.send(t, value(1))
			refuse(c, kmsg.Produce, err, 1)
			for range 3 {
				if got := w.send(t, value(1))[0]; got != nil {
					t.Fatal(got)
				}
			}
			if n := len(read(t, c, "out", 4)); n != 4 {
				t.Errorf("%d records were written, want 4", n)
			}
		})
	}
}

func TestOrderIsKeptWhenARequestFails(t *testing.T) {
	c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out"))
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) { cfg.Options = map[string]string{"linger.ms": "0"} })
	refuse(c, kmsg.Produce, kerr.NotLeaderForPartition, 3)
	var rs []streammanager.Record
	for i := range 300 {
		rs = append(rs, streammanager.Record{Key: []byte("k"), Value: fmt.Append(nil, i)})
	}
	for _, err := range w.send(t, rs...) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, r := range read(t, c, "out", 300) {
		got = append(got, string(r.Value))
	}
	for i := range rs {
		if i >= len(got) || got[i] != string(rs[i].Value) {
			t.Fatalf("written in the order %v", got)
		}
	}
}

func TestAnUnknownTopicOfASinkIsSaidOnceAndWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		w := sinkTo(t, nil, func(cfg *kafka.SinkConfig) { cfg.Brokers, cfg.Dialer = []string{"127.0.0.1:9092"}, dial })
		eventually(t, "the sink is unwell", func() bool {
			err := w.Health()
			return err != nil && strings.Contains(err.Error(), `topic "out" does not exist: create it`)
		})
		answer := make(chan error, 1)
		r := value(1)
		w.Produce(t.Context(), &r, func(err error) { answer <- err })
		wait(3 * time.Minute)
		select {
		case err := <-answer:
			t.Fatalf("the record was told %v, want it to wait", err)
		default:
		}
		if n := w.log.count(said); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, w.log.text.String())
		}
		if err := c.CreateTopic("out", 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err != nil {
			t.Error(err)
		}
		eventually(t, "the sink is well", func() bool { return w.Health() == nil })
	})
}
