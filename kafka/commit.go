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

// commitAgain is how long a commit waits for a rebalance that is under way.
const commitAgain = 200 * time.Millisecond

// commit keeps offsets, as long as ctx allows. still is asked each time before they are sent.
func (s *Source) commit(ctx context.Context, offsets map[streammanager.TopicPartition]int64, still func() error) error {
	to := map[string]map[int32]kgo.EpochOffset{}
	for tp, at := range offsets {
		put(to, tp, kgo.EpochOffset{Epoch: -1, Offset: at})
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
	return failed
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
