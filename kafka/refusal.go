package kafka

import (
	"sync/atomic"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// verdict is how what runs beside Poll ends the pipeline: the next Poll returns it.
type verdict struct {
	refused atomic.Pointer[event.FatalError]          // for good, and every Poll says so
	broken  atomic.Pointer[streammanager.FailedError] // to be started again
}

// refuse ends the pipeline for good: what is to be read cannot be, or not without losing records.
func (s *Source) refuse(err error) {
	s.verdict.refused.Store(&event.FatalError{Err: err})
	s.wakePoll()
}

// refusal is why the pipeline is to end for good, nil if it is not.
func (s *Source) refusal() error {
	if err := s.verdict.refused.Load(); err != nil {
		return err
	}
	return nil
}

// giveUp has the pipeline started again.
func (s *Source) giveUp(err *streammanager.FailedError) {
	s.verdict.broken.Store(err)
	s.wakePoll()
}

// judged returns what was decided since the last Poll, or for good.
func (s *Source) judged() error {
	if broken := s.verdict.broken.Swap(nil); broken != nil {
		return broken
	}
	return s.refusal()
}

// isJudged reports whether the next Poll fails.
func (s *Source) isJudged() bool { return s.verdict.broken.Load() != nil || s.refusal() != nil }

// wakePoll ends the wait of a Poll, if one waits.
func (s *Source) wakePoll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake != nil {
		s.wake()
	}
}
