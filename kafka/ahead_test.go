package kafka_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/kafka"
)

// counted counts the bytes that are read.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// A stream that is slow with large records: what is fetched ahead of it is bounded, as the log says at the start.
func TestWhatIsFetchedAheadOfASlowStreamStaysWithinItsBound(t *testing.T) {
	const partitions, perPartition, size = 12, 10, 150 << 10
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		v := make([]byte, size)
		for i := range v {
			v[i] = byte(rand.Uint32())
		}
		r, came := ahead(t, dial, kgo.NoCompression(), v, partitions, perPartition)
		defer r.src.Close(context.Background())
		delivered, most := int64(0), int64(0)
		for range perPartition {
			r.poll(t, partitions)
			delivered += partitions * size
			wait(10 * time.Second)
			most = max(most, came.Load()-delivered)
		}
		// An answer may end with a record that it is the first to hold. How much is left of one depends on where the
		// polls happen to end in it, and is a record at least.
		if bound := r.src.BufferBytes() + 4*size; most > bound || most < size {
			t.Errorf("%d bytes came and were not asked for, want some and at most %d", most, bound)
		}
	}, kfake.SeedTopics(partitions, "large"))
}

// ahead writes the value so often to each partition of the topic "large", and opens a source of it. It counts the bytes
// that come to that.
func ahead(t *testing.T, dial dialer, codec kgo.CompressionCodec, value []byte, partitions, perPartition int) (*record, *atomic.Int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(dial), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range perPartition * partitions {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "large", Partition: int32(i % partitions), Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	came := new(atomic.Int64)
	return open(t, nil, func(cfg *kafka.SourceConfig) {
		cfg.Topics, cfg.Options = []string{"large"}, map[string]string{"fetch.max.bytes": "1048576"}
		cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return counted{conn, came}, err
		}
		cfg.Brokers = []string{"127.0.0.1:9092"}
	}), came
}
