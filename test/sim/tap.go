package sim

import (
	"context"
	"errors"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// source lets the ledger see what a worker's source tells and is told.
type source struct {
	*kafka.Source
	b *books
}

// assignments stands between the source and the stream.
type assignments struct {
	inner streammanager.Assignments
	b     *books
}

var (
	_ streammanager.Committer = (*source)(nil)
	_ streammanager.Rewinder  = (*source)(nil)
	_ streammanager.Pauser    = (*source)(nil)
	_ streammanager.Health    = (*source)(nil)
	_ streammanager.Buffered  = (*source)(nil)
)

// Open implements streammanager.Source.
func (s *source) Open(ctx context.Context, a streammanager.Assignments) error {
	return s.Source.Open(ctx, &assignments{inner: a, b: s.b})
}

// Poll implements streammanager.Source.
func (s *source) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	got, err := s.Source.Poll(ctx, limit)
	s.b.polled(got.Records, limit)
	return got, err
}

// polled notes what a poll gave.
func (b *books) polled(records []streammanager.Record, limit int) {
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	n := 0
	for i := range records {
		if records[i].Marker {
			continue
		}
		n++
		if !b.light {
			b.read(ID{records[i].Partition, records[i].Offset})
		}
	}
	if n > limit {
		b.l.breach("%s: a poll for %d records gave %d", b.name, limit, n)
	}
}

// Rewind implements streammanager.Rewinder.
func (s *source) Rewind(offsets map[streammanager.TopicPartition]int64) {
	s.b.setBack(offsets)
	s.Source.Rewind(offsets)
}

// setBack notes that the stream goes back.
func (b *books) setBack(offsets map[streammanager.TopicPartition]int64) {
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	for tp, offset := range offsets {
		if !b.light {
			b.rewound(tp.Partition, offset)
		}
	}
}

// Commit implements streammanager.Committer. It checks that the worker still owns what it commits and
// that no position goes back.
func (s *source) Commit(ctx context.Context, positions map[streammanager.TopicPartition]streammanager.Position) error {
	if s.b.light {
		return s.Source.Commit(ctx, positions)
	}
	l := s.b.l
	l.mu.Lock()
	before := map[int32]int64{}
	for tp, at := range positions {
		before[tp.Partition] = l.committed[tp.Partition]
		l.note("%s commits %d at %d %v", s.b.name, tp.Partition, at.Offset, at.Finished)
		if s.b.committing[tp.Partition] {
			l.breach("%s commits %d while a commit of it is under way: they may overtake each other", s.b.name, tp.Partition)
		}
		s.b.committing[tp.Partition] = true
		if !s.b.dead {
			l.claims(s.b.name, tp.Partition, at)
		}
		if s.b.parts[tp.Partition] == nil && !s.b.dead {
			l.breach("%s commits partition %d, which it does not own", s.b.name, tp.Partition)
		}
	}
	l.mu.Unlock()
	err := s.Source.Commit(ctx, positions)
	l.mu.Lock()
	defer l.mu.Unlock()
	for tp := range positions {
		delete(s.b.committing, tp.Partition)
	}
	if err != nil {
		l.note("%s commit failed: %v", s.b.name, err)
		return err
	}
	for tp, at := range positions {
		if at.Offset < before[tp.Partition] {
			l.breach("%s lowered the position of partition %d from %d to %d", s.b.name, tp.Partition, before[tp.Partition], at.Offset)
		}
		l.committed[tp.Partition] = max(l.committed[tp.Partition], at.Offset)
	}
	return nil
}

// Assigned implements streammanager.Assignments.
func (a *assignments) Assigned(starts map[streammanager.TopicPartition]streammanager.Position) {
	a.b.l.mu.Lock()
	for tp, start := range starts {
		a.b.l.note("%s is given %s/%d from %d", a.b.name, tp.Topic, tp.Partition, start.Offset)
		if !a.b.light {
			a.b.assigned(tp.Partition, start)
		}
	}
	a.b.l.mu.Unlock()
	a.inner.Assigned(starts)
}

// Revoked implements streammanager.Assignments.
func (a *assignments) Revoked(ctx context.Context, tps []streammanager.TopicPartition) {
	a.b.l.mu.Lock()
	for _, tp := range tps {
		if o := a.b.parts[tp.Partition]; o != nil {
			o.revoking = true
		}
		a.b.l.note("%s is to give %s/%d back", a.b.name, tp.Topic, tp.Partition)
	}
	a.b.disturbed = time.Now() // what waits of them is let go at once
	a.b.l.mu.Unlock()
	a.inner.Revoked(ctx, tps)
	a.b.l.mu.Lock()
	defer a.b.l.mu.Unlock()
	for _, tp := range tps {
		a.b.letGo(tp.Partition, "gave back")
	}
}

// Lost implements streammanager.Assignments.
func (a *assignments) Lost(tps []streammanager.TopicPartition) {
	a.b.l.mu.Lock()
	a.b.disturbed = time.Now()
	a.b.l.mu.Unlock()
	a.inner.Lost(tps)
	a.b.l.mu.Lock()
	defer a.b.l.mu.Unlock()
	for _, tp := range tps {
		a.b.letGo(tp.Partition, "lost")
	}
}

// sink lets the ledger see what a worker's sink is sent and answers.
type sink struct {
	*kafka.Sink
	b      *books
	failed bool // the error sink
}

var (
	_ streammanager.Preparer = (*sink)(nil)
	_ streammanager.Checker  = (*sink)(nil)
	_ streammanager.Health   = (*sink)(nil)
	_ streammanager.Buffered = (*sink)(nil)
	_ streammanager.Single   = (*sink)(nil)
)

// Produce implements streammanager.Sink.
func (s *sink) Produce(ctx context.Context, r *streammanager.Record, done func(error)) {
	id, ok := idOf(r.Headers)
	s.b.l.mu.Lock()
	if !ok {
		s.b.l.breach("%s sends a record without its headers: %v", s.b.name, r.Headers)
	}
	h := s.b.sending(id, s.failed)
	s.b.l.mu.Unlock()
	s.Sink.Produce(ctx, r, func(err error) {
		s.answered(id, h, err)
		done(err)
	})
}

func (s *sink) answered(id ID, h *holding, err error) {
	s.b.l.mu.Lock()
	defer s.b.l.mu.Unlock()
	if err == nil {
		s.b.acked(id, h, s.failed)
		return
	}
	s.b.l.note("%s: %v was not written: %v", s.b.name, id, err)
	var r *event.RejectError
	own := errors.As(err, &r)
	if in := s.b.l.plan.byID[id]; own && !s.b.dead && (in == nil || !in.poison) {
		s.b.l.breach("%s: %v is refused for its own fault: %v", s.b.name, id, err)
	}
	s.b.l.refused[id] = s.b.l.refused[id] || !own && !s.failed
}
