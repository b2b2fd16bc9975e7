package window

import "math/bits"

// The structures here keep the steady state free of allocations. Spare parts are kept up to a bound, so
// that a flood of events does not hold its memory for ever.
const (
	maxSpare      = 1 << 14 // of each kind
	maxSpareItems = 1 << 16 // in all spare slices together
)

// links ties a node of type N into a list.
type links[N any] struct{ prev, next *N }

// list is a doubly linked list whose nodes hold their links, so that a node is removed in one step.
type list[N any, P interface {
	*N
	links() *links[N]
}] struct {
	first, last *N
	len         int
}

func (l *list[N, P]) push(n *N) {
	k := P(n).links()
	k.prev, k.next = l.last, nil
	if l.last == nil {
		l.first = n
	} else {
		P(l.last).links().next = n
	}
	l.last = n
	l.len++
}

func (l *list[N, P]) remove(n *N) {
	k := P(n).links()
	if k.prev == nil {
		l.first = k.next
	} else {
		P(k.prev).links().next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		P(k.next).links().prev = k.prev
	}
	*k = links[N]{}
	l.len--
}

// pool keeps structs for another use. They are put in as the next user wants to find them.
type pool[N any] struct{ spare []*N }

func (p *pool[N]) get() *N {
	if len(p.spare) == 0 {
		return new(N)
	}
	last := len(p.spare) - 1
	n := p.spare[last]
	p.spare[last] = nil
	p.spare = p.spare[:last]
	return n
}

func (p *pool[N]) put(n *N) {
	if len(p.spare) < maxSpare {
		p.spare = append(p.spare, n)
	}
}

// itemPool keeps slices of items by capacity: those in sizes[i] hold at least 1<<i items and less than
// twice that. So a window takes no slice much larger than it needs, however large earlier ones were.
type itemPool[T any] struct {
	sizes [bits.UintSize][][]Item[T]
	total int // capacity of all
}

// append is the built-in append, which takes room from the pool and gives room back to it.
func (p *itemPool[T]) append(items []Item[T], it *Item[T]) []Item[T] {
	if len(items) == cap(items) {
		larger := p.get(bits.Len(uint(len(items))))
		larger = append(larger, items...)
		p.put(items)
		items = larger
	}
	return append(items, *it)
}

// get returns an empty slice with room for 1<<size items.
func (p *itemPool[T]) get(size int) []Item[T] {
	spare := p.sizes[size]
	if len(spare) == 0 {
		return make([]Item[T], 0, 1<<size)
	}
	last := len(spare) - 1
	items := spare[last]
	spare[last] = nil
	p.sizes[size] = spare[:last]
	p.total -= cap(items)
	return items
}

func (p *itemPool[T]) put(items []Item[T]) {
	c := cap(items)
	if c == 0 || p.total+c > maxSpareItems {
		return
	}
	items = items[:c]
	clear(items) // also what the caller cut off: it must not keep events alive
	size := bits.Len(uint(c)) - 1
	p.sizes[size] = append(p.sizes[size], items[:0])
	p.total += c
}
