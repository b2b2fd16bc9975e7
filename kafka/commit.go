package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

// commitAgain is how long a commit waits for a rebalance that is under way.
const commitAgain = 200 * time.Millisecond

// commit keeps positions, as long as ctx allows. still is asked each time before they are sent.
func (s *Source) commit(ctx context.Context, positions map[streammanager.TopicPartition]beginning, still func() error) error {
	var last error // that a broker said
	for {
		if err := still(); err != nil {
			return err
		}
		err := s.send(ctx, positions, still)
		room := s.room.Load()
		switch {
		case errors.Is(err, kerr.OffsetMetadataTooLarge) && room > 0:
			s.room.CompareAndSwap(room, room/2) // these brokers take less than others: say less, and go on
			continue
		case !errors.Is(err, kerr.RebalanceInProgress):
			if ctx.Err() != nil && last != nil {
				err = errors.Join(err, last) // what the time went by with
			}
			return err
		}
		last = err
		if !pause(ctx, commitAgain) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// errNewcomer holds up a commit. The library, when the group has forgotten its member, joins as another and keeps what it
// held: the group would take a commit then for what others have, until the library has heard so.
var errNewcomer = fmt.Errorf("joining the group as another member: %w", kerr.RebalanceInProgress)

func (s *Source) send(ctx context.Context, positions map[streammanager.TopicPartition]beginning, still func() error) error {
	to := map[string]map[int32]kgo.EpochOffset{}
	for tp, b := range positions {
		put(to, tp, kgo.EpochOffset{Epoch: -1, Offset: b.Offset})
	}
	var failed error
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		s.annotate(req, positions)
		if s.isAnother(req.MemberID) {
			return errNewcomer
		}
		return still()
	})
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

// annotate writes beside each offset what else is known of its position. The request may hold older offsets
// than positions, of which that would not be true.
func (s *Source) annotate(req *kmsg.OffsetCommitRequest, positions map[streammanager.TopicPartition]beginning) {
	room := int(s.room.Load())
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			p := &req.Topics[i].Partitions[j]
			b, ok := positions[streammanager.TopicPartition{Topic: req.Topics[i].Topic, Partition: p.Partition}]
			p.Metadata = nil // the library writes its member id there
			if ok && b.Offset == p.Offset {
				p.Metadata = b.beside(room)
			}
		}
	}
}

// beside is the text that is committed with b, nil for none.
func (b beginning) beside(room int) *string {
	if room <= 0 && !b.meta.needed() {
		return nil
	}
	text := b.text(room)
	return &text
}

// expel notes that the group has gone on without this worker: what it holds may be another's by now, and
// nothing may be committed for it. The library joins again at once but keeps what it held without a word,
// so that Poll has to begin anew.
func (s *Source) expel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expelled.Store(true) // together with what is stale: Poll would find nothing to begin anew, and not look again
	s.expels++
	for _, h := range s.held {
		h.stale = true
	}
	if s.wake != nil {
		s.wake()
	}
}

// beginAnew takes stale partitions from the stream and gives them again from where the group has committed.
func (s *Source) beginAnew(ctx context.Context) error {
	starts, topics := map[streammanager.TopicPartition]beginning{}, map[string]struct{}{}
	s.mu.Lock()
	expels := s.expels
	for tp, h := range s.held {
		if h.stale {
			starts[tp] = h.start.elsewhere(h.start.Offset)
			topics[tp.Topic] = struct{}{}
		}
	}
	s.mu.Unlock()
	if len(starts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	for topic := range topics {
		found, err := s.lookUp(ctx, topic)
		if err != nil {
			return err
		}
		for tp := range starts {
			if b, ok := found.parts[tp.Partition]; ok && tp.Topic == topic {
				starts[tp] = b
			}
		}
	}
	s.tell.Lock()
	s.mu.Lock()
	maps.DeleteFunc(starts, func(tp streammanager.TopicPartition, _ beginning) bool {
		return s.held[tp] == nil || !s.held[tp].stale
	})
	s.mu.Unlock()
	err := s.hold(starts, expels)
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
func offsets(positions map[streammanager.TopicPartition]beginning) map[streammanager.TopicPartition]int64 {
	at := make(map[streammanager.TopicPartition]int64, len(positions))
	for tp, p := range positions {
		at[tp] = p.Offset
	}
	return at
}
