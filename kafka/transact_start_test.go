package kafka_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
)

// A worker was killed with a transaction open that had offsets in it: the brokers tell nobody what is committed until it has
// timed out. The worker that comes in its place has it aborted when it starts, and not only when it writes, for which it
// would have to know where to read.
func TestAWorkerThatTakesAPlaceDoesNotWaitForTheTransactionThatWasLeftOpen(t *testing.T) {
	c := newCluster(t)
	c.produce(0, 5)
	c.leaveOpen("one")
	pass := func(_ context.Context, ev *event.Event) ([]*event.Event, error) { return []*event.Event{ev}, nil }
	c.txWorker("one", pass, map[string]string{"transaction.timeout.ms": "60000", "linger.ms": "0"})
	c.once(5, nil)
}

// leaveOpen begins a transaction with an output and an offset in it, and does not end it.
func (c *cluster) leaveOpen(id string) {
	c.t.Helper()
	must := func(err error) {
		if c.t.Helper(); err != nil {
			c.t.Fatal(err)
		}
	}
	ctx := context.Background()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.fake.ListenAddrs()...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(err)
	defer cl.Close()
	must(cl.BeginTransaction())
	must(cl.ProduceSync(ctx, &kgo.Record{Topic: "out", Value: []byte("left")}).FirstErr())
	producer, epoch, err := cl.ProducerID(ctx)
	must(err)
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer, epoch, "g"
	added, err := add.RequestWith(ctx, cl)
	must(err)
	must(kerr.ErrorForCode(added.ErrorCode))
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group, commit.Generation = id, producer, epoch, "g", -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	details, err := c.admin.ListTopics(ctx, "in")
	must(err)
	topic.Topic, topic.TopicID = "in", details["in"].ID
	for partition := range int32(4) {
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = partition, 1
		topic.Partitions = append(topic.Partitions, p)
	}
	commit.Topics = append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, cl)
	must(err)
	for _, p := range committed.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			must(fmt.Errorf("partition %d: %w", p.Partition, err))
		}
	}
}
