//go:build unix

package job

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Place is where a record is in a topic.
type Place struct {
	Partition int32
	Offset    int64
}

// Records returns where topic has records.
func Records(t testing.TB, admin *kadm.Client, brokers []string, topic string) map[Place]bool {
	t.Helper()
	found := map[Place]bool{}
	EachRecord(t, admin, brokers, topic, func(r *kgo.Record) { found[Place{r.Partition, r.Offset}] = true })
	return found
}

// EachRecord reads topic to its end as it is now, and calls f with each record. A reader that wants what is committed is
// made by opts.
func EachRecord(t testing.TB, admin *kadm.Client, brokers []string, topic string, f func(*kgo.Record), opts ...kgo.Opt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends, err := Ends(ctx, admin, topic)
	Must(t, err)
	begins, err := admin.ListStartOffsets(ctx, topic)
	Must(t, err)
	begins.Each(func(o kadm.ListedOffset) {
		if ends[o.Partition] == o.Offset {
			delete(ends, o.Partition) // it is empty
		}
	})
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(),
	}, opts...)...)
	Must(t, err)
	defer client.Close()
	for len(ends) > 0 {
		fetched := client.PollFetches(ctx)
		Must(t, fetched.Err())
		fetched.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				f(r)
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
}
