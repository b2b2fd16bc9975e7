package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

// given knows what the group has given to a source that works in transactions. Until a transaction has ended, the
// library's session tells only of the first partitions that are taken away in it, and of the first that are lost.
type given struct {
	kgo.GroupBalancer
	s *Source
}

// listen has the balancers of opts tell the source what it is given.
func (s *Source) listen(balancers []kgo.GroupBalancer) kgo.Opt {
	heard := make([]kgo.GroupBalancer, len(balancers))
	for i, b := range balancers {
		heard[i] = given{b, s}
	}
	return kgo.Balancers(heard...)
}

// ParseSyncAssignment implements kgo.GroupBalancer.
func (g given) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	parts, err := g.GroupBalancer.ParseSyncAssignment(assignment)
	if err == nil {
		has := map[streammanager.TopicPartition]struct{}{}
		for _, tp := range flat(parts) {
			has[tp] = struct{}{}
		}
		g.s.mu.Lock()
		g.s.given = has
		g.s.mu.Unlock()
	}
	return parts, err
}

// letGoUntold lets go what another has by now and nobody told of.
func (s *Source) letGoUntold() {
	if s.tx == nil {
		return
	}
	s.tell.Lock()
	defer s.tell.Unlock()
	lost := map[string][]int32{}
	s.mu.Lock()
	for tp := range s.owned {
		if _, ok := s.given[tp]; !ok {
			lost[tp.Topic] = append(lost[tp.Topic], tp.Partition)
		}
	}
	s.mu.Unlock()
	if len(lost) == 0 {
		return
	}
	tps := s.known(lost)
	s.drop(lost)
	if len(tps) > 0 {
		s.a.Lost(tps)
	}
}
