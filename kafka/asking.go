package kafka

import (
	"sync"
	"time"
)

// asking knows whether somebody polls, and whether anything came of it.
type asking struct {
	mu        sync.Mutex // guards what follows
	now       bool
	since     bool      // somebody has polled since state was called
	delivered time.Time // last, or when the first poll began
}

func (a *asking) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.delivered.IsZero() {
		a.delivered = time.Now()
	}
	a.now, a.since = true, true
}

func (a *asking) end(delivered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = false
	if delivered {
		a.delivered = time.Now()
	}
}

// state reports whether a poll waits and nothing was delivered for some time, and whether anybody has polled since
// the last call.
func (a *asking) state(quiet time.Duration) (waits, polled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	polled = a.now || a.since
	a.since = false
	return a.now && time.Since(a.delivered) >= quiet, polled
}
