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

// transactSource is the source of a Transaction.
type transactSource struct {
	*Source
	t *Transaction
}

var (
	_ streammanager.Transactor = (*transactSource)(nil)
	_ streammanager.Rewinder   = (*transactSource)(nil)
)

// endAgain is how long an end that failed waits for the next try.
const endAgain = 500 * time.Millisecond

// TransactionTimeout implements streammanager.Transactor.
func (s *transactSource) TransactionTimeout() time.Duration { return s.t.Timeout() }

// Begin implements streammanager.Transactor.
func (s *transactSource) Begin(context.Context) error {
	if err := s.t.session.Begin(); err != nil {
		return s.t.explain(err)
	}
	now := time.Now()
	s.t.begun.Store(&now)
	return nil
}

// commitBy is until when a commit of the transaction under way is waited for. A quarter of its time is left to abort it:
// once the brokers have done so by themselves, this client can begin no other. The library waits with a commit for
// as long as a rebalance takes.
func (t *Transaction) commitBy() time.Time {
	begun := time.Now()
	if at := t.begun.Load(); at != nil {
		begun = *at
	}
	return begun.Add(t.Timeout() * 3 / 4)
}

// End implements streammanager.Transactor.
func (s *transactSource) End(ctx context.Context, commit bool, positions map[streammanager.TopicPartition]streammanager.Position) (bool, error) {
	about, wanted := trouble{kind: troubleTransaction, about: s.t.id}, commit
	ctx = kgo.PreTxnCommitFnContext(ctx, s.place(positions))
	for {
		within, stop := ctx, context.CancelFunc(func() {})
		if commit {
			within, stop = context.WithDeadline(ctx, s.t.commitBy())
		}
		committed, err := s.t.session.End(within, kgo.TransactionEndTry(commit))
		late := within.Err() != nil
		stop()
		switch {
		case err == nil && committed:
			s.Source.t.healed(about)
			s.noteCommitted(positions)
			return true, nil
		case err == nil:
			if wanted {
				// It may have been committed all the same, where an answer was lost: the group knows.
				s.expel()
			}
			return false, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case hopeless(err):
			return false, s.t.explain(err)
		}
		switch room := s.room.Load(); {
		case errors.Is(err, streammanager.ErrAssignmentLost):
		case late:
			s.Source.t.note(about, fmt.Errorf("transactional id %q: its end took three quarters of transaction.timeout.ms, as in a long rebalance; it is aborted and read again: %w", s.t.id, err))
		case errors.Is(err, kerr.OffsetMetadataTooLarge) && room > 0:
			s.room.CompareAndSwap(room, room/2) // these brokers take less than others: say less the next time
		default:
			s.Source.t.note(about, s.t.explain(err))
		}
		commit = false
		if !pause(ctx, endAgain) {
			return false, ctx.Err()
		}
	}
}

// place has exactly positions committed. The library would commit all that was polled.
func (s *transactSource) place(positions map[streammanager.TopicPartition]streammanager.Position) func(*kmsg.TxnOffsetCommitRequest) error {
	all, still := s.ofMine(positions)
	room := int(s.room.Load())
	return func(req *kmsg.TxnOffsetCommitRequest) error {
		if s.isAnother(req.MemberID) {
			return errNewcomer
		}
		if err := still(); err != nil {
			return err
		}
		ids := map[string][16]byte{}
		for _, t := range req.Topics {
			ids[t.Topic] = t.TopicID
		}
		req.Topics = nil
		at := map[string]int{}
		for tp, b := range all {
			i, ok := at[tp.Topic]
			if !ok {
				t := kmsg.NewTxnOffsetCommitRequestTopic()
				t.Topic, t.TopicID = tp.Topic, ids[tp.Topic]
				i = len(req.Topics)
				at[tp.Topic] = i
				req.Topics = append(req.Topics, t)
			}
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, b.Offset, -1, b.beside(room)
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
		}
		return nil
	}
}

// hopeless reports whether this client can end or begin no further transaction.
func hopeless(err error) bool {
	for _, end := range []error{
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState,
		kerr.TransactionalIDAuthorizationFailed, kerr.TransactionCoordinatorFenced, kgo.ErrClientClosed,
	} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// takenOver reports whether the brokers take this client for one whose place another has.
func takenOver(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping)
}

// explain adds what to do.
func (t *Transaction) explain(err error) error {
	switch {
	case takenOver(err):
		return fmt.Errorf("transactional id %q was taken over: another worker uses it (give each worker an instance or transactional_id of its own), or this one stood still for longer than transaction.timeout.ms: %w",
			t.id, err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return fmt.Errorf("this user has no right to transactional id %q: grant it Write and Describe there: %w", t.id, err)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("this user has no right to commit for the group: grant it Read there: %w", err)
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return fmt.Errorf("the brokers take no transaction.timeout.ms of %d: lower it, or raise their transaction.max.timeout.ms: %w", t.Timeout().Milliseconds(), err)
	}
	return fmt.Errorf("transactional id %q: %w", t.id, err)
}
