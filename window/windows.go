package window

import (
	"fmt"
	"time"
)

// Item is one event in a lane or window.
type Item[T any] struct {
	Value     T
	Key       string // compared by content
	Keyless   bool   // no lane; Key means nothing
	Group     string // events of equal Group share a window; with no `by` the caller sets it to Key
	Partition int    // the caller's number of the partition; also parts the windows of keyless items
	Size      int64  // in bytes, not negative
}

// Windows holds all lanes and open windows of one stream. It is not safe for concurrent use.
type Windows[T any] struct {
	maxCount int
	maxBytes int64
	timeout  time.Duration
	ordered  bool // there are lanes

	now time.Time // the latest time that any call was given

	lanes   map[string]*lane[T]           // by key
	blocked list[lane[T], *lane[T]]       // the lanes with waiting events
	waiting int                           // events in all of them
	keyed   map[string]*openWindow[T]     // the open windows by group
	keyless map[looseGroup]*openWindow[T] // those of events without a key
	byAge   list[openWindow[T], *openWindow[T]]
	inside  map[int]int // events in open windows by partition

	closed []Closed[T] // since the last Take
	taken  []Closed[T] // what the last Take returned

	spareLanes   pool[lane[T]]
	spareWaiters pool[waiter[T]]
	spareWindows pool[openWindow[T]]
	spareItems   itemPool[T]
}

// New returns an empty set. Without lanes (no order) events never wait for their key.
func New[T any](cfg Config, lanes bool) (*Windows[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("checking the window: %w", err)
	}
	count, bytes := cfg.bounds()
	return &Windows[T]{
		maxCount: count,
		maxBytes: bytes,
		timeout:  cfg.Timeout,
		ordered:  lanes,
		lanes:    make(map[string]*lane[T]),
		keyed:    make(map[string]*openWindow[T]),
		keyless:  make(map[looseGroup]*openWindow[T]),
		inside:   make(map[int]int),
	}, nil
}

// Add takes one event: into the open window of its group, or behind its key's lane. Events of a key
// are added in their order. It returns the partition of the key's event before, -1 where none of the key
// is unfinished or there is no lane.
func (w *Windows[T]) Add(now time.Time, it Item[T]) (before int) {
	w.tick(now)
	if it.Keyless || !w.ordered {
		w.enter(nil, &it)
		return -1
	}
	l := w.lanes[it.Key]
	before = -1
	if l == nil {
		l = w.newLane(it.Key)
	} else {
		before = l.latest
	}
	l.latest = it.Partition
	if l.head != nil || !l.admits(it.Group) || !w.enter(l, &it) {
		w.wait(l, it)
	}
	return before
}

// Free says that all events of key in its batch are finished. Waiting events of the key fill at most
// one window. It is called once per key of a batch, never for keyless events, and does nothing where
// there are no lanes. Freeing a key that is in no batch is a programmer's mistake and panics, since a
// key freed twice would lose its order.
func (w *Windows[T]) Free(now time.Time, key string) {
	w.tick(now)
	if !w.ordered {
		return
	}
	l := w.lanes[key]
	if l == nil || !l.inBatch() {
		panic(fmt.Sprintf("window: freeing key %q, which is in no batch", key))
	}
	l.leave()
	w.fill(l)
}

// Recycle takes back the slice of a batch, so that later windows need no new one. It is optional. The
// caller uses neither items nor its backing array afterwards.
func (w *Windows[T]) Recycle(items []Item[T]) { w.spareItems.put(items) }

// Take returns the windows closed since the last call, in the order they closed. The slice is valid
// until the next Take; the batches are the caller's.
func (w *Windows[T]) Take() []Closed[T] {
	clear(w.taken) // else a batch would be held as long as the stream is quiet
	w.closed, w.taken = w.taken[:0], w.closed
	return w.taken
}

// OpenWindows returns the number of open windows.
func (w *Windows[T]) OpenWindows() int { return w.byAge.len }

// Lanes returns the number of keys with unfinished events.
func (w *Windows[T]) Lanes() int { return len(w.lanes) }

// Waiting returns the number of events that wait behind their key.
func (w *Windows[T]) Waiting() int { return w.waiting }

// tick notes the time. It never goes back, which keeps the open windows in the order they expire.
func (w *Windows[T]) tick(now time.Time) {
	if now.After(w.now) {
		w.now = now
	}
}
