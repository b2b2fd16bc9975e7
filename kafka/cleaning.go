package kafka

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/a0c75104/enricher/streammanager"
)

const (
	// cleanEvery is the time between two looks for what can be deleted of the repartition topic.
	cleanEvery = 5 * time.Second
	// cleanAtLeast is how many records of a partition are worth a request, unless nothing more came lately.
	cleanAtLeast = 1000
	// lastClean bounds the last deleting, which a stop waits for.
	lastClean = 2 * time.Second
)

// noteCommitted remembers up to where the repartition topic is finished.
func (s *Source) noteCommitted(positions map[streammanager.TopicPartition]streammanager.Position) {
	if s.cfg.Repartition == nil {
		return
	}
	s.through.mu.Lock()
	defer s.through.mu.Unlock()
	for tp, pos := range positions {
		if s.isThrough(tp.Topic) {
			if s.through.committed == nil {
				s.through.committed = map[streammanager.TopicPartition]int64{}
			}
			s.through.committed[tp] = pos.Offset
		}
	}
}

// deletable returns up to where the partitions that this worker holds can be deleted. At last that is all that is finished,
// also what was so when it was begun.
func (s *Source) deletable(last bool) map[streammanager.TopicPartition]int64 {
	held := map[streammanager.TopicPartition]int64{}
	s.mu.Lock()
	for tp, h := range s.held {
		if s.isThrough(tp.Topic) {
			held[tp] = h.start.Offset
		}
	}
	s.mu.Unlock()
	th := &s.through
	th.mu.Lock()
	defer th.mu.Unlock()
	below := map[streammanager.TopicPartition]int64{}
	for tp, start := range held {
		at, ok := th.committed[tp]
		if last && !ok {
			at, ok = start, true
		}
		more := at - th.deleted[tp]
		if ok && more > 0 && (last || more >= cleanAtLeast || at == th.before[tp]) {
			below[tp] = at
		}
	}
	th.before = maps.Clone(th.committed)
	return below
}

// clean deletes records of the repartition topic that are finished: never past what was committed.
func (s *Source) clean(ctx context.Context, last bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	offsets := kadm.Offsets{}
	for tp, at := range s.deletable(last) {
		below := at
		if floor := s.cfg.Repartition.Floor; floor != nil {
			f, err := floor(ctx, tp, at)
			if err != nil {
				s.t.log.Debug("kafka: nothing is deleted of the repartition topic: what is still needed is not known", "partition", tp.Partition, "err", err)
				continue
			}
			below = min(f, at)
		}
		if below > 0 {
			offsets.AddOffset(tp.Topic, tp.Partition, below, -1)
		}
	}
	if len(offsets) == 0 {
		return
	}
	answers, err := s.adm.DeleteRecords(ctx, offsets)
	th := &s.through
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.deleted == nil {
		th.deleted = map[streammanager.TopicPartition]int64{}
	}
	for _, a := range answers.Sorted() {
		if a.Err == nil || errors.Is(a.Err, kerr.OffsetOutOfRange) {
			o, _ := offsets.Lookup(a.Topic, a.Partition)
			th.deleted[streammanager.TopicPartition{Topic: a.Topic, Partition: a.Partition}] = o.At
			continue
		}
		err = a.Err
	}
	if err != nil && !th.denied && ctx.Err() == nil {
		th.denied = errors.Is(err, kerr.TopicAuthorizationFailed)
		s.t.log.Warn("kafka: finished records of the repartition topic were not deleted, it grows: grant Delete on it where that is missing", "topic", s.cfg.Repartition.Topic, "err", err)
	}
}

// cleanLast deletes what is finished when the source closes: nobody may come who would do it later, as after a bounded read.
func (s *Source) cleanLast(ctx context.Context) {
	if s.cfg.Repartition == nil || s.refusal() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastClean)
	defer cancel()
	s.clean(ctx, true)
}
