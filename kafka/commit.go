package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

// commitAgain is how long a commit waits for a rebalance that is under way.
const commitAgain = 200 * time.Millisecond

// commit keeps positions, as long as ctx allows. still is asked each time before they are sent.
func (s *Source) commit(ctx context.Context, positions map[streammanager.TopicPartition]streammanager.Position, still func() error) error {
	to := map[string]map[int32]kgo.EpochOffset{}
	for tp, at := range positions {
		put(to, tp, kgo.EpochOffset{Epoch: -1, Offset: at.Offset})
	}
	for {
		if err := still(); err != nil {
			return err
		}
		err := s.send(ctx, to, still)
		if !errors.Is(err, kerr.RebalanceInProgress) {
			return err
		}
		if !pause(ctx, commitAgain) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (s *Source) send(ctx context.Context, to map[string]map[int32]kgo.EpochOffset, still func() error) error {
	var failed error
	ctx = kgo.PreCommitFnContext(ctx, func(*kmsg.OffsetCommitRequest) error { return still() })
	s.cl.CommitOffsetsSync(ctx, to, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil || resp == nil {
			failed = err
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && failed == nil {
					failed = fmt.Errorf("topic %q partition %d: %w", t.Topic, p.Partition, commitError(err))
				}
			}
		}
	})
	if errors.Is(failed, streammanager.ErrAssignmentLost) && still() == nil {
		s.expel()
	}
	return failed
}

// expel notes that the group has gone on without this worker: what it holds may be another's by now, and
// nothing may be committed for it. The library joins again at once but keeps what it held without a word,
// so that Poll has to begin anew.
func (s *Source) expel() {
	s.expelled.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		h.stale = true
	}
	if s.wake != nil {
		s.wake()
	}
}

// beginAnew takes stale partitions from the stream and gives them again from where the group has committed.
func (s *Source) beginAnew(ctx context.Context) error {
	starts, topics := map[streammanager.TopicPartition]streammanager.Position{}, map[string]struct{}{}
	s.mu.Lock()
	for tp, h := range s.held {
		if h.stale {
			starts[tp] = streammanager.Position{Offset: h.start}
			topics[tp.Topic] = struct{}{}
		}
	}
	s.mu.Unlock()
	if len(starts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := s.adm.FetchOffsetsForTopics(ctx, s.cfg.Group, slices.Collect(maps.Keys(topics))...)
	if err == nil {
		err = found.Error()
	}
	if err != nil {
		return fmt.Errorf("fetching the committed offsets of group %q: %w", s.cfg.Group, err)
	}
	for tp := range starts {
		if o, ok := found.Lookup(tp.Topic, tp.Partition); ok && o.At >= 0 {
			starts[tp] = streammanager.Position{Offset: o.At}
		}
	}
	s.tell.Lock()
	s.mu.Lock()
	maps.DeleteFunc(starts, func(tp streammanager.TopicPartition, _ streammanager.Position) bool {
		return s.held[tp] == nil || !s.held[tp].stale
	})
	s.mu.Unlock()
	err = s.hold(starts)
	s.tell.Unlock()
	if err == nil { // an error means that the source closes
		s.Rewind(offsets(starts))
		s.t.log.Warn("kafka: the group went on without this worker, which begins anew", "partitions", len(starts))
	}
	return nil
}

// commitError tells apart what means that the group has gone on without this worker.
func commitError(err error) error {
	for _, fatal := range []error{
		kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedInstanceID, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch,
	} {
		if errors.Is(err, fatal) {
			return fmt.Errorf("%w: %w", streammanager.ErrAssignmentLost, err)
		}
	}
	return err
}

// offsets returns positions without what is finished beyond them.
func offsets(positions map[streammanager.TopicPartition]streammanager.Position) map[streammanager.TopicPartition]int64 {
	at := make(map[streammanager.TopicPartition]int64, len(positions))
	for tp, p := range positions {
		at[tp] = p.Offset
	}
	return at
}
