package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/a0c75104/enricher/streammanager"
)

// Repartition names the topic through which the events of a source go before they are worked on. The source makes
// it or holds it to what it must be, reads it in the same group from its first record on, and deletes what is finished.
type Repartition struct {
	Topic      string
	Partitions int32 // that it is made with; an existing topic may have more
	// Floor returns below which offset of a partition records may be deleted, given the committed one: no higher
	// than that, and lower where something else may still need them. Nil: the committed one.
	Floor func(ctx context.Context, tp streammanager.TopicPartition, committed int64) (int64, error)
}

// settleAgain is the time between two looks whether the group has finished a topic.
const settleAgain = 200 * time.Millisecond

// errMade says that the repartition topic was made a moment ago, so that brokers may not know it yet.
var errMade = errors.New("the repartition topic was made a moment ago")

// through keeps the repartition topic.
type through struct {
	mine atomic.Bool // the topic is known to be of no other group

	mu        sync.Mutex // guards what follows
	ready     bool       // the topic is there, as it must be
	parts     int        // that it had at first
	committed map[streammanager.TopicPartition]int64
	before    map[streammanager.TopicPartition]int64 // committed, at the last look
	deleted   map[streammanager.TopicPartition]int64
	denied    bool // deleting was not allowed, which was said
}

func (r *Repartition) check(topics func(string) bool, set *settings) error {
	if r == nil {
		return nil
	}
	var errs []error
	if err := CheckTopic(r.Topic); err != nil {
		errs = append(errs, &KeyError{"repartition.topic", err})
	} else if topics(r.Topic) {
		errs = append(errs, keyErrorf("repartition.topic", "%q is a topic that the source reads: name one that nothing else uses", r.Topic))
	}
	if r.Partitions < 1 {
		errs = append(errs, keyErrorf("repartition.partitions", "%d is less than 1", r.Partitions))
	}
	if set.text("allow.auto.create.topics") == "true" {
		errs = append(errs, keyErrorf(optionKey("allow.auto.create.topics"), "brokers would make the repartition topic as they make any other: leave it out"))
	}
	return errors.Join(errs...)
}

// isThrough reports whether topic is the repartition topic.
func (s *Source) isThrough(topic string) bool {
	return s.cfg.Repartition != nil && s.cfg.Repartition.Topic == topic
}

// reads reports whether topic is one of the source's own.
func (s *Source) reads(topic string) bool { return slices.Contains(s.cfg.Topics, topic) }

// keepThrough makes the repartition topic ready, and deletes now and then what is finished.
func (s *Source) keepThrough(ctx context.Context) {
	about := trouble{kind: troubleTopic, about: s.cfg.Repartition.Topic}
	for {
		err := s.prepareThrough(ctx)
		if ctx.Err() != nil || s.refusal() != nil {
			return
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errMade) {
			s.t.note(about, err)
		}
		if !pause(ctx, lookAgain) {
			return
		}
	}
	s.t.healed(about)
	s.through.mu.Lock()
	s.through.ready = true
	s.through.mu.Unlock()
	for pause(ctx, cleanEvery) && s.refusal() == nil {
		s.clean(ctx, false)
	}
}

// prepareThrough makes the topic where it does not exist, and looks whether it is as it must be.
func (s *Source) prepareThrough(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	r := s.cfg.Repartition
	found, err := s.adm.ListTopics(ctx, r.Topic)
	if err != nil {
		return fmt.Errorf("looking for the repartition topic %q: %w", r.Topic, err)
	}
	td := found[r.Topic]
	if errors.Is(td.Err, kerr.UnknownTopicOrPartition) || !found.Has(r.Topic) {
		if err := s.makeThrough(ctx); err != nil {
			return err
		}
		return errMade
	}
	if td.Err != nil {
		return fmt.Errorf("looking for the repartition topic: %w", topicError(r.Topic, td.Err, "create it"))
	}
	if n := len(td.Partitions); n < int(r.Partitions) {
		s.refuse(fmt.Errorf("the repartition topic %q has %d partitions, and repartition.partitions asks for %d: write %d there, or name a new topic "+
			"(partitions that are added would part the events of a key that are on their way)", r.Topic, n, r.Partitions, n))
		return nil
	}
	s.through.begins(len(td.Partitions))
	return s.checkThrough(ctx)
}

// begins notes how many partitions the topic has, where that is not known yet.
func (t *through) begins(parts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts = cmp.Or(t.parts, parts)
}

// grown ends the pipeline where the repartition topic has more partitions than it had when this worker began.
func (s *Source) grown(found kadm.TopicDetails) {
	if s.cfg.Repartition == nil {
		return
	}
	td := found[s.cfg.Repartition.Topic]
	s.through.mu.Lock()
	before, now := s.through.parts, len(td.Partitions)
	grown := s.through.ready && td.Err == nil && now > before
	s.through.mu.Unlock()
	if grown {
		s.refuse(fmt.Errorf("the repartition topic %q was given more partitions while it was used, %d in place of %d: events of a key that are on their way there would be worked on beside later ones; "+
			"stop all workers and start them again, and the next time let the group finish all of the topic, and stop all workers, before partitions are added", td.Topic, now, before))
	}
}

// beyondThrough reports whether the group has given partitions of the repartition topic that it did not have.
func (s *Source) beyondThrough(added map[string][]int32) bool {
	if s.cfg.Repartition == nil {
		return false
	}
	s.through.mu.Lock()
	defer s.through.mu.Unlock()
	return s.through.ready && slices.ContainsFunc(added[s.cfg.Repartition.Topic], func(p int32) bool { return int(p) >= s.through.parts })
}

// roomInThrough is how large records of the repartition topic may be: twice the largest of the input, since a key may be
// as large as the value that it is found in, and the headers.
func roomInThrough(largest int64) int64 { return min(2*largest+64<<10, 1<<30) }

// largestInput is the largest max.message.bytes of the topics that are read.
func (s *Source) largestInput(ctx context.Context) int64 {
	topics := s.cfg.Topics
	if s.names != nil {
		found, err := s.adm.ListTopics(ctx)
		if err != nil {
			return defaultMaxMessage
		}
		topics = slices.Collect(maps.Keys(s.matching(found)))
	}
	most := int64(0)
	if found, err := s.adm.DescribeTopicConfigs(ctx, topics...); err == nil {
		for _, rc := range found {
			most = max(most, whole(configOf(rc, "max.message.bytes")))
		}
	}
	if most == 0 {
		return defaultMaxMessage
	}
	return most
}

func configOf(rc kadm.ResourceConfig, name string) string {
	for _, c := range rc.Configs {
		if c.Key == name {
			return c.MaybeValue()
		}
	}
	return ""
}

func (s *Source) makeThrough(ctx context.Context) error {
	r := s.cfg.Repartition
	room := strconv.FormatInt(roomInThrough(s.largestInput(ctx)), 10)
	made, err := s.adm.CreateTopic(ctx, r.Partitions, -1, map[string]*string{
		"cleanup.policy": new("delete"), "retention.ms": new("-1"), "retention.bytes": new("-1"), "max.message.bytes": new(room),
	}, r.Topic)
	if err != nil && made.ErrMessage != "" {
		err = fmt.Errorf("%w (%s)", err, made.ErrMessage)
	}
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists): // by another worker, just now
	case err != nil:
		return fmt.Errorf("making the repartition topic %q: make it yourself, with %d partitions, cleanup.policy=delete, retention.ms=-1, retention.bytes=-1 and "+
			"max.message.bytes=%s: %w", r.Topic, r.Partitions, room, err)
	default:
		s.through.begins(int(r.Partitions))
		s.t.log.Info("kafka: repartition topic made", "topic", r.Topic, "partitions", r.Partitions, "max.message.bytes", room)
	}
	s.cl.ForceMetadataRefresh()
	return nil
}

// checkThrough refuses a topic that would lose records by itself.
func (s *Source) checkThrough(ctx context.Context) error {
	r := s.cfg.Repartition
	found, err := s.adm.DescribeTopicConfigs(ctx, r.Topic)
	var denied *kadm.AuthError
	if errors.As(err, &denied) || len(found) > 0 && errors.Is(found[0].Err, kerr.TopicAuthorizationFailed) {
		s.t.log.Warn("kafka: the settings of the repartition topic may not be read: see to it that its retention is unlimited and that it is not compacted", "topic", r.Topic)
		return nil
	}
	if err == nil && len(found) == 1 {
		err = found[0].Err
	}
	if err != nil || len(found) != 1 {
		return fmt.Errorf("reading the settings of the repartition topic %q: %w", r.Topic, err)
	}
	for name, want := range map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"} {
		if got := configOf(found[0], name); got != want && got != "" {
			s.refuse(fmt.Errorf("the repartition topic %q has %s=%s and must have %s: events that are not worked on yet would be lost; set it with kafka-configs, or name a new topic",
				r.Topic, name, got, want))
			return nil
		}
	}
	if has, largest := whole(configOf(found[0], "max.message.bytes")), s.largestInput(ctx); has > 0 && has < largest {
		s.t.log.Warn("kafka: the repartition topic takes smaller records than the topics that are read: what does not fit becomes error events", "topic", r.Topic,
			"max.message.bytes", has, "of_the_input", largest)
	}
	return nil
}

// Settled implements streammanager.Settler.
func (s *Source) Settled(ctx context.Context, topic string) error {
	var ends kadm.ListedOffsets
	for {
		if ends == nil {
			if listed, err := s.adm.ListEndOffsets(ctx, topic); err == nil && listed.Error() == nil && len(listed[topic]) > 0 {
				ends = listed
			}
		}
		if ends != nil && s.finished(ctx, topic, ends) {
			return nil
		}
		if !pause(ctx, settleAgain) {
			return ctx.Err()
		}
	}
}

// finished reports whether the group has committed all below ends. What was never committed is finished where
// there is nothing.
func (s *Source) finished(ctx context.Context, topic string, ends kadm.ListedOffsets) bool {
	committed, err := s.adm.FetchOffsetsForTopics(ctx, s.cfg.Group, topic)
	if err != nil || committed.Error() != nil {
		return false
	}
	var starts kadm.ListedOffsets
	for p, end := range ends[topic] {
		o, ok := committed.Lookup(topic, p)
		if ok && o.At >= end.Offset {
			continue
		}
		if ok && o.At >= 0 || end.Err != nil {
			return false
		}
		if starts == nil {
			if starts, err = s.adm.ListStartOffsets(ctx, topic); err != nil {
				return false
			}
		}
		if first, ok := starts.Lookup(topic, p); !ok || first.Err != nil || first.Offset < end.Offset {
			return false
		}
	}
	return true
}
