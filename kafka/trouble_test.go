package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
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

const said = "trouble, trying again"

func TestAnUnknownTopicIsSaidOnceAndWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := within(t, dial)
		defer cl.Close()
		r := open(t, c, over(dial), reading("unknown"))
		defer r.src.Close(context.Background())
		eventually(t, "the source is unwell", func() bool {
			err := r.src.Health()
			return err != nil && strings.Contains(err.Error(), `topic "unknown" does not exist: create it`)
		})
		r.nothing(t, time.Minute) // long enough to look again
		if n := r.log.count(said); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, r.log.text.String())
		}
		if err := c.CreateTopic("unknown", 1, nil); err != nil {
			t.Fatal(err)
		}
		write(t, cl, "unknown", 0, 0, 1)
		r.poll(t, 1)
		eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
	})
}

func TestAnUnreachableBrokerIsSaidOnceAndWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := within(t, dial)
		defer cl.Close()
		write(t, cl, "in", 0, 0, 1)
		var up atomic.Bool
		r := open(t, c, func(cfg *kafka.SourceConfig) {
			cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !up.Load() {
					return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("nobody is there")}
				}
				return dial(ctx, network, addr)
			}
		})
		defer r.src.Close(context.Background())
		eventually(t, "the source is unwell", func() bool {
			err := r.src.Health()
			return err != nil && strings.Contains(err.Error(), "nobody is there")
		})
		r.nothing(t, time.Minute)
		if n := r.log.count(said); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, r.log.text.String())
		}
		up.Store(true)
		r.poll(t, 1)
		eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
	})
}

func TestAMissingRightIsSaidOnceAndHealsWhenItIsGranted(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := within(t, dial)
		defer cl.Close()
		r := open(t, c, over(dial), reading("two"))
		defer r.src.Close(context.Background())
		r.untilHeld(t, 2)
		denied := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "two", Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		write(t, cl, "two", 0, 0, 1)
		write(t, cl, "two", 1, 10, 1)
		if got := text(r.poll(t, 1)); got != "10" {
			t.Errorf("the other partition gave %q, want 10", got)
		}
		r.nothing(t, 2500*time.Millisecond)
		if err := r.src.Health(); err == nil || !strings.Contains(err.Error(), `reading topic "two" partition 0 at offset 0`) {
			t.Errorf("Health = %v", err)
		}
		if n := r.log.count(said); n != 1 || denied.Hits() > 6 {
			t.Errorf("it was said %d times and asked for %d times, want once and with pauses", n, denied.Hits())
		}
		denied.Remove()
		if got := text(r.poll(t, 1)); got != "0" {
			t.Errorf("got %q, want 0", got)
		}
		if err := r.src.Health(); err != nil {
			t.Errorf("Health = %v after it healed", err)
		}
	}, kfake.SeedTopics(2, "two"))
}

// bubble runs fn in virtual time, on a network in memory.
func bubble(t *testing.T, fn func(t *testing.T, c *kfake.Cluster, dial dialer), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var vnet kfake.VirtualNetwork
		c, err := kfake.NewCluster(append(opts, kfake.Ports(9092), kfake.ListenFn(vnet.Listen), kfake.SeedTopics(1, "in"))...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fn(t, c, vnet.DialContext)
	})
}

func TestABatchThatCannotBeReadEndsThePipelineAndSaysWhere(t *testing.T) {
	for name, batch := range map[string]kmsg.RecordBatch{
		"checksum": {CRC: 1}, "gzip": {Attributes: 1}, "snappy": {Attributes: 2}, "lz4": {Attributes: 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
				serving(c, damaged(batch))
				r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer = dial })
				defer r.src.Close(context.Background())
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				_, err := r.src.Poll(ctx, 1)
				if err == nil || !strings.Contains(err.Error(), `topic "in" partition 0 at offset 0`) {
					t.Errorf("Poll = %v", err)
				}
				if d := time.Since(began); d < 3*time.Second || d > time.Minute {
					t.Errorf("gave up after %v, want some tries with pauses", d)
				}
			})
		})
	}
}

// The library gives up such a partition: nothing would ever be said of it again.
func TestABatchThatWouldTakeTooMuchMemoryEndsThePipelineAndSaysWhere(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		const snappy = 2
		serving(c, damaged(kmsg.RecordBatch{Attributes: snappy, Records: binary.AppendUvarint(nil, 4<<30-1)})) // claims four GiB
		r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer = dial })
		defer r.src.Close(context.Background())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err := r.src.Poll(ctx, 1)
		if err == nil || !strings.Contains(err.Error(), `topic "in" partition 0 at offset 0`) || !strings.Contains(err.Error(), "commit a later offset") {
			t.Errorf("Poll = %v, want the place and the cure", err)
		}
	})
}

// serving has every fetch answered with a batch.
func serving(c *kfake.Cluster, batch []byte) {
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			out := kmsg.NewFetchResponseTopic()
			out.Topic, out.TopicID = topic.Topic, topic.TopicID
			part := kmsg.NewFetchResponseTopicPartition()
			part.HighWatermark, part.RecordBatches = 10, batch
			out.Partitions = append(out.Partitions, part)
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil, true
	})
}

// damaged is a batch whose records are nothing that was compressed. Its checksum fits, unless b has one.
func damaged(b kmsg.RecordBatch) []byte {
	if b.Records == nil {
		b.Records = bytes.Repeat([]byte{0xff}, 10)
	}
	b.Length, b.Magic, b.NumRecords = 49+int32(len(b.Records)), 2, 1
	raw := b.AppendTo(nil)
	if b.CRC == 0 {
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return raw
}

// A worker whose brokers are gone must still end.
func TestCloseEndsInTimeWhereNoBrokerAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		var deaf atomic.Bool
		deafen := func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return deafConn{conn, &deaf}, err
		}
		r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer = deafen })
		sink, err := kafka.NewSink(kafka.SinkConfig{Connection: kafka.Connection{Brokers: c.ListenAddrs(), Dialer: deafen}, Topic: "in"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sink.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.untilHeld(t, 1)
		deaf.Store(true)
		answer := make(chan error, 1)
		sink.Produce(t.Context(), &streammanager.Record{Value: []byte("x")}, func(err error) { answer <- err })
		began := time.Now()
		r.src.Close(context.Background())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := sink.Close(ctx); err != nil {
			t.Errorf("Close = %v, want the record alone to be told", err)
		}
		if err := <-answer; !errors.Is(err, kgo.ErrClientClosed) && !errors.Is(err, context.Canceled) {
			t.Errorf("the record was told %v", err)
		}
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("closing took %v", d)
		}
	})
}

// deafConn takes what is written and answers nothing once deaf.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Write(b []byte) (int, error) {
	if c.deaf.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() && err == nil {
		return 0, io.ErrNoProgress
	}
	return n, err
}
