package window

// Drop removes the events of the partition from all lanes and open windows and returns them, those of
// a key in the order they were added. The slice is the caller's.
//
// A window that loses its last event vanishes without having closed; one that loses only its first
// keeps its time, so that nothing stays longer than the timeout. Batches, also those that Take has not
// returned yet, are not touched: their keys stay taken until they are freed. Events of other partitions
// that had waited only for dropped ones enter; a window they open counts from the latest time that any
// call was given.
func (w *Windows[T]) Drop(partition int) []Item[T] {
	var dropped []Item[T]
	for o := w.byAge.first; o != nil && w.inside[partition] > 0; {
		next := o.link.next
		dropped = w.dropOpen(o, partition, dropped)
		o = next
	}
	for l := w.blocked.first; l != nil; {
		next := l.link.next // filling a lane moves no other lane
		dropped = w.dropWaiting(l, partition, dropped)
		w.fill(l)
		l = next
	}
	return dropped
}

// dropOpen removes the events of the partition from a window.
func (w *Windows[T]) dropOpen(o *openWindow[T], partition int, dropped []Item[T]) []Item[T] {
	kept := o.items[:0]
	for i := range o.items {
		it := &o.items[i]
		if it.Partition != partition {
			kept = append(kept, *it)
			continue
		}
		dropped = append(dropped, *it)
		o.bytes -= it.Size
		w.outside(partition)
		w.dropFromLane(it)
	}
	clear(o.items[len(kept):])
	o.items = kept
	if len(kept) == 0 {
		w.spareItems.put(kept)
		w.retire(o, &dropped[len(dropped)-1])
	}
	return dropped
}

// dropFromLane tells the lane of an event that its window lost it.
func (w *Windows[T]) dropFromLane(it *Item[T]) {
	if it.Keyless || !w.ordered {
		return
	}
	l := w.lanes[it.Key]
	if l.events--; l.events > 0 {
		return
	}
	l.leave()
	if l.head == nil {
		w.fill(l) // frees the lane; one with waiting events is filled when those were dropped too
	}
}

// dropWaiting removes the events of the partition from a lane.
func (w *Windows[T]) dropWaiting(l *lane[T], partition int, dropped []Item[T]) []Item[T] {
	var last *waiter[T]
	for n := l.head; n != nil; {
		next := n.next
		if n.item.Partition != partition {
			last = n
			n = next
			continue
		}
		dropped = append(dropped, n.item)
		if last == nil {
			l.head = next
		} else {
			last.next = next
		}
		w.waiting--
		*n = waiter[T]{}
		w.spareWaiters.put(n)
		n = next
	}
	l.tail = last
	if l.head == nil {
		w.blocked.remove(l)
	}
	return dropped
}
