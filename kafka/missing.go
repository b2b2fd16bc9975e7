package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/a0c75104/enricher/event"
)

// missing returns how the source ends where err says that a topic does not exist, and it is not to be waited for. One
// that was read already is gone for a while: brokers that start may not know it yet.
func (s *Source) missing(topic string, err error) error {
	if s.cfg.Missing == "" || !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts[topic] > 0 {
		return nil
	}
	return event.Fatal(fmt.Errorf("topic %q does not exist: %s", topic, s.cfg.Missing))
}

// see takes what was found of the topics. One that ends the source is taken out: it will not heal.
func (s *Source) see(found kadm.TopicDetails) {
	for topic, td := range found {
		if err := s.missing(topic, td.Err); err != nil {
			delete(found, topic)
			s.refuse(err)
		}
	}
	s.recognize(found)
}
