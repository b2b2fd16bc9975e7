package window

import (
	"errors"
	"fmt"
	"time"
)

// Config says when a window closes. The zero Config is a window of one event.
type Config struct {
	Count   int           // events at most; 0: 1 if Timeout is 0 too, else no bound
	Bytes   int64         // bytes at most; 0: no bound
	Timeout time.Duration // after the first event entered; 0: a window of one event
	Eager   bool          // the stream also closes windows when a worker is idle
}

// Reason is why a window closed.
type Reason string

// The reasons.
const (
	ByCount       Reason = "count"
	ByBytes       Reason = "bytes"
	ByTimeout     Reason = "timeout"
	ByEager       Reason = "eager"
	ByLimits      Reason = "limits"
	ByDrain       Reason = "drain"
	ByTransaction Reason = "transaction"
	ByBarrier     Reason = "barrier"
)

// Item is one event in a lane or window.
type Item[T any] struct {
	Value     T
	Key       string // compared by content
	Keyless   bool   // no lane; Key means nothing
	Group     string // events of equal Group share a window; with no `by` the caller sets it to Key
	Partition int    // the caller's number of the partition; also parts the windows of keyless items
	Size      int64
}

// Closed is a window that closed: a batch to be dispatched.
type Closed[T any] struct {
	Items  []Item[T]
	Reason Reason
	Opened time.Time
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	switch {
	case c.Count < 0:
		return fmt.Errorf("count: %d is negative", c.Count)
	case c.Bytes < 0:
		return fmt.Errorf("bytes: %d is negative", c.Bytes)
	case c.Timeout < 0:
		return fmt.Errorf("timeout: %v is negative", c.Timeout)
	case c.Timeout == 0 && (c.Count > 1 || c.Bytes > 0):
		return errors.New("timeout: a window of several events needs one")
	}
	return nil
}

type win[T any] struct {
	id         groupID
	items      []Item[T]
	bytes      int64
	opened     time.Time
	prev, next *win[T]
}

type groupID struct {
	group     string
	loose     bool
	partition int
}

// lane is the state of a key with unfinished events.
type lane[T any] struct {
	in      *win[T]
	batch   bool
	waiting []Item[T]
}

// Windows holds all lanes and open windows of one stream.
type Windows[T any] struct {
	cfg         Config
	lanes       map[string]*lane[T]
	groups      map[groupID]*win[T]
	first, last *win[T]
	closed      []Closed[T]
	spare       []Closed[T]
	waiting     int
	ordered     bool
	now         time.Time
}

// New returns an empty set. Without lanes (no order) events never wait for their key.
func New[T any](cfg Config, lanes bool) (*Windows[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Count = 1
	}
	return &Windows[T]{cfg: cfg, lanes: map[string]*lane[T]{}, groups: map[groupID]*win[T]{}, ordered: lanes}, nil
}

func (w *Windows[T]) id(it *Item[T]) groupID {
	if it.Keyless {
		return groupID{it.Group, true, it.Partition}
	}
	return groupID{group: it.Group}
}

// Add takes one event: into the open window of its group, or behind its key's lane.
func (w *Windows[T]) Add(now time.Time, it Item[T]) {
	w.now = now
	if it.Keyless || !w.ordered {
		w.enter(now, it)
		return
	}
	ln := w.lanes[it.Key]
	if ln == nil {
		ln = &lane[T]{}
		w.lanes[it.Key] = ln
	}
	if len(ln.waiting) > 0 || !w.admit(now, ln, it) {
		ln.waiting = append(ln.waiting, it)
		w.waiting++
	}
}

// admit lets an event of ln into its group's window if the rules allow.
func (w *Windows[T]) admit(now time.Time, ln *lane[T], it Item[T]) bool {
	if ln.batch {
		return false
	}
	if ln.in != nil {
		if ln.in != w.groups[w.id(&it)] {
			return false
		}
		if w.cfg.Bytes > 0 && ln.in.bytes+it.Size > w.cfg.Bytes {
			w.close(ln.in, ByBytes)
			return false
		}
	}
	w.enter(now, it)
	return true
}

func (w *Windows[T]) enter(now time.Time, it Item[T]) {
	id := w.id(&it)
	win_ := w.groups[id]
	if win_ != nil && w.cfg.Bytes > 0 && win_.bytes+it.Size > w.cfg.Bytes {
		w.close(win_, ByBytes)
		win_ = nil
	}
	if win_ == nil {
		win_ = &win[T]{id: id, opened: now, prev: w.last}
		if w.last != nil {
			w.last.next = win_
		} else {
			w.first = win_
		}
		w.last = win_
		w.groups[id] = win_
	}
	win_.items = append(win_.items, it)
	win_.bytes += it.Size
	if !it.Keyless && w.ordered {
		w.lanes[it.Key].in = win_
	}
	switch {
	case w.cfg.Count > 0 && len(win_.items) >= w.cfg.Count:
		w.close(win_, ByCount)
	case w.cfg.Bytes > 0 && win_.bytes >= w.cfg.Bytes:
		w.close(win_, ByBytes)
	}
}

func (w *Windows[T]) unlink(x *win[T]) {
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		w.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		w.last = x.prev
	}
	delete(w.groups, x.id)
}

func (w *Windows[T]) close(x *win[T], reason Reason) {
	w.unlink(x)
	if w.ordered {
		for i := range x.items {
			if !x.items[i].Keyless {
				ln := w.lanes[x.items[i].Key]
				ln.in, ln.batch = nil, true
			}
		}
	}
	w.closed = append(w.closed, Closed[T]{Items: x.items, Reason: reason, Opened: x.opened})
}

// Free says that all events of key in its batch are finished. Waiting events of the key fill at most one window.
func (w *Windows[T]) Free(now time.Time, key string) {
	if !w.ordered {
		return
	}
	ln := w.lanes[key]
	if ln == nil || !ln.batch {
		panic("window: Free of a key that is in no batch")
	}
	ln.batch = false
	w.refill(now, key, ln)
}

func (w *Windows[T]) refill(now time.Time, key string, ln *lane[T]) {
	for len(ln.waiting) > 0 && w.admit(now, ln, ln.waiting[0]) {
		ln.waiting = ln.waiting[1:]
		w.waiting--
	}
	if len(ln.waiting) == 0 {
		ln.waiting = nil
		if ln.in == nil && !ln.batch {
			delete(w.lanes, key)
		}
	}
}

// Expire closes the windows whose time is up.
func (w *Windows[T]) Expire(now time.Time) {
	for w.first != nil && !w.first.opened.Add(w.cfg.Timeout).After(now) {
		w.close(w.first, ByTimeout)
	}
}

// Next returns when Expire is due, and whether any window is open with a timeout.
func (w *Windows[T]) Next() (time.Time, bool) {
	if w.first == nil {
		return time.Time{}, false
	}
	return w.first.opened.Add(w.cfg.Timeout), true
}

// CloseOldest closes the window that opened first and reports whether there was one.
func (w *Windows[T]) CloseOldest(reason Reason) bool {
	if w.first == nil {
		return false
	}
	w.close(w.first, reason)
	return true
}

// CloseAll closes every open window.
func (w *Windows[T]) CloseAll(reason Reason) {
	for w.first != nil {
		w.close(w.first, reason)
	}
}

// CloseHolding closes the windows that hold events of the partition.
func (w *Windows[T]) CloseHolding(partition int, reason Reason) {
	for x := w.first; x != nil; {
		next := x.next
		for i := range x.items {
			if x.items[i].Partition == partition {
				w.close(x, reason)
				break
			}
		}
		x = next
	}
}

// Drop removes the events of the partition from all lanes and open windows and returns them.
func (w *Windows[T]) Drop(partition int) []Item[T] {
	var out []Item[T]
	split := func(items []Item[T]) []Item[T] {
		kept := items[:0]
		for _, it := range items {
			if it.Partition == partition {
				out = append(out, it)
				continue
			}
			kept = append(kept, it)
		}
		clear(items[len(kept):])
		return kept
	}
	touched := map[string]*lane[T]{}
	for x := w.first; x != nil; {
		next := x.next
		before := len(out)
		x.items = split(x.items)
		if len(out) > before {
			still := map[string]bool{}
			x.bytes = 0
			for _, it := range x.items {
				x.bytes += it.Size
				still[it.Key] = still[it.Key] || !it.Keyless
			}
			for _, it := range out[before:] {
				if !it.Keyless && w.ordered && !still[it.Key] {
					w.lanes[it.Key].in = nil
					touched[it.Key] = w.lanes[it.Key]
				}
			}
			if len(x.items) == 0 {
				w.unlink(x)
			}
		}
		x = next
	}
	for key, ln := range w.lanes {
		before := len(ln.waiting)
		ln.waiting = split(ln.waiting)
		if n := before - len(ln.waiting); n > 0 {
			w.waiting -= n
			touched[key] = ln
		}
	}
	for key, ln := range touched {
		if !ln.batch {
			w.refill(w.now, key, ln)
		}
	}
	return out
}

// Take returns the windows closed since the last call, in the order they closed. The slice is valid until the next Take; the batches are the caller's.
func (w *Windows[T]) Take() []Closed[T] {
	got := w.closed
	clear(w.spare)
	w.closed, w.spare = w.spare[:0], got
	return got
}

// OpenWindows returns the number of open windows.
func (w *Windows[T]) OpenWindows() int { return len(w.groups) }

// Lanes returns the number of keys with unfinished events.
func (w *Windows[T]) Lanes() int { return len(w.lanes) }

// Waiting returns the number of events that wait behind their key.
func (w *Windows[T]) Waiting() int { return w.waiting }
