package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// groupHeader is the first header of a record of a repartition topic, and says whose it is. The sink adds it and the source
// takes it off; records that were written before there was such a header have none, and are taken.
const groupHeader = "enricher.repartition.group"

// askOffsetsOf is of how many groups the offsets are asked for at once.
const askOffsetsOf = 100

// headers returns the headers of r as they are written.
func (s *Sink) headers(r *streammanager.Record) []event.Header {
	if s.cfg.Group == "" {
		return r.Headers
	}
	return append([]event.Header{{Key: groupHeader, Value: []byte(s.cfg.Group)}}, r.Headers...)
}

// ownerOf returns the group that r of a repartition topic belongs to, "" if that is not said.
func ownerOf(r *kgo.Record) string {
	if len(r.Headers) == 0 || r.Headers[0].Key != groupHeader {
		return ""
	}
	return string(r.Headers[0].Value)
}

// anotherGroup is what a read that is to begin once more takes.
func (s *Source) anotherGroup() string {
	if s.cfg.Repartition == nil {
		return "another group"
	}
	return "another group and another repartition.topic"
}

// claim takes the group off r of the repartition topic, and reports whether r is of this group.
func (s *Source) claim(r *kgo.Record) bool {
	owner := ownerOf(r)
	if owner != "" && owner != s.cfg.Group {
		s.verdict.refused.Store(&event.FatalError{Err: s.belongsTo(owner)})
		return false
	}
	if owner != "" {
		r.Headers = r.Headers[1:]
	}
	return true
}

func (s *Source) belongsTo(owner string) error {
	return fmt.Errorf("topic %q belongs to group %q: name another repartition.topic for %q (of one topic each group would do the work of the other too, and delete what the other has not come to)",
		s.cfg.Repartition.Topic, owner, s.cfg.Group)
}

// checkOwner refuses the repartition topic of another group before anything is read, and so before anything is written there
// that the other would find. A group that has committed something of the topic is at home in it.
func (s *Source) checkOwner(ctx context.Context) error {
	if s.cfg.Repartition == nil || s.through.mine.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	topic := s.cfg.Repartition.Topic
	listed, err := s.adm.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("looking for the repartition topic %q: %w", topic, err)
	}
	if !listed.Has(topic) || errors.Is(listed[topic].Err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	found, err := s.lookUp(ctx, topic)
	if err != nil {
		return err
	}
	if len(found.parts) == 0 {
		owner, err := s.committedBy(ctx, topic, found.id)
		if err == nil && owner == "" {
			owner, err = s.writtenBy(ctx, topic)
		}
		if err != nil {
			return err
		}
		if owner != "" {
			return event.Fatal(s.belongsTo(owner))
		}
	}
	s.through.mine.Store(true)
	return nil
}

// committedBy returns another group that has committed offsets of a topic as a pipeline does, of those that this user may see.
func (s *Source) committedBy(ctx context.Context, topic string, id kadm.TopicID) (string, error) {
	listed, err := s.adm.ListGroups(ctx)
	var denied *kadm.AuthError
	if err != nil && len(listed) == 0 && !errors.As(err, &denied) {
		return "", fmt.Errorf("asking for the groups that use the repartition topic %q: %w", topic, err)
	}
	groups := slices.DeleteFunc(listed.Groups(), func(group string) bool { return group == s.cfg.Group })
	for some := range slices.Chunk(groups, askOffsetsOf) {
		for group, has := range s.adm.FetchManyOffsets(ctx, some...) {
			for _, o := range has.Fetched[topic] {
				if m, ok := parseMetadata(o.Metadata); ok && m.topic == id {
					return group, nil
				}
			}
		}
	}
	return "", nil
}

// writtenBy returns another group that the first record of a partition of a topic belongs to.
func (s *Source) writtenBy(ctx context.Context, topic string) (owner string, err error) {
	first, err := s.list(ctx, s.adm.ListStartOffsets, topic)
	if err != nil {
		return "", err
	}
	end, err := s.list(ctx, s.adm.ListEndOffsets, topic)
	if err != nil {
		return "", err
	}
	at := map[string]map[int32]kgo.Offset{topic: {}}
	for p, from := range first {
		if from < end[p] {
			at[topic][p] = kgo.NewOffset().At(from)
		}
	}
	left := at[topic]
	if len(left) == 0 {
		return "", nil
	}
	opts := append(s.readOpts(ctx), kgo.FetchIsolationLevel(kgo.ReadUncommitted()), kgo.ConsumePartitions(at))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return "", fmt.Errorf("opening a client of kafka: %w", err)
	}
	defer cl.Close()
	seen := map[int32]bool{}
	for owner == "" && len(seen) < len(left) {
		fetched := cl.PollRecords(ctx, scanRecords)
		if fetched.Err() != nil { // the source finds the same in what it polls, if later
			return "", nil
		}
		fetched.EachRecord(func(r *kgo.Record) {
			seen[r.Partition] = true
			if whose := ownerOf(r); whose != "" && whose != s.cfg.Group {
				owner = whose
			}
		})
	}
	return owner, nil
}
