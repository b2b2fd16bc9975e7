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

// Records that become many times as large once they are unpacked: what is fetched ahead of a slow stream stays within
// the same bound, in memory, as soon as it was seen how much they grow.
func TestCompressedRecordsThatAreFetchedAheadStayWithinTheBoundOnceUnpacked(t *testing.T) {
	const partitions, perPartition, size, packed = 12, 40, 150 << 10, 20 << 10
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(dial), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		v := make([]byte, size)
		for i := range packed {
			v[i] = byte(rand.Uint32())
		}
		for i := range perPartition * partitions {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "large", Partition: int32(i % partitions), Value: v}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		var came atomic.Int64
		r := open(t, nil, func(cfg *kafka.SourceConfig) {
			cfg.Topics, cfg.Options = []string{"large"}, map[string]string{"fetch.max.bytes": "1048576"}
			cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return counted{conn, &came}, err
			}
			cfg.Brokers = []string{"127.0.0.1:9092"}
		})
		defer r.src.Close(context.Background())
		const first = perPartition / 4 // what the first answer holds, before anything is known
		delivered, most := int64(0), int64(0)
		for i := range perPartition {
			r.poll(t, partitions)
			delivered += partitions
			wait(10 * time.Second)
			if i > first {
				most = max(most, came.Load()/packed-delivered)
			}
		}
		if bound := r.src.BufferBytes()/size + partitions; most > bound || most < 1 {
			t.Errorf("%d records of %d bytes came and were not asked for, want some and at most %d", most, size, bound)
		}
	}, kfake.SeedTopics(partitions, "large"))
}
