package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// watch looks whether the topics exist and something stands still, more often while something is wrong.
func (s *Source) watch(ctx context.Context) {
	g := newGuard(s)
	for {
		every := s.set.millis("metadata.max.age.ms")
		if !s.look(ctx) {
			every = min(every, lookAgain)
		}
		if s.topics != nil { // that one topic is missing says nothing of the others
			s.hearOfEnds(ctx, s.topics)
			g.look(ctx, s.topics)
		}
		if !s.untilLook(ctx, every) {
			return
		}
	}
}

// untilLook waits for the next look, and reports whether ctx goes on. Trouble with a topic brings it forward.
func (s *Source) untilLook(ctx context.Context, every time.Duration) bool {
	soon, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	if pause(soon, min(every, lookAtMost)) {
		select {
		case <-s.nudge:
		case <-soon.Done():
		}
	}
	return ctx.Err() == nil
}

// lookSoon brings the next look forward.
func (s *Source) lookSoon() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

const (
	lookAgain   = 2 * time.Second
	lookTimeout = 10 * time.Second
	// lookAtMost is the least time between two looks that trouble brings forward.
	lookAtMost = time.Second
)

// look reports whether all is well with the topics. Where no broker answered, none is known.
func (s *Source) look(ctx context.Context) bool {
	s.topics = nil
	if s.names == nil {
		return lookAt(ctx, s.adm, s.t, "create it, or correct topics", s.looksFor(), s.see)
	}
	ask, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := s.adm.ListTopics(ask)
	if !answered(ctx, s.t, err) {
		return false
	}
	mine := s.matching(found)
	n := len(mine)
	if r := s.cfg.Repartition; r != nil && found.Has(r.Topic) {
		mine[r.Topic] = found[r.Topic]
	}
	s.recognize(mine)
	if n > 0 {
		s.t.healed(trouble{kind: troubleTopic})
		return true
	}
	s.t.note(trouble{kind: troubleTopic}, fmt.Errorf("no topic has a name that %s matches as a whole: create one, or correct topics", strings.Join(s.cfg.Topics, ", ")))
	return false
}

// looksFor returns the names of the topics that should be there.
func (s *Source) looksFor() []string {
	s.through.mu.Lock()
	defer s.through.mu.Unlock()
	if !s.through.ready {
		return s.cfg.Topics
	}
	return append(slices.Clone(s.cfg.Topics), s.cfg.Repartition.Topic)
}

// matching returns those of found whose names the source's expressions match.
func (s *Source) matching(found kadm.TopicDetails) kadm.TopicDetails {
	found = maps.Clone(found)
	maps.DeleteFunc(found, func(topic string, _ kadm.TopicDetail) bool {
		return s.isThrough(topic) || !s.matches(topic)
	})
	return found
}

// matches reports whether one of the regular expressions is for a topic.
func (s *Source) matches(topic string) bool {
	return slices.ContainsFunc(s.names, func(re *regexp.Regexp) bool { return re.MatchString(topic) })
}

// answered notes whether a broker answered at all.
func answered(ctx context.Context, t *troubles, err error) bool {
	if err == nil {
		t.healed(trouble{kind: troubleCluster})
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	if timedOut(err) {
		err = &noAnswerError{strings.Join(t.brokers, ", "), lookTimeout, err}
	} else {
		err = fmt.Errorf("asking the brokers at %s for topics: %w", strings.Join(t.brokers, ", "), loginError(err))
	}
	t.note(trouble{kind: troubleCluster}, err)
	return false
}

// noAnswerError says that somebody took a connection and said nothing.
type noAnswerError struct {
	from  string
	after time.Duration
	err   error
}

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("no answer from %s in %s: is it a Kafka listener, and is tls or sasl missing?", e.from, e.after)
}
func (e *noAnswerError) Unwrap() error { return e.err }

// lookAt notes which topics do not exist, unless there is no cure for it, and reports whether all do. see gets what was found.
func lookAt(ctx context.Context, adm *kadm.Client, t *troubles, cure string, topics []string, see func(kadm.TopicDetails)) bool {
	ask, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := adm.ListTopics(ask, topics...)
	if !answered(ctx, t, err) {
		return false
	}
	see(found)
	well := true
	for _, name := range topics {
		about := trouble{kind: troubleTopic, about: name}
		if err := found[name].Err; err != nil {
			if well = false; cure != "" || !errors.Is(err, kerr.UnknownTopicOrPartition) {
				t.note(about, topicError(name, err, cure))
			}
			continue
		}
		t.healed(about)
	}
	return well
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
