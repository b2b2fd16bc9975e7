package streammanager

import "sync"

// mailbox carries messages to one receiver. Sending never blocks; what is in it is bounded by the
// events that were admitted.
type mailbox[T any] struct {
	mu     sync.Mutex // guards queue
	queue  []T
	notify chan struct{} // holds one token while there is something to take
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{notify: make(chan struct{}, 1)} }

func (m *mailbox[T]) send(v T) {
	m.mu.Lock()
	m.queue = append(m.queue, v)
	m.mu.Unlock()
	select {
	case m.notify <- struct{}{}:
	default:
	}
}

// take returns all messages and gives spare, emptied, to the next senders.
func (m *mailbox[T]) take(spare []T) []T {
	clear(spare)
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.queue
	m.queue = spare[:0]
	return got
}
