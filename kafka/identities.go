package kafka

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

// identities knows which topics stand behind their names. A topic that was deleted and made again has another
// id: the library goes on asking for the old one, and gets nothing, until it is told to forget it.
type identities struct {
	mu    sync.Mutex // guards what follows
	of    map[string]kadm.TopicID
	fresh map[string]bool // were made again since: all of their records are new
	doubt map[string]int  // how often in a row brokers did not know the id that the library asks for
}

// mostDoubts is how often brokers may not know an id before it is taken for an old one: the topic may have been
// made again before it was first seen here.
const mostDoubts = 5

// replaced is a topic that was made again.
type replaced struct {
	topic    string
	old, new kadm.TopicID
}

// see notes the ids of topics that exist, and returns those of them that are others than before.
func (i *identities) see(found kadm.TopicDetails) []replaced {
	i.mu.Lock()
	defer i.mu.Unlock()
	var changed []replaced
	for _, td := range found.Sorted() {
		if td.Err != nil || td.ID == (kadm.TopicID{}) {
			continue
		}
		old, known := i.of[td.Topic]
		if known && old != td.ID || i.doubt[td.Topic] >= mostDoubts {
			delete(i.doubt, td.Topic)
			changed = append(changed, replaced{td.Topic, old, td.ID})
			if i.fresh == nil {
				i.fresh = map[string]bool{}
			}
			i.fresh[td.Topic] = true
		}
		if i.of == nil {
			i.of = map[string]kadm.TopicID{}
		}
		i.of[td.Topic] = td.ID
	}
	return changed
}

// doubts notes that brokers do not know the id that is asked for, or, with again false, that they do.
func (i *identities) doubts(topic string, again bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !again {
		delete(i.doubt, topic)
		return
	}
	if i.doubt == nil {
		i.doubt = map[string]int{}
	}
	i.doubt[topic]++
}

// differs reports whether a topic has another id than the one that was seen.
func (i *identities) differs(td kadm.TopicDetail) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	old, known := i.of[td.Topic]
	return td.Err == nil && known && td.ID != (kadm.TopicID{}) && old != td.ID
}

// isFresh reports whether topic was made again.
func (i *identities) isFresh(topic string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fresh[topic]
}

// madeAgain reports whether topic is another than the one that this worker has read, also where the look at the
// topics has not come to that yet: what is in it must not be passed over by a start at its end.
func (s *Source) madeAgain(ctx context.Context, topic string) bool {
	if found, err := s.adm.ListTopics(ctx, topic); err == nil && s.ids.differs(found[topic]) {
		s.lookSoon()
		return true
	}
	return s.ids.isFresh(topic)
}

// recognize looks for topics that were made again, and begins them anew.
func (s *Source) recognize(found kadm.TopicDetails) {
	s.topics = found
	for _, r := range s.ids.see(found) {
		if s.isThrough(r.topic) {
			s.refuse(fmt.Errorf("the repartition topic %q was deleted and made again while it was used: events that were not worked on are lost; read the input again "+
				"from an earlier offset, and begin anew", r.topic))
			continue
		}
		s.t.log.Warn("kafka: topic was deleted and made again, its new records are read from the first", "topic", r.topic, "old_id", r.old, "new_id", r.new)
		s.stalls.count(streammanager.StallTopic)
		s.forget(r.topic)
	}
	s.grown(found)
}

// forget takes what is held of a topic from the stream and has the library forget the topic, which the group
// then assigns once more.
func (s *Source) forget(topic string) {
	s.tell.Lock()
	var gone []streammanager.TopicPartition
	s.mu.Lock()
	closing := s.closing
	for tp := range s.held {
		if tp.Topic == topic {
			gone = append(gone, tp)
		}
	}
	for _, tp := range gone { // nothing may be committed for them any more, so this goes first
		delete(s.held, tp)
		delete(s.paused, tp)
		delete(s.resting, tp)
	}
	s.mu.Unlock()
	if len(gone) > 0 && !closing {
		s.a.Lost(gone)
	}
	s.tell.Unlock()
	s.cl.PurgeTopicsFromConsuming(topic)
	s.cl.AddConsumeTopics(topic) // with an expression the library finds it again by itself
	s.cl.ForceMetadataRefresh()
}

// remade is how a sink gets over topics that were made again.
type remade struct {
	cl  *kgo.Client
	adm *kadm.Client
	t   *troubles
	ids identities
	stalls
	topics chan string // to be forgotten by the library

	mu     sync.Mutex // guards what follows
	queued map[string]bool
	said   map[string]time.Time
	owed   map[string]bool // said, and not forgotten by the library yet
	times  map[string]int  // how often the library has forgotten a topic
}

// saidLately is for how long a topic that was made again is not said so once more, since answers for the old one
// may come late.
const saidLately = 10 * time.Second

func newRemade(cl *kgo.Client, adm *kadm.Client, t *troubles) *remade {
	return &remade{cl: cl, adm: adm, t: t, topics: make(chan string, 64), queued: map[string]bool{}, said: map[string]time.Time{}, owed: map[string]bool{}, times: map[string]int{}}
}

// see looks for topics that were made again. The library is not told: it may know the new topic only, and would
// number its records there from 0 once more, which brokers take for repeated ones and do not write.
func (m *remade) see(found kadm.TopicDetails) {
	for _, r := range m.ids.see(found) {
		if !m.saidLately(r.topic) {
			m.say(r.topic, "old_id", r.old, "new_id", r.new)
		}
		m.mu.Lock()
		m.owed[r.topic] = true
		m.mu.Unlock()
	}
}

func (m *remade) saidLately(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.said[topic]) < saidLately
}

// say logs and counts a topic that was made again, once each time.
func (m *remade) say(topic string, ids ...any) {
	m.t.log.Warn("kafka: topic was deleted and made again, going on with the new one", append([]any{"topic", topic}, ids...)...)
	m.stalls.count(streammanager.StallTopic)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said[topic] = time.Now()
}

// forgotten is how often the library has forgotten topic.
func (m *remade) forgotten(topic string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.times[topic]
}

// queue has the library forget topic soon, since a record did not reach it under the id that the library knows. times is
// what forgotten said when the record was handed over: one that is older than the last time says nothing of what
// the library knows now. It never blocks: what finds no room is refused, and queued, once more.
func (m *remade) queue(topic string, times int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queued[topic] || m.times[topic] != times {
		return
	}
	select {
	case m.topics <- topic:
		m.queued[topic] = true
	default:
	}
}

// run forgets topics until ctx ends. The library refuses what waits for them, and the stream goes back to it.
func (m *remade) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case topic := <-m.topics:
			m.forget(ctx, topic)
		}
	}
}

func (m *remade) forget(ctx context.Context, topic string) {
	ask, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if found, err := m.adm.ListTopics(ask, topic); err == nil {
		m.see(found)
	}
	m.mu.Lock()
	owed := m.owed[topic]
	m.mu.Unlock()
	if !owed && !m.saidLately(topic) {
		m.say(topic) // its id was not known before: an event has named it
	}
	m.cl.PurgeTopicsFromProducing(topic)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[topic]++
	delete(m.queued, topic)
	delete(m.owed, topic)
	maps.DeleteFunc(m.said, func(_ string, at time.Time) bool { return time.Since(at) >= saidLately })
}
