package window

import "time"

// Closed is a window that closed: a batch to be dispatched.
type Closed[T any] struct {
	Items  []Item[T] // in the order they entered; never empty
	Reason Reason
	Opened time.Time // when the first event entered
}

// openWindow gathers events of one group.
type openWindow[T any] struct {
	items  []Item[T]
	bytes  int64
	group  string
	opened time.Time
	life   uint64 // counts the windows that this struct has been
	link   links[openWindow[T]]
}

// looseGroup names the window of events without a key.
type looseGroup struct {
	partition int
	group     string
}

func (o *openWindow[T]) links() *links[openWindow[T]] { return &o.link }

// enter puts an event into the open window of its group; l is the lane of its key, nil if it has
// none. It reports false where making room closed the very window that the key is in: then the key is
// in a batch, and the event has to wait.
func (w *Windows[T]) enter(l *lane[T], it *Item[T]) bool {
	o := w.find(it)
	if o != nil && it.Size > w.maxBytes-o.bytes {
		w.close(o, ByBytes)
		if l != nil && l.inBatch() {
			return false
		}
		o = nil
	}
	if o == nil {
		o = w.open(it)
	}
	o.items = w.spareItems.append(o.items, it)
	o.bytes += it.Size
	w.inside[it.Partition]++
	if l != nil {
		l.join(o)
	}
	switch {
	case len(o.items) >= w.maxCount:
		w.close(o, ByCount)
	case o.bytes >= w.maxBytes:
		w.close(o, ByBytes)
	}
	return true
}

// find returns the open window of the event's group, nil if there is none.
func (w *Windows[T]) find(it *Item[T]) *openWindow[T] {
	if it.Keyless {
		return w.keyless[looseGroup{it.Partition, it.Group}]
	}
	return w.keyed[it.Group]
}

func (w *Windows[T]) open(it *Item[T]) *openWindow[T] {
	o := w.spareWindows.get()
	o.group, o.opened = it.Group, w.now
	if it.Keyless {
		w.keyless[looseGroup{it.Partition, it.Group}] = o
	} else {
		w.keyed[it.Group] = o
	}
	w.byAge.push(o)
	return o
}

// close makes a batch of an open window.
func (w *Windows[T]) close(o *openWindow[T], reason Reason) {
	for i := range o.items {
		w.outside(o.items[i].Partition)
	}
	w.closed = append(w.closed, Closed[T]{Items: o.items, Reason: reason, Opened: o.opened})
	w.retire(o, &o.items[0])
}

// retire takes the window out of the open ones; first is an event of it. Whatever still points to the
// window sees by its life that it is gone.
func (w *Windows[T]) retire(o *openWindow[T], first *Item[T]) {
	if first.Keyless {
		delete(w.keyless, looseGroup{first.Partition, first.Group})
	} else {
		delete(w.keyed, first.Group)
	}
	w.byAge.remove(o)
	*o = openWindow[T]{life: o.life + 1}
	w.spareWindows.put(o)
}

// outside notes that an event of the partition left the open windows.
func (w *Windows[T]) outside(partition int) {
	if n := w.inside[partition]; n > 1 {
		w.inside[partition] = n - 1
	} else {
		delete(w.inside, partition)
	}
}

// Expire closes the windows whose time is up. It does nothing when called too early or late, so a
// timer need not be taken back when its window closes.
func (w *Windows[T]) Expire(now time.Time) {
	w.tick(now)
	for o := w.byAge.first; o != nil && w.now.Sub(o.opened) >= w.timeout; o = w.byAge.first {
		w.close(o, ByTimeout)
	}
}

// Next returns when Expire is due, and whether any window is open with a timeout.
func (w *Windows[T]) Next() (time.Time, bool) {
	if w.byAge.first == nil {
		return time.Time{}, false
	}
	return w.byAge.first.opened.Add(w.timeout), true
}

// CloseOldest closes the window that opened first and reports whether there was one.
func (w *Windows[T]) CloseOldest(reason Reason) bool {
	if w.byAge.first == nil {
		return false
	}
	w.close(w.byAge.first, reason)
	return true
}

// CloseAll closes every open window, the oldest first. Waiting events stay in their lanes until their
// key is freed.
func (w *Windows[T]) CloseAll(reason Reason) {
	for w.CloseOldest(reason) {
	}
}

// CloseHolding closes the windows that hold events of the partition, the oldest first.
func (w *Windows[T]) CloseHolding(partition int, reason Reason) {
	for o := w.byAge.first; o != nil && w.inside[partition] > 0; {
		next := o.link.next
		if holds(o.items, partition) {
			w.close(o, reason)
		}
		o = next
	}
}

func holds[T any](items []Item[T], partition int) bool {
	for i := range items {
		if items[i].Partition == partition {
			return true
		}
	}
	return false
}
