package kafka

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// noEnd is the end of a partition that is read for ever.
const noEnd = math.MaxInt64

// bounded reports whether the source has an end.
func (s *Source) bounded() bool { return s.reading != "" }

// endOf returns the offset at which reading ends.
func (s *Source) endOf(b beginning) int64 {
	if s.bounded() && b.meta.span.of == s.reading {
		return b.meta.span.until
	}
	return noEnd
}

// resolve returns the offsets of a moment in all partitions of a topic.
func (s *Source) resolve(ctx context.Context, topic string, m moment) (map[int32]int64, error) {
	switch m.word {
	case Earliest:
		return s.list(ctx, s.adm.ListStartOffsets, topic)
	case Latest:
		return s.list(ctx, s.adm.ListEndOffsets, topic)
	}
	at := m.millis(time.Now())
	return s.list(ctx, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return s.adm.ListOffsetsAfterMilli(ctx, at, topics...)
	}, topic)
}

// settleRange returns where each partition of a topic begins and ends. Where the group has not begun this very
// read, the owner of partition 0 fixes both for all partitions at once and commits them; anybody else gets nil
// and asks again. A partition that was added since is no part of it.
func (s *Source) settleRange(ctx context.Context, topic string, found progress) (map[int32]beginning, error) {
	again := s.begins(found.parts) && s.cfg.Anew.wanted(topic, found.parts)
	if s.begins(found.parts) && !again {
		if err := s.leaveOut(ctx, topic, found); err != nil {
			return nil, err
		}
		return found.parts, s.inside(topic, found.parts)
	}
	if !s.owns(streammanager.TopicPartition{Topic: topic}) {
		return nil, nil
	}
	start := s.start
	if len(found.anew) > 0 || s.madeAgain(ctx, topic) {
		start = moment{word: Earliest}
	}
	from, err := s.resolve(ctx, topic, start)
	if err != nil {
		return nil, err
	}
	until, err := s.resolve(ctx, topic, s.until)
	if err != nil {
		return nil, err
	}
	changed := map[streammanager.TopicPartition]beginning{}
	before := maps.Clone(found.parts)
	for p := range from {
		b, ok := found.parts[p]
		if ok && b.meta.span.of == s.reading && !again {
			continue
		}
		if !ok {
			b = beginningOf(found.id, from[p], "")
			b.anew = true
		}
		b.meta.span = span{s.reading, from[p], max(until[p], from[p])}
		s.within.Add(b.meta.span.until - b.meta.span.from)
		if again {
			b.meta.span.until = max(b.meta.span.until, b.Offset)
		}
		found.parts[p] = b
		changed[streammanager.TopicPartition{Topic: topic, Partition: p}] = b
	}
	if err := s.inside(topic, found.parts); err != nil {
		return nil, err
	}
	behind := s.behind(start, from, before, found.parts)
	for tp := range changed {
		changed[tp] = found.parts[tp.Partition] // which may be another by force
	}
	if err := s.commit(ctx, changed, func() error { return nil }); err != nil {
		return nil, fmt.Errorf("committing the start of topic %q: %w", topic, err)
	}
	s.begun.Store(true)
	s.t.log.Info("kafka: bounded read begun", "topic", topic, "partitions", len(found.parts), "start", s.said(start), "until", s.cfg.Until, "offsets", leftOf(found.parts))
	s.sayBehind(topic, behind)
	s.warnRetention(ctx, topic, start, from)
	return found.parts, nil
}

// behind counts the offsets behind a start that the group passes by, since it has begun later before and goes on where it
// is. The spans of parts then say where it has begun. Where that is not known, it may have read all that lies before its place,
// which is as it should be where all is to be read once.
func (s *Source) behind(start moment, from map[int32]int64, before, parts map[int32]beginning) (n int64) {
	for p, was := range before {
		b, at := parts[p], was.meta.span.from
		switch {
		case b.anew: // it begins at the start
			continue
		case was.meta.span.of == "" && start.word == Earliest:
			continue
		case was.meta.span.of == "":
			at = b.Offset
		}
		if at > from[p] && at <= b.meta.span.until {
			n += at - from[p]
			b.meta.span.from = at
			parts[p] = b
		}
	}
	return n
}

// begins reports whether the group has begun this very read.
func (s *Source) begins(parts map[int32]beginning) bool {
	for _, b := range parts {
		if b.meta.span.of != s.reading {
			return false
		}
	}
	return len(parts) > 0
}

// leftOf counts the offsets that are still to be read.
func leftOf(parts map[int32]beginning) (n int64) {
	for _, b := range parts {
		n += max(b.meta.span.until-b.Offset, 0)
	}
	return n
}

// leaveOut gives partitions that were added after the read began an end at their beginning.
func (s *Source) leaveOut(ctx context.Context, topic string, found progress) error {
	if len(found.missing) == 0 {
		return nil
	}
	at, err := s.list(ctx, s.adm.ListStartOffsets, topic)
	if err != nil {
		return err
	}
	for _, p := range found.missing {
		b := beginningOf(found.id, at[p], "")
		b.meta.span = span{s.reading, at[p], at[p]}
		found.parts[p] = b
	}
	slices.Sort(found.missing)
	s.t.log.Warn("kafka: partitions were added after the bounded read began: they are no part of it", "topic", topic, "partitions", fmt.Sprint(found.missing))
	return nil
}

// inside refuses committed offsets that the read would never have, or begins there anew where that is forced.
// Behind the first record of a topic an offset may fall by itself: that is a case of out_of_range.
func (s *Source) inside(topic string, parts map[int32]beginning) error {
	for _, p := range slices.Sorted(maps.Keys(parts)) {
		b := parts[p]
		r := b.meta.span
		if b.Offset <= r.until && (b.Offset >= r.from || s.start.word == Earliest) {
			continue
		}
		if !s.cfg.Force {
			return event.Fatal(fmt.Errorf("topic %q partition %d: group %q has committed offset %d, which lies outside of what is to be read, %d to %d (start %s, until %s): use %s, or write start: {at: %s, force: true} to leave that offset and begin at the start",
				topic, p, s.cfg.Group, b.Offset, r.from, r.until, s.cfg.Start, s.cfg.Until, s.anotherGroup(), s.cfg.Start))
		}
		s.t.log.Warn("kafka: a committed offset outside of what is to be read is left, as start.force says", "topic", topic, "partition", p, "offset", b.Offset, "begins", r.from, "until", r.until)
		b = b.elsewhere(r.from)
		b.anew = true
		parts[p] = b
	}
	return nil
}

// sayBehind says how much the group passes by.
func (s *Source) sayBehind(topic string, offsets int64) {
	if offsets > 0 && s.cfg.Anew == nil {
		s.t.log.Warn("kafka: the group goes on at what it has committed, and leaves out what lies between start and where it began before: to read that too use "+s.anotherGroup(),
			"topic", topic, "group", s.cfg.Group, "start", s.cfg.Start, "left_out", offsets)
	}
}

// warnRetention says when the topic may have deleted part of what is to be read.
func (s *Source) warnRetention(ctx context.Context, topic string, start moment, from map[int32]int64) {
	if start.word != "" {
		return
	}
	age := time.Since(start.time(time.Now())).Round(time.Second)
	cut := 0
	if first, err := s.list(ctx, s.adm.ListStartOffsets, topic); err == nil {
		for p, at := range first {
			if at > 0 && from[p] == at {
				cut++
			}
		}
	}
	keeps, limited := time.Duration(0), false
	if configs, err := s.adm.DescribeTopicConfigs(ctx, topic); err == nil { // without the right to ask nothing is said
		if c, err := configs.On(topic, nil); err == nil && c.Err == nil {
			keeps, limited = retention(c)
		}
	}
	if cut > 0 || limited && keeps < age {
		s.t.log.Warn("kafka: some of what is to be read may be deleted already, or be before it is read: the topic keeps its records for less time",
			"topic", topic, "start", s.cfg.Start, "age", age, "retention", keeps, "partitions_cut", cut)
	}
}

// retention returns how long a topic keeps records, if it deletes them for their age.
func retention(c kadm.ResourceConfig) (time.Duration, bool) {
	var keeps time.Duration
	deletes := false
	for _, kv := range c.Configs {
		switch value := kv.MaybeValue(); kv.Key {
		case "retention.ms":
			if d, err := time.ParseDuration(value + "ms"); err == nil {
				keeps = d
			}
		case "cleanup.policy":
			deletes = strings.Contains(value, "delete")
		}
	}
	return keeps, deletes && keeps > 0
}
