package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

// begin is called with the committed offsets of newly assigned partitions, before they are fetched. It
// makes every start a number and tells the stream.
func (s *Source) begin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-s.opened
	starts := map[streammanager.TopicPartition]int64{}
	for topic, parts := range offsets {
		var missing []int32
		for p, o := range parts {
			if at := o.EpochOffset().Offset; at >= 0 {
				starts[streammanager.TopicPartition{Topic: topic, Partition: p}] = at
				continue
			}
			missing = append(missing, p)
		}
		if len(missing) == 0 {
			continue
		}
		found, err := s.startOf(ctx, topic, missing)
		if err != nil {
			s.setTrouble("start of "+topic, err)
			return nil, err
		}
		s.heal("start of " + topic)
		for p, at := range found {
			starts[streammanager.TopicPartition{Topic: topic, Partition: p}] = at
		}
	}
	for tp, at := range starts {
		offsets[tp.Topic][tp.Partition] = kgo.NewOffset().At(at)
	}
	if len(starts) > 0 {
		s.stream.Assigned(starts)
	}
	return offsets, nil
}

// startOf resolves `start` once per topic: the owner of partition 0 commits it for all partitions before
// it consumes, the others wait for that. A partition that is missing afterwards was added later and
// starts at its earliest record.
func (s *Source) startOf(ctx context.Context, topic string, missing []int32) (map[int32]int64, error) {
	for _, p := range missing {
		if p == 0 {
			return s.resolveStart(ctx, topic, missing)
		}
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		committed, err := s.admin.FetchOffsetsForTopics(ctx, s.cfg.Group, topic)
		if err == nil {
			if o, ok := committed.Lookup(topic, 0); ok && o.At >= 0 {
				break
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the start of topic %q to be resolved: %w", topic, ctx.Err())
		case <-time.After(wait):
		}
	}
	committed, err := s.admin.FetchOffsetsForTopics(ctx, s.cfg.Group, topic)
	if err != nil {
		return nil, fmt.Errorf("fetching the offsets of topic %q: %w", topic, err)
	}
	earliest, err := s.admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("listing the first offsets of topic %q: %w", topic, err)
	}
	found := map[int32]int64{}
	for _, p := range missing {
		if o, ok := committed.Lookup(topic, p); ok && o.At >= 0 {
			found[p] = o.At
		} else if o, ok := earliest.Lookup(topic, p); ok && o.Err == nil {
			found[p] = o.Offset
		} else {
			return nil, fmt.Errorf("topic %q partition %d has no first offset", topic, p)
		}
	}
	return found, nil
}

// resolveStart turns `start` into offsets and commits them for all partitions that have none.
func (s *Source) resolveStart(ctx context.Context, topic string, missing []int32) (map[int32]int64, error) {
	list := s.admin.ListStartOffsets
	if s.cfg.Start == Latest {
		list = s.admin.ListEndOffsets
	}
	offsets, err := list(ctx, topic)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("resolving start %q of topic %q: %w", s.cfg.Start, topic, err)
	}
	committed, err := s.admin.FetchOffsetsForTopics(ctx, s.cfg.Group, topic)
	if err != nil {
		return nil, fmt.Errorf("fetching the offsets of topic %q: %w", topic, err)
	}
	set := map[int32]kgo.EpochOffset{}
	for p, o := range offsets[topic] {
		if c, ok := committed.Lookup(topic, p); !ok || c.At < 0 {
			set[p] = kgo.EpochOffset{Epoch: -1, Offset: o.Offset}
		}
	}
	if err := s.commit(ctx, map[string]map[int32]kgo.EpochOffset{topic: set}); err != nil {
		return nil, fmt.Errorf("committing the start of topic %q: %w", topic, err)
	}
	found := map[int32]int64{}
	for _, p := range missing {
		found[p] = offsets[topic][p].Offset
	}
	return found, nil
}

// commit sends offsets as this member of the group.
func (s *Source) commit(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset) error {
	var result error
	s.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			result = err
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && result == nil {
					result = fmt.Errorf("topic %q partition %d: %w", t.Topic, p.Partition, err)
				}
			}
		}
	})
	for _, lost := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedInstanceID, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch} {
		if errors.Is(result, lost) {
			return fmt.Errorf("%w: %w", streammanager.ErrAssignmentLost, result)
		}
	}
	return result
}

func (s *Source) revoked(ctx context.Context, _ *kgo.Client, parts map[string][]int32) {
	tps := list(parts)
	if len(tps) == 0 {
		return
	}
	<-s.opened
	ctx, cancel := context.WithTimeout(ctx, s.revokeLimit)
	defer cancel()
	s.stream.Revoked(ctx, tps)
	s.client.ResumeFetchPartitions(parts)
}

func (s *Source) lost(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	if tps := list(parts); len(tps) > 0 {
		<-s.opened
		s.stream.Lost(tps)
		s.client.ResumeFetchPartitions(parts)
	}
}

func list(parts map[string][]int32) []streammanager.TopicPartition {
	var tps []streammanager.TopicPartition
	for topic, ps := range parts {
		for _, p := range ps {
			tps = append(tps, streammanager.TopicPartition{Topic: topic, Partition: p})
		}
	}
	return tps
}
