package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

// maxRevoke bounds how long work of lost partitions is waited for.
const maxRevoke = 10 * time.Second

// onAssigned notes what the group gave. The stream hears of it when the offsets are known.
func (s *Source) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	<-s.opened
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	s.t.healed(trouble{kind: troubleGroup})
	for _, tp := range flat(added) {
		s.owned[tp] = struct{}{}
	}
}

// onOffsets turns what the group has committed into the offsets at which reading begins, and tells the
// stream. It returns an error only when ctx has ended, that is when the group is rebalancing again.
func (s *Source) onOffsets(ctx context.Context, fetched map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-s.opened
	starts := map[streammanager.TopicPartition]streammanager.Position{}
	missing := map[string][]int32{}
	for topic, parts := range fetched {
		for p, o := range parts {
			if at := o.EpochOffset().Offset; at >= 0 {
				starts[streammanager.TopicPartition{Topic: topic, Partition: p}] = streammanager.Position{Offset: at}
			} else {
				missing[topic] = append(missing[topic], p)
			}
		}
	}
	for topic, parts := range missing {
		if err := s.begin(ctx, topic, parts, starts); err != nil {
			return nil, err
		}
	}
	s.tell.Lock()
	defer s.tell.Unlock()
	if err := s.hold(starts); err != nil {
		return nil, err
	}
	at := map[string]map[int32]kgo.Offset{}
	for tp, start := range starts {
		put(at, tp, kgo.NewOffset().At(start.Offset).WithEpoch(-1))
	}
	return at, nil
}

// hold tells the stream of partitions. The caller holds tell.
func (s *Source) hold(starts map[streammanager.TopicPartition]streammanager.Position) error {
	var before []streammanager.TopicPartition
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return context.Canceled
	}
	for tp, start := range starts {
		if s.held[tp] != nil {
			before = append(before, tp)
		}
		s.held[tp] = &holding{start: start.Offset, next: start.Offset}
	}
	s.mu.Unlock()
	if len(before) > 0 {
		s.a.Lost(before)
	}
	if len(starts) > 0 {
		s.a.Assigned(starts)
	}
	return nil
}

// onRevoked lets the stream finish what it can of the partitions, within the time that the group gives.
func (s *Source) onRevoked(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	<-s.opened
	s.tell.Lock()
	defer s.tell.Unlock()
	tps := s.known(lost)
	switch {
	case len(tps) == 0:
	case s.stale(tps): // others may own them already, and no commit would be sent
		s.drop(lost)
		s.a.Lost(tps)
	default:
		limit := s.set.millis("max.poll.interval.ms") - 2*s.set.millis("heartbeat.interval.ms")
		ctx, cancel := context.WithTimeout(s.calls, min(maxRevoke, limit))
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

// stale reports whether the group has gone on without this worker.
func (s *Source) stale(tps []streammanager.TopicPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(tps, func(tp streammanager.TopicPartition) bool { return s.held[tp].stale })
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

// slowStart is after how long an unsettled start is worth a warning.
const slowStart = 30 * time.Second

// begin finds where partitions begin for which the group has committed nothing. The owner of partition
// 0 settles that for the whole topic at once; the others wait for it. Otherwise two workers would resolve
// "latest" at different times, and what was written in between would be lost to the group.
func (s *Source) begin(ctx context.Context, topic string, parts []int32, starts map[streammanager.TopicPartition]streammanager.Position) error {
	about, since, wait := trouble{kind: troubleStart, about: topic}, time.Now(), 100*time.Millisecond
	for {
		found, err := s.settle(ctx, topic)
		if err == nil && found != nil {
			for _, p := range parts {
				starts[streammanager.TopicPartition{Topic: topic, Partition: p}] = streammanager.Position{Offset: found[p]}
			}
			s.t.healed(about)
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the worker that owns partition 0 of topic %q has not settled its start yet", topic)
		}
		if time.Since(since) > slowStart {
			s.t.note(about, err)
		}
		if !pause(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// settle returns where each partition of a topic begins: where the group has committed, else, once
// any partition of the topic was begun, at its earliest record, since it was added later. Where none was
// begun, the owner of partition 0 commits all of them; anybody else gets nil and asks again.
func (s *Source) settle(ctx context.Context, topic string) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	committed, err := s.adm.FetchOffsetsForTopics(ctx, s.cfg.Group, topic)
	if err == nil {
		err = committed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("fetching the committed offsets of topic %q: %w", topic, err)
	}
	found, begun := map[int32]int64{}, false
	for p, o := range committed[topic] {
		if o.At >= 0 {
			found[p], begun = o.At, true
		}
	}
	if !begun && !s.owns(streammanager.TopicPartition{Topic: topic}) {
		return nil, nil
	}
	if begun || s.cfg.Start == Earliest || s.madeAgain(ctx, topic) {
		err = s.list(ctx, s.adm.ListStartOffsets, topic, found)
	} else {
		err = s.list(ctx, s.adm.ListEndOffsets, topic, found)
	}
	if err != nil || begun {
		return found, err
	}
	all := make(map[streammanager.TopicPartition]streammanager.Position, len(found))
	for p, at := range found {
		all[streammanager.TopicPartition{Topic: topic, Partition: p}] = streammanager.Position{Offset: at}
	}
	if err := s.commit(ctx, all, func() error { return nil }); err != nil {
		return nil, fmt.Errorf("committing the start of topic %q: %w", topic, err)
	}
	s.t.log.Info("kafka: topic begun", "topic", topic, "partitions", len(all), "start", s.cfg.Start)
	return found, nil
}

// list adds the offsets that ask finds for partitions that are not in found.
func (s *Source) list(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error), topic string, found map[int32]int64) error {
	listed, err := ask(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return fmt.Errorf("listing the offsets of topic %q: %w", topic, err)
	}
	for p, o := range listed[topic] {
		if _, ok := found[p]; !ok {
			found[p] = o.Offset
		}
	}
	return nil
}

func (s *Source) owns(tp streammanager.TopicPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.owned[tp]
	return ok
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
