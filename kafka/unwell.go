package kafka

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// unwellFor is how long a refusal counts that does not come again while other topics are written to. The
	// stream goes back after a refusal and tries again within a minute, unless the event has become another
	// worker's.
	unwellFor = 3 * time.Minute
	// mostUnwell bounds the topics that are named: where events name them, there may be any number.
	mostUnwell = 8
)

// unwell knows the topics whose last write was refused. A write to another topic does not make them well.
type unwell struct {
	t   *troubles
	any atomic.Bool // topics are in it; spares the lock where all is well

	mu     sync.Mutex // guards topics
	topics map[string]time.Time
}

// refused notes that topic was not written to, for err.
func (u *unwell) refused(topic string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.topics[topic]; !ok && len(u.topics) >= mostUnwell {
		return
	}
	if u.topics == nil {
		u.topics = map[string]time.Time{}
	}
	u.topics[topic] = time.Now()
	u.any.Store(true)
	u.t.note(trouble{kind: troubleSink, about: topic}, err)
}

// written notes that topic was written to.
func (u *unwell) written(topic string) {
	if !u.any.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for at, since := range u.topics {
		if at == topic || time.Since(since) > unwellFor {
			delete(u.topics, at)
			u.t.healed(trouble{kind: troubleSink, about: at})
		}
	}
	u.any.Store(len(u.topics) > 0)
}
