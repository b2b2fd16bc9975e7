package kafka

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

// peekBytes is how much of a partition is looked at.
const peekBytes = 64 << 10

// peek asks the leader of a partition, beside the library's own reading, whether there is a record at or behind an
// offset. That the log ends later does not say so: compaction leaves batches without records.
func (s *Source) peek(ctx context.Context, topics kadm.TopicDetails, tp streammanager.TopicPartition, from int64) (bool, error) {
	td := topics[tp.Topic]
	p, ok := td.Partitions[tp.Partition]
	if !ok || p.Leader < 0 {
		return false, errNoLeader
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = tp.Partition, from, peekBytes
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = tp.Topic, td.ID, []kmsg.FetchRequestTopicPartition{part}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch, req.IsolationLevel, req.Topics = peekBytes, -1, s.isolation(), []kmsg.FetchRequestTopic{topic}
	got, err := s.cl.Broker(int(p.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return false, fmt.Errorf("looking at topic %q partition %d: %w", tp.Topic, tp.Partition, err)
	}
	for _, t := range got.(*kmsg.FetchResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return false, fmt.Errorf("looking at topic %q partition %d: %w", tp.Topic, tp.Partition, err)
			}
			if recordIn(p.RecordBatches, from) {
				return true, nil
			}
		}
	}
	return false, nil
}

// Places of fields in a batch of records, version 2.
const (
	batchLength    = 8
	batchLastDelta = 23
	batchRecords   = 57
	batchHeader    = 61
)

// recordIn reports whether batches hold a record at or behind from. The last of them may be cut off.
func recordIn(batches []byte, from int64) bool {
	for len(batches) >= batchHeader {
		last := int64(binary.BigEndian.Uint64(batches)) + int64(int32(binary.BigEndian.Uint32(batches[batchLastDelta:])))
		if last >= from && int32(binary.BigEndian.Uint32(batches[batchRecords:])) > 0 {
			return true
		}
		size := int64(int32(binary.BigEndian.Uint32(batches[batchLength:]))) + batchLength + 4
		if size < batchHeader || size > int64(len(batches)) {
			return false
		}
		batches = batches[size:]
	}
	return false
}
