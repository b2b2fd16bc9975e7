package streammanager

// queue is a first-in first-out list of flow groups that wait for a worker.
type queue struct {
	items [][]*flow
	head  int
}

func (q *queue) empty() bool { return q.head == len(q.items) }

func (q *queue) push(fs []*flow) { q.items = append(q.items, fs) }

func (q *queue) pop() []*flow {
	fs := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head*2 > len(q.items) {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	return fs
}
