package kafka_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Records that become many times as large once they are unpacked: what is fetched ahead of a slow stream stays within
// the same bound, in memory, as soon as it was seen how much they grow.
func TestCompressedRecordsThatAreFetchedAheadStayWithinTheBoundOnceUnpacked(t *testing.T) {
	const partitions, perPartition, size, packed = 12, 40, 150 << 10, 20 << 10
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		v := make([]byte, size)
		for i := range packed {
			v[i] = byte(rand.Uint32())
		}
		r, came := ahead(t, dial, kgo.GzipCompression(), v, partitions, perPartition)
		defer r.src.Close(context.Background())
		// What the first answers hold, before anything is known, is gone by then; they are not polled one after the other.
		const first = perPartition / 2
		delivered, most := int64(0), int64(0)
		for i := range perPartition {
			r.poll(t, partitions)
			delivered += partitions
			wait(10 * time.Second)
			if i > first {
				most = max(most, came.Load()/packed-delivered)
			}
		}
		// Answers are larger than the records in them by a hundredth or so, and each may hold a record too many.
		const around = partitions*perPartition/100 + 4
		if bound := r.src.BufferBytes()/size + partitions + around; most > bound || most < 1 {
			t.Errorf("%d records of %d bytes came and were not asked for, want some and at most %d", most, size, bound)
		}
	}, kfake.SeedTopics(partitions, "large"))
}
