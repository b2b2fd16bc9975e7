package kafka

import (
	"sync"

	"github.com/a0c75104/enricher/streammanager"
)

// refetches are partitions whose reading is to begin anew where it stands. Poll alone takes the library back: beside it,
// records could come from either place.
type refetches struct {
	mu sync.Mutex // guards at
	at map[streammanager.TopicPartition]int64
}

// askRefetch has the next Poll begin the reading of a partition anew, if that stands at next by then.
func (s *Source) askRefetch(tp streammanager.TopicPartition, next int64) {
	s.refetches.mu.Lock()
	if s.refetches.at == nil {
		s.refetches.at = map[streammanager.TopicPartition]int64{}
	}
	s.refetches.at[tp] = next
	s.refetches.mu.Unlock()
	s.wakePoll()
}

// takeAll returns what is asked for.
func (r *refetches) takeAll() map[streammanager.TopicPartition]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.at
	r.at = nil
	return at
}

// asked reports whether there is anything to do for Poll.
func (r *refetches) asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.at) > 0
}

// refetch does what askRefetch has asked for. It belongs to Poll.
func (s *Source) refetch() {
	at := s.refetches.takeAll()
	if len(at) == 0 {
		return
	}
	s.mu.Lock()
	for tp, next := range at {
		if h := s.held[tp]; h == nil || h.next != next {
			delete(at, tp) // it has moved meanwhile, or is another's
			continue
		}
		s.flow(tp)
	}
	s.mu.Unlock()
	if len(at) > 0 {
		s.cl.ForceMetadataRefresh()
		s.setOffsets(at, false)
	}
}
