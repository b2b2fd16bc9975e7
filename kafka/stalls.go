package kafka

import (
	"maps"
	"sync"

	"github.com/a0c75104/enricher/streammanager"
)

// stalls counts what was found to stand still. The zero stalls is fit for use.
type stalls struct {
	mu sync.Mutex // guards n
	n  map[streammanager.Stall]int64
}

func (s *stalls) count(what streammanager.Stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = map[streammanager.Stall]int64{}
	}
	s.n[what]++
}

// Stalled implements streammanager.Staller.
func (s *stalls) Stalled() map[streammanager.Stall]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}
