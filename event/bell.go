package event

import (
	"sync"
	"time"
)

// Bell wakes events before the time until which they are held for it. It rings once. The zero Bell has not rung.
type Bell struct {
	mu      sync.Mutex // guards all below
	rung    bool
	waiting []func()
}

// Ring wakes all that is held for the bell, and all that will be.
func (b *Bell) Ring() {
	b.mu.Lock()
	wake := b.waiting
	b.rung, b.waiting = true, nil
	b.mu.Unlock()
	for _, f := range wake {
		f()
	}
}

// Listen has f called once when the bell rings, at once where it has. It is for who keeps events waiting, as the stream
// does; f must not block.
func (b *Bell) Listen(f func()) {
	b.mu.Lock()
	if !b.rung {
		b.waiting = append(b.waiting, f)
		f = func() {}
	}
	b.mu.Unlock()
	f()
}

// HoldFor is Hold for an event that waits for another one: it is called again when bell rings, and at until at the latest,
// since who is to ring it may be gone. A BatchFunc's events wait until then in any case.
func HoldFor(err error, until time.Time, bell *Bell) error {
	return &HoldError{Until: until, Err: err, Bell: bell}
}
