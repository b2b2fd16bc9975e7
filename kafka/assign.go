package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

// onAssigned notes what the group gave. The stream hears of it when the offsets are known.
func (s *Source) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	<-s.opened
	s.letGoUntold()
	if s.beyondThrough(added) {
		s.lookSoon()
	}
	if s.newcomer() {
		s.expel() // what it holds still may have been another's meanwhile
	}
	member, _ := s.cl.GroupMetadata()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined, s.member = true, member
	s.waits.Store(false)
	s.t.healed(trouble{kind: troubleGroup})
	for _, tp := range flat(added) {
		s.owned[tp] = struct{}{}
	}
}

// onOffsets turns what the group has committed into the offsets at which reading begins, and tells the
// stream. It returns an error only when ctx has ended, that is when the group is rebalancing again.
func (s *Source) onOffsets(ctx context.Context, fetched map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-s.opened
	starts := map[streammanager.TopicPartition]beginning{}
	for topic, parts := range fetched {
		committed := make(map[int32]int64, len(parts))
		for p, o := range parts {
			committed[p] = o.EpochOffset().Offset
		}
		if err := s.begin(ctx, topic, committed, starts); err != nil {
			return nil, err
		}
	}
	s.tell.Lock()
	defer s.tell.Unlock()
	if err := s.hold(starts, anyTime); err != nil {
		return nil, err
	}
	at := map[string]map[int32]kgo.Offset{}
	for tp, start := range starts {
		put(at, tp, kgo.NewOffset().At(start.Offset).WithEpoch(-1))
		if start.Offset >= s.endOf(start) {
			s.cl.PauseFetchPartitions(one(tp))
		}
	}
	s.wakeBounded()
	s.lookSoon() // so that it is known how far behind the partitions are
	return at, nil
}

// anyTime says of starts that they may have been looked up before this worker was last expelled.
const anyTime = -1

// hold tells the stream of partitions. What is stale remains so, unless the starts were looked up since the last of so many
// expulsions: by then others may have come further. The caller holds tell.
func (s *Source) hold(starts map[streammanager.TopicPartition]beginning, expels int) error {
	var before []streammanager.TopicPartition
	told := make(map[streammanager.TopicPartition]streammanager.Position, len(starts))
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return context.Canceled
	}
	for tp, start := range starts {
		h := &holding{start: start, next: start.Offset, seen: start.Offset, until: s.endOf(start), end: -1}
		if was := s.held[tp]; was != nil {
			before = append(before, tp)
			h.stale = was.stale && expels != s.expels
		}
		h.ended = h.next >= h.until
		s.held[tp] = h
		s.flow(tp) // the one before may have come to its end
		told[tp] = start.Position
	}
	s.mu.Unlock()
	if len(before) > 0 {
		s.a.Lost(before)
	}
	if len(told) > 0 {
		s.a.Assigned(told)
	}
	return nil
}

// onRevoked lets the stream finish what it can of the partitions, within the time that the group gives.
func (s *Source) onRevoked(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	<-s.opened
	s.tell.Lock()
	defer s.tell.Unlock()
	tps := s.known(lost)
	s.leave(tps)
	switch {
	case len(tps) == 0:
	case s.stale(tps) || s.newcomer(): // others may own them already, and no commit may be sent
		s.drop(lost)
		s.a.Lost(tps)
	default:
		limit := s.set.millis("max.poll.interval.ms") - 2*s.set.millis("heartbeat.interval.ms")
		ctx, cancel := context.WithTimeout(s.calls, limit)
		s.a.Revoked(ctx, tps)
		cancel()
	}
	s.drop(lost)
}

// onLost tells the stream that others own the partitions already.
func (s *Source) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	<-s.opened
	s.tell.Lock()
	defer s.tell.Unlock()
	tps := s.known(lost)
	// A commit that is under way must not be sent any more, so this goes first.
	s.drop(lost)
	if len(tps) > 0 {
		s.a.Lost(tps)
	}
	s.mu.Lock()
	s.joined = false
	s.mu.Unlock()
}

// known returns those of lost that the stream was told of; none while the source closes.
func (s *Source) known(lost map[string][]int32) []streammanager.TopicPartition {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tps []streammanager.TopicPartition
	for _, tp := range flat(lost) {
		if s.held[tp] != nil && !s.closing {
			tps = append(tps, tp)
		}
	}
	return tps
}

// leave notes that partitions are on their way to others: a bounded read has not ended before it is known who has them.
func (s *Source) leave(tps []streammanager.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tp := range tps {
		s.held[tp].leaving = true
	}
}

// stale reports whether the group has gone on without this worker.
func (s *Source) stale(tps []streammanager.TopicPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(tps, func(tp streammanager.TopicPartition) bool { return s.held[tp].stale })
}

// newcomer reports whether the group has taken this worker in as another member, and not yet told what it has as that.
func (s *Source) newcomer() bool {
	member, _ := s.cl.GroupMetadata()
	return s.isAnother(member)
}

// isAnother reports whether a member is another one than that to which the group last gave something.
func (s *Source) isAnother(member string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member != "" && s.member != member
}

// drop forgets partitions, and whatever held them up: given back later, they must flow.
func (s *Source) drop(lost map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tp := range flat(lost) {
		delete(s.owned, tp)
		delete(s.held, tp)
		delete(s.paused, tp)
		delete(s.resting, tp)
		s.t.healed(partitionTrouble(tp))
		s.t.healed(trouble{kind: troubleStart, about: tp.Topic})
	}
	s.cl.ResumeFetchPartitions(lost)
}

func flat(m map[string][]int32) []streammanager.TopicPartition {
	var tps []streammanager.TopicPartition
	for topic, parts := range m {
		for _, p := range parts {
			tps = append(tps, streammanager.TopicPartition{Topic: topic, Partition: p})
		}
	}
	return tps
}
