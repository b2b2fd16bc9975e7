package window_test

import (
	"slices"
	"time"

	"github.com/a0c75104/enricher/window"
)

// ev is an event of the property test.
type ev struct {
	id        int // in the order of adding
	key       string
	keyless   bool
	group     string
	partition int
	size      int64
}

func (e ev) item() window.Item[ev] {
	return window.Item[ev]{Value: e, Key: e.key, Keyless: e.keyless, Group: e.group, Partition: e.partition, Size: e.size}
}

// batch is a window that closed.
type batch struct {
	evs    []ev
	reason window.Reason
	opened time.Time
}

// model says what Windows must do, by the rules as the package comment states them and without a
// thought for cost: it looks at all events inside for each decision.
type model struct {
	cfg     window.Config
	ordered bool
	now     time.Time

	open    []*batch        // in the order they opened
	inBatch map[string]bool // keys
	waiting []ev            // in the order of adding
	blocked []string        // keys with waiting events, longest first
	closed  []batch
}

func (m *model) tick(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
}

func (m *model) add(e ev) {
	if !m.tryEnter(e) {
		m.waiting = append(m.waiting, e)
		if !slices.Contains(m.blocked, e.key) {
			m.blocked = append(m.blocked, e.key)
		}
	}
}

// tryEnter lets e enter unless an earlier unfinished event of its key is elsewhere than in the open
// window of its group.
func (m *model) tryEnter(e ev) bool {
	group := m.groupOf(e)
	if !m.eligible(e, group) {
		return false
	}
	if group != nil && m.cfg.Bytes > 0 && bytesOf(group.evs)+e.size > m.cfg.Bytes {
		m.close(group, window.ByBytes)
		group = nil
		if !m.eligible(e, nil) {
			return false
		}
	}
	if group == nil {
		group = &batch{opened: m.now}
		m.open = append(m.open, group)
	}
	group.evs = append(group.evs, e)
	switch {
	case m.cfg.Timeout == 0, m.cfg.Count > 0 && len(group.evs) == m.cfg.Count:
		m.close(group, window.ByCount)
	case m.cfg.Bytes > 0 && bytesOf(group.evs) >= m.cfg.Bytes:
		m.close(group, window.ByBytes)
	}
	return true
}

func (m *model) eligible(e ev, group *batch) bool {
	if e.keyless || !m.ordered {
		return true
	}
	if m.inBatch[e.key] || slices.ContainsFunc(m.waiting, func(o ev) bool { return o.key == e.key && o.id < e.id }) {
		return false
	}
	for _, b := range m.open {
		if b != group && slices.ContainsFunc(b.evs, func(o ev) bool { return !o.keyless && o.key == e.key }) {
			return false
		}
	}
	return true
}

func (m *model) groupOf(e ev) *batch {
	for _, b := range m.open {
		o := b.evs[0]
		if o.group == e.group && o.keyless == e.keyless && (!e.keyless || o.partition == e.partition) {
			return b
		}
	}
	return nil
}

func (m *model) close(b *batch, reason window.Reason) {
	m.open = slices.DeleteFunc(m.open, func(o *batch) bool { return o == b })
	for _, e := range b.evs {
		if m.ordered && !e.keyless {
			m.inBatch[e.key] = true
		}
	}
	b.reason = reason
	m.closed = append(m.closed, *b)
}

// refill lets the waiting events of a key enter, in order, until one may not.
func (m *model) refill(key string) {
	for {
		i := slices.IndexFunc(m.waiting, func(e ev) bool { return e.key == key })
		if i < 0 {
			m.blocked = slices.DeleteFunc(m.blocked, func(k string) bool { return k == key })
			return
		}
		if !m.tryEnter(m.waiting[i]) {
			return
		}
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
}

func (m *model) free(key string) {
	delete(m.inBatch, key)
	m.refill(key)
}

func (m *model) expire() {
	for _, b := range slices.Clone(m.open) {
		if !m.now.Before(b.opened.Add(m.cfg.Timeout)) {
			m.close(b, window.ByTimeout)
		}
	}
}

func (m *model) drop(partition int) []ev {
	var dropped []ev
	keep := func(evs []ev) []ev {
		return slices.DeleteFunc(evs, func(e ev) bool {
			if e.partition == partition {
				dropped = append(dropped, e)
			}
			return e.partition == partition
		})
	}
	for _, b := range m.open {
		b.evs = keep(b.evs)
	}
	m.open = slices.DeleteFunc(m.open, func(b *batch) bool { return len(b.evs) == 0 })
	m.waiting = keep(m.waiting)
	for _, key := range slices.Clone(m.blocked) {
		m.refill(key)
	}
	return dropped
}

// lanes returns the number of keys with unfinished events.
func (m *model) lanes() int {
	if !m.ordered {
		return 0
	}
	keys := map[string]bool{}
	for key := range m.inBatch {
		keys[key] = true
	}
	for _, b := range m.open {
		for _, e := range b.evs {
			if !e.keyless {
				keys[e.key] = true
			}
		}
	}
	return len(keys) // a waiting event's key is in a window or batch, else it need not wait
}

func bytesOf(evs []ev) int64 {
	var n int64
	for _, e := range evs {
		n += e.size
	}
	return n
}
