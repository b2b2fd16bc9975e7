package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Anew lets a bounded read to whose end the group has come begin once more: from there, to what is the end then. That
// happens once for each topic, however many sources are made with one Anew, so that a source that is made again after
// a failure does not go on for ever. What the group has begun and not finished keeps its end. The zero Anew is ready
// for use, and safe for concurrent use.
type Anew struct {
	mu     sync.Mutex // guards topics
	topics map[string]bool
}

// begun notes that a topic has its end. A nil a does nothing.
func (a *Anew) begun(topic string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.topics == nil {
		a.topics = map[string]bool{}
	}
	a.topics[topic] = true
}

// wanted reports whether a topic that was read to its end is to have another one.
func (a *Anew) wanted(topic string, parts map[int32]beginning) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.topics[topic] && read(parts)
}

// read reports whether all of a bounded read is committed.
func read(parts map[int32]beginning) bool {
	for _, b := range parts {
		if b.Offset < b.meta.span.until {
			return false
		}
	}
	return true
}

// Left returns how many offsets of a bounded read this worker has still to read.
func (s *Source) Left() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h.until != noEnd {
			n += max(h.until-h.next, 0)
		}
	}
	return n
}

// Over reports whether a bounded read has come to its end.
func (s *Source) Over() bool { return s.ended.Load() }

// Bare reports whether this worker found that nothing lies between start and until of a bounded read at all: not even what
// was read before.
func (s *Source) Bare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.cfg.Topics, func(topic string) bool { return !s.bare[topic] })
}

// Further reports whether the group has come further in a bounded read since this worker first looked. Where this worker has
// read nothing, others of the group have.
func (s *Source) Further() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.further
}

// noteCame notes how far the group has come in a topic. The caller holds mu.
func (s *Source) noteCame(topic string, parts map[int32]beginning) {
	n := int64(0)
	if s.begins(parts) {
		for _, b := range parts {
			n += max(b.Offset-b.meta.span.from, 0)
		}
	}
	if before, ok := s.came[topic]; !ok {
		s.came[topic] = n
	} else if n > before {
		s.further = true
	}
}

// Forget deletes what the group has committed of the source's topics. It takes the place of Open, and fails while
// the group has members.
func (s *Source) Forget(ctx context.Context) error {
	return s.apart(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		var topics kadm.TopicsSet
		for _, topic := range s.cfg.Topics {
			found, err := s.lookUp(ctx, topic)
			if err != nil {
				return err
			}
			for p := range found.parts {
				topics.Add(topic, p)
			}
			for p := range found.anew {
				topics.Add(topic, p)
			}
		}
		if len(topics) == 0 {
			return nil
		}
		deleted, err := s.adm.DeleteOffsets(ctx, s.cfg.Group, topics)
		if err == nil {
			err = deleted.Error()
		}
		switch {
		case err == nil, errors.Is(err, kerr.GroupIDNotFound):
			return nil
		case errors.Is(err, kerr.GroupSubscribedToTopic), errors.Is(err, kerr.NonEmptyGroup):
			return fmt.Errorf("forgetting how far group %q has come: it has members: wait until they have ended, or end them: %w", s.cfg.Group, err)
		}
		return fmt.Errorf("forgetting how far group %q has come: %w", s.cfg.Group, err)
	})
}
