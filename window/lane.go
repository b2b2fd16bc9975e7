package window

// lane is a key with unfinished events. The key is in an open window, or in a batch, and behind that
// its later events wait. Between two calls it is never idle: an idle key has no lane.
type lane[T any] struct {
	key    string
	latest int // partition of the event that was added last

	// The window that the key is in, and which of its lives: the struct is used again after the
	// window closed, so a life that has passed means that the window is a batch now. Closing a window
	// therefore touches none of its lanes.
	window *openWindow[T]
	life   uint64
	events int // in that window or batch

	head, tail *waiter[T]     // events that wait, in their order
	link       links[lane[T]] // in Windows.blocked while there are any
}

// waiter is an event that waits in a lane.
type waiter[T any] struct {
	item Item[T]
	next *waiter[T]
}

func (l *lane[T]) links() *links[lane[T]] { return &l.link }

func (l *lane[T]) idle() bool    { return l.window == nil }
func (l *lane[T]) inBatch() bool { return l.window != nil && l.life != l.window.life }

// admits reports whether the key's next event may enter a window of its group: all unfinished events
// before it are in that window, or there are none.
func (l *lane[T]) admits(group string) bool {
	return l.idle() || !l.inBatch() && l.window.group == group
}

// join notes that one more event of the key is in o.
func (l *lane[T]) join(o *openWindow[T]) {
	l.window, l.life = o, o.life
	l.events++
}

// leave makes the key idle.
func (l *lane[T]) leave() { l.window, l.events = nil, 0 }

func (w *Windows[T]) newLane(key string) *lane[T] {
	l := w.spareLanes.get()
	l.key = key
	w.lanes[key] = l
	return l
}

// wait puts an event at the end of its lane.
func (w *Windows[T]) wait(l *lane[T], it Item[T]) {
	n := w.spareWaiters.get()
	n.item = it
	if l.head == nil {
		l.head = n
		w.blocked.push(l)
	} else {
		l.tail.next = n
	}
	l.tail = n
	w.waiting++
}

// fill lets waiting events of the key enter, in order, as far as the rules allow: never more than one
// window. A key that has nothing left inside loses its lane.
func (w *Windows[T]) fill(l *lane[T]) {
	for l.head != nil && l.admits(l.head.item.Group) && w.enter(l, &l.head.item) {
		w.shift(l)
	}
	if l.head == nil && l.idle() {
		delete(w.lanes, l.key)
		*l = lane[T]{}
		w.spareLanes.put(l)
	}
}

// shift removes the first waiting event.
func (w *Windows[T]) shift(l *lane[T]) {
	n := l.head
	l.head = n.next
	if l.head == nil {
		l.tail = nil
		w.blocked.remove(l)
	}
	w.waiting--
	*n = waiter[T]{}
	w.spareWaiters.put(n)
}
