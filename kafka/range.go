package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// outOfRange goes on where the policy says when an offset is no longer in the log, or not yet.
func (s *Source) outOfRange(ctx context.Context, tp streammanager.TopicPartition) error {
	s.mu.Lock()
	h := s.held[tp]
	var at, start int64
	if h != nil {
		at, start = h.next, h.start.Offset
	}
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	first, last, err := s.bounds(ctx, tp)
	if err != nil {
		_, _ = s.rest(tp, fmt.Errorf("the offset is out of range, and where to go on is not known: %w", err))
		return nil
	}
	to := first
	switch {
	case at >= first && at <= last:
		to = at // the log was cut or grew meanwhile
	case s.isThrough(tp.Topic):
		if at < first && s.finishedByOthers(ctx, tp, first) {
			return nil
		}
		return event.Fatal(fmt.Errorf("the repartition topic %q has lost events: group %q is at offset %d of partition %d, and the log holds %d to %d; "+
			"read the input again from an earlier offset, and commit %d here to go on", tp.Topic, s.cfg.Group, at, tp.Partition, first, last, first))
	case s.cfg.OutOfRange == Fail:
		return event.Fatal(fmt.Errorf("topic %q partition %d: offset %d is out of range: the log holds %d to %d; set out_of_range to go on regardless, or commit an offset for group %q",
			tp.Topic, tp.Partition, at, first, last, s.cfg.Group))
	case s.cfg.OutOfRange == Latest:
		to = last
	}
	if to > at {
		to = min(to, h.until)
	} else if to < at { // a bounded read has no part in what lies before it
		to = max(to, min(h.start.meta.span.from, last))
	}
	skipped := max(to-at, 0) - h.gap.overlap(at, to) // Poll alone sets it
	if !s.resume(tp, h, at, to) {
		return nil // it was taken away meanwhile; given again, it begins where the group says
	}
	if to != at {
		s.skipped.Add(skipped)
		s.t.log.Error("kafka: offset out of range, going on elsewhere", "topic", tp.Topic, "partition", tp.Partition,
			"offset", at, "first", first, "last", last, "resumed", to, "skipped", skipped)
	}
	if at == start && to > at {
		// Nothing was delivered, so nothing is unfinished. Without this a restart would skip once more.
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		if err := s.commit(ctx, map[streammanager.TopicPartition]beginning{tp: h.start.elsewhere(to)}, s.stillHeld(map[streammanager.TopicPartition]*holding{tp: h})); err != nil {
			s.t.log.Warn("kafka: commit of a skip failed", "topic", tp.Topic, "partition", tp.Partition, "offset", to, "err", err)
		}
	}
	return nil
}

// finishedByOthers reports whether what this worker has missed of the repartition topic, up to the first offset of the log,
// was committed: it stood still, another has finished it since and deleted it, and the group will tell. Until then the
// partition rests, as it does where that is not known.
func (s *Source) finishedByOthers(ctx context.Context, tp streammanager.TopicPartition, first int64) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := s.lookUp(ctx, tp.Topic)
	switch b, ok := found.parts[tp.Partition]; {
	case err != nil:
		_, _ = s.rest(tp, fmt.Errorf("the records there are deleted, and whether others have finished them is not known: %w", err))
	case !ok || b.Offset < first:
		return false
	default:
		_, _ = s.rest(tp, fmt.Errorf("other workers of group %q have gone on to offset %d meanwhile: this one goes on when the group has told it; should it not, start it again", s.cfg.Group, b.Offset))
	}
	return true
}

// resume goes on at another offset of a partition, unless it is no longer the assignment that h is of.
func (s *Source) resume(tp streammanager.TopicPartition, h *holding, at, to int64) bool {
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	same := s.held[tp] == h
	if same && to > at {
		h.gap = gap{at, to}
	}
	s.mu.Unlock()
	if !same {
		return false
	}
	if to < at { // records below those that the stream has seen would be taken for repeated ones
		_ = s.hold(map[streammanager.TopicPartition]beginning{tp: h.start.elsewhere(to)}, anyTime) // an error means that the source closes
	}
	s.setOffsets(map[streammanager.TopicPartition]int64{tp: to}, to <= at) // what was not there, the stream was not told of
	return true
}

// bounds returns the first offset of the log and the one after its last. The leader of the partition is asked and nobody else:
// another broker may be silent.
func (s *Source) bounds(ctx context.Context, tp streammanager.TopicPartition) (first, last int64, err error) {
	if first, err = s.boundOf(ctx, tp, theStart); err == nil {
		last, err = s.boundOf(ctx, tp, theEnd)
	}
	if err != nil {
		s.cl.ForceMetadataRefresh() // another broker may lead it by now
	}
	return first, last, err
}

// boundOf asks the leader of a partition for one end of its log.
func (s *Source) boundOf(ctx context.Context, tp streammanager.TopicPartition, which int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	leader, _, err := s.cl.PartitionLeader(tp.Topic, tp.Partition)
	if err != nil {
		return 0, err
	}
	if leader < 0 {
		return 0, errNoLeader
	}
	got, err := s.cl.Broker(int(leader)).RetriableRequest(ctx, listOffsets(allOfLog, which, one(tp)))
	if err != nil {
		return 0, fmt.Errorf("asking broker %d, which leads the partition: %w", leader, err)
	}
	for _, t := range got.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if t.Topic == tp.Topic && p.Partition == tp.Partition {
				return p.Offset, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return 0, fmt.Errorf("broker %d does not know the partition", leader)
}

// retell takes a partition from the stream and gives it again from another offset: records below those
// that it has seen would be taken for repeated ones.
func (s *Source) retell(tp streammanager.TopicPartition, at int64) {
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	h := s.held[tp]
	s.mu.Unlock()
	if h != nil {
		_ = s.hold(map[streammanager.TopicPartition]beginning{tp: h.start.elsewhere(at)}, anyTime) // an error means that the source closes
	}
}
