package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
)

const (
	// UnknownAfter is how long brokers must say that a topic which an event names does not exist, before
	// that is the event's own fault; and how long that holds then.
	UnknownAfter = 10 * time.Second
	// lookAtMade is how often topics are looked at whose records are not answered.
	lookAtMade = time.Second
)

// made watches topics that events name. The library would wait for one that does not exist for as long as it
// takes, and everything with it. It knows no more topics than there are records without an answer, and those
// of the last seconds that do not exist.
type made struct {
	cl  *kgo.Client
	adm *kadm.Client
	t   *troubles
	l   *limits

	mu     sync.Mutex // guards what follows
	topics map[string]*madeTopic
	absent map[string]time.Time // do not exist: their records are refused until then
}

// madeTopic is a topic that records are on their way to.
type madeTopic struct {
	flying  int
	quiet   time.Time // since when no record was answered
	unknown time.Time // since when brokers say that it does not exist; zero: they do not
}

func newMade(cl *kgo.Client, adm *kadm.Client, t *troubles, l *limits) *made {
	return &made{cl: cl, adm: adm, t: t, l: l, topics: map[string]*madeTopic{}, absent: map[string]time.Time{}}
}

// check refuses a topic that was found not to exist. A nil m takes any.
func (m *made) check(topic string) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if until, ok := m.absent[topic]; !ok || time.Now().After(until) {
		return nil
	}
	return event.Rejectf(event.Rejected, "topic %q, which the event names, does not exist: create it, or correct the template of the sink's topic", topic)
}

// takeOff notes a record on its way.
func (m *made) takeOff(topic string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.topics[topic]
	if at == nil {
		at = &madeTopic{quiet: time.Now()}
		m.topics[topic] = at
	}
	at.flying++
}

// landed notes an answer, and says whether the record was refused for its topic.
func (m *made) landed(topic string, err error) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	if at := m.topics[topic]; at != nil {
		at.quiet = time.Now()
		if at.flying--; at.flying == 0 {
			delete(m.topics, topic)
		}
	}
	m.mu.Unlock()
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return nil
	}
	return m.check(topic)
}

// watch gives up on topics until ctx ends.
func (m *made) watch(ctx context.Context) {
	for pause(ctx, lookAtMade) {
		topics := m.waiting()
		if len(topics) == 0 {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, lookTimeout)
		found, err := m.adm.ListTopics(ask, topics...)
		cancel()
		if !answered(ctx, m.t, err) {
			m.l.again() // it says when they answer again, also where no record waits then
			continue
		}
		// Purging has the library answer the records, and forget the topic, which it would go on asking for.
		m.cl.PurgeTopicsFromProducing(m.giveUp(topics, found)...)
	}
}

// waiting returns the topics that have had no answer for a while.
func (m *made) waiting() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.absent, func(_ string, until time.Time) bool { return now.After(until) })
	var topics []string
	for topic, at := range m.topics {
		if now.Sub(at.quiet) >= lookAtMade {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// giveUp returns the topics that have not existed for too long.
func (m *made) giveUp(topics []string, found kadm.TopicDetails) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var gone []string
	for _, topic := range topics {
		at := m.topics[topic]
		switch {
		case at == nil:
		case !errors.Is(found[topic].Err, kerr.UnknownTopicOrPartition):
			at.unknown = time.Time{}
		case at.unknown.IsZero():
			at.unknown = now
		case now.Sub(at.unknown) >= UnknownAfter:
			m.absent[topic] = now.Add(UnknownAfter)
			gone = append(gone, topic)
		}
	}
	return gone
}
