package sim

import (
	"context"
	"maps"

	"github.com/a0c75104/enricher/streammanager"
)

// transactional is what the source of a transaction can do.
type transactional interface {
	streammanager.Source
	streammanager.Transactor
	streammanager.Committer
	streammanager.Rewinder
	streammanager.Pauser
	streammanager.Settler
	streammanager.Health
	streammanager.Buffered
	streammanager.Skipper
	streammanager.Ender
	streammanager.Staller
}

// boundSource lets the ledger see what the source of a transaction tells and is told.
type boundSource struct {
	transactional
	b *books
}

var _ transactional = (*boundSource)(nil)

// Open implements streammanager.Source.
func (s *boundSource) Open(ctx context.Context, a streammanager.Assignments) error {
	return s.transactional.Open(ctx, &assignments{inner: a, b: s.b})
}

// Poll implements streammanager.Source.
func (s *boundSource) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	got, err := s.transactional.Poll(ctx, limit)
	s.b.polled(got.Records, limit)
	return got, err
}

// Rewind implements streammanager.Rewinder.
func (s *boundSource) Rewind(offsets map[streammanager.TopicPartition]int64) {
	s.b.setBack(offsets)
	s.transactional.Rewind(offsets)
}

// End implements streammanager.Transactor. What was finished in the transaction is so only once it is committed.
func (s *boundSource) End(ctx context.Context, commit bool, positions map[streammanager.TopicPartition]streammanager.Position) (bool, error) {
	l := s.b.l
	if commit {
		l.mu.Lock()
		s.b.binds(positions)
		l.mu.Unlock()
	}
	committed, err := s.transactional.End(ctx, commit, positions)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("%s ends a transaction (commit %v) with %v: %v %v", s.b.name, commit, positions, committed, err)
	if committed {
		l.count("transaction committed")
		for id := range s.b.pending {
			l.finish(id)
		}
		for tp, at := range positions {
			if !s.b.light {
				l.committed[tp.Partition] = max(l.committed[tp.Partition], at.Offset)
			}
		}
	} else {
		l.count("transaction aborted")
		if commit {
			maps.Copy(l.doubtful, s.b.pending)
		}
	}
	clear(s.b.pending)
	return committed, err
}

// binds checks positions on their way into a transaction: all before them must be finished, in it or before it.
func (b *books) binds(positions map[streammanager.TopicPartition]streammanager.Position) {
	if b.dead || b.light {
		return
	}
	for tp, at := range positions {
		b.l.note("%s binds %d at %d %v", b.name, tp.Partition, at.Offset, at.Finished)
		if b.parts[tp.Partition] == nil {
			b.l.breach("%s commits partition %d, which it does not own", b.name, tp.Partition)
		}
		if len(at.Finished) > 0 {
			b.l.breach("%s commits partition %d with events that are finished beyond its offset in a transaction: %v", b.name, tp.Partition, at.Finished)
		}
		for o := b.l.after(tp.Partition, b.l.committed[tp.Partition]); o < at.Offset; o = b.l.after(tp.Partition, o+1) {
			if id := (ID{tp.Partition, o}); !b.l.finished[id] && !b.pending[id] {
				b.l.breach("%s commits partition %d at %d in a transaction, but %v is not finished", b.name, tp.Partition, at.Offset, id)
			}
		}
	}
}

// settles notes what the group has committed of a partition. A transaction may have been committed although its worker
// was told nothing of it, and a bounded read that is at its end has no other worker that begins where it left off.
func (l *Ledger) settles(partition int32, committed int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.doubtful {
		if id.Partition == partition && id.Offset < committed && !l.finished[id] {
			l.note("%v is finished: %d is committed, of which its worker was told nothing", id, committed)
			l.finish(id)
		}
	}
}
