package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// beginning is where a partition is read from, and what every commit of it says beside the offset.
type beginning struct {
	streammanager.Position
	meta metadata
	anew bool // what is committed is of a topic that had the name before
}

// elsewhere is a beginning at another offset of the same partition, where nothing is known of what is finished beyond.
func (b beginning) elsewhere(offset int64) beginning {
	b.Position = streammanager.Position{Offset: offset}
	return b
}

// text is what is committed beside the offset.
func (b beginning) text(room int) string {
	b.meta.at, b.meta.finished = b.Offset, b.Finished
	return b.meta.text(room)
}

// progress is what the group has committed of a topic.
type progress struct {
	id      kadm.TopicID
	parts   map[int32]beginning // of what is committed
	missing []int32
	anew    map[int32]bool // those of missing for which something is committed, of a topic that had the name before
}

// lookUp asks how far the group has come in a topic.
func (s *Source) lookUp(ctx context.Context, topic string) (progress, error) {
	listed, err := s.adm.ListTopics(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err := s.missing(topic, err); err != nil {
		return progress{}, err
	}
	if err != nil {
		return progress{}, fmt.Errorf("looking at topic %q: %w", topic, err)
	}
	committed, err := s.adm.FetchOffsets(kadm.RequireStable(ctx), s.cfg.Group)
	if err == nil {
		err = committed.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) { // it has committed nothing
		committed, err = nil, nil
	}
	if err != nil {
		return progress{}, fmt.Errorf("fetching the committed offsets of topic %q: %w", topic, err)
	}
	found := progress{id: listed[topic].ID, parts: map[int32]beginning{}, anew: map[int32]bool{}}
	for p := range listed[topic].Partitions {
		o, ok := committed.Lookup(topic, p)
		ok = ok && o.At >= 0
		if m, said := parseMetadata(o.Metadata); ok && said && m.topic != found.id {
			found.anew[p], ok = true, false
		}
		if !ok {
			found.missing = append(found.missing, p)
			continue
		}
		b := beginningOf(found.id, o.At, o.Metadata)
		if !s.bounded() {
			b.meta.span = span{} // of a read before, which had an end
		}
		found.parts[p] = b
	}
	return found, nil
}

// beginningOf takes from the text beside a committed offset what holds for it: not what was finished beyond
// another offset.
func beginningOf(topic kadm.TopicID, at int64, text string) beginning {
	b := beginning{Position: streammanager.Position{Offset: at}, meta: metadata{topic: topic}}
	m, ok := parseMetadata(text)
	if !ok {
		return b
	}
	if m.at == at {
		b.Finished = m.finished
	}
	b.meta = m
	return b
}

// slowStart is after how long an unsettled start is worth a warning.
const slowStart = 30 * time.Second

// begin finds where partitions begin, which the group has committed at or -1. The owner of partition 0 settles
// that for the whole topic at once; the others wait for it. Otherwise two workers would resolve "latest" at
// different times, and what was written in between would be lost to the group.
func (s *Source) begin(ctx context.Context, topic string, parts map[int32]int64, starts map[streammanager.TopicPartition]beginning) error {
	s.settling.Add(1)
	defer s.settling.Add(-1)
	about, since, wait := trouble{kind: troubleStart, about: topic}, time.Now(), 100*time.Millisecond
	for {
		var found map[int32]beginning
		err := s.checkOwner(ctx)
		if err == nil {
			found, err = s.settle(ctx, topic)
		}
		if err == nil && found != nil {
			if err = take(topic, parts, found, starts); err == nil {
				s.t.healed(about)
				s.count(topic, found)
				return nil
			}
		}
		if fatal := (*event.FatalError)(nil); errors.As(err, &fatal) {
			s.refuse(err)
			<-ctx.Done()
			return ctx.Err()
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

// count notes how many partitions of a topic a bounded read has, and whether anything is in them.
func (s *Source) count(topic string, found map[int32]beginning) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[topic] = len(found)
	s.noteCame(topic, found)
	s.bare[topic] = true
	for _, b := range found {
		if b.meta.span.from < b.meta.span.until {
			s.bare[topic] = false
		}
	}
	s.cfg.Anew.begun(topic)
}

// take copies from found where parts begin.
func take(topic string, parts map[int32]int64, found map[int32]beginning, starts map[streammanager.TopicPartition]beginning) error {
	for p, at := range parts {
		b, ok := found[p]
		switch {
		case !ok: // of a partition that was just added, not every broker knows
			return fmt.Errorf("the brokers do not know partition %d of topic %q yet", p, topic)
		case b.Offset < at && !b.anew: // a commit that the client heard of first
			b = b.elsewhere(at)
		}
		starts[streammanager.TopicPartition{Topic: topic, Partition: p}] = b
	}
	return nil
}

// settle returns where each partition of a topic begins: where the group has committed, else, once
// any partition of the topic was begun, at its earliest record, since it was added later. Where none was
// begun, the owner of partition 0 commits all of them; anybody else gets nil and asks again. All of a topic that was
// made anew is new.
func (s *Source) settle(ctx context.Context, topic string) (map[int32]beginning, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := s.lookUp(ctx, topic)
	if err != nil {
		return nil, err
	}
	if s.bounded() && !s.isThrough(topic) {
		return s.settleRange(ctx, topic, found)
	}
	if len(found.missing) == 0 {
		return found.parts, nil
	}
	begun := len(found.parts) > 0
	if !begun && !s.owns(streammanager.TopicPartition{Topic: topic}) {
		return nil, nil
	}
	start := s.start
	if begun || len(found.anew) > 0 || s.isThrough(topic) || s.madeAgain(ctx, topic) {
		start = moment{word: Earliest}
	}
	at, err := s.resolve(ctx, topic, start)
	if err != nil {
		return nil, err
	}
	for _, p := range found.missing {
		b := beginningOf(found.id, at[p], "")
		b.anew = found.anew[p]
		found.parts[p] = b
	}
	if begun {
		return found.parts, nil
	}
	all := make(map[streammanager.TopicPartition]beginning, len(found.parts))
	for p, b := range found.parts {
		all[streammanager.TopicPartition{Topic: topic, Partition: p}] = b
	}
	if err := s.commit(ctx, all, func() error { return nil }); err != nil {
		return nil, fmt.Errorf("committing the start of topic %q: %w", topic, err)
	}
	s.t.log.Info("kafka: topic begun", "topic", topic, "partitions", len(all), "start", s.said(start))
	return found.parts, nil
}

// said returns a start in the words of the user, unless it is another than theirs.
func (s *Source) said(start moment) string {
	if start == s.start {
		return s.cfg.Start
	}
	return start.String()
}

// list returns the offsets that ask finds.
func (s *Source) list(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error), topic string) (map[int32]int64, error) {
	listed, err := ask(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("listing the offsets of topic %q: %w", topic, err)
	}
	at := make(map[int32]int64, len(listed[topic]))
	for p, o := range listed[topic] {
		at[p] = o.Offset
	}
	return at, nil
}

func (s *Source) owns(tp streammanager.TopicPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.owned[tp]
	return ok
}
