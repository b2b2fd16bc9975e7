package streammanager

import "container/heap"

// queue holds flow groups that wait for a worker. The event that was read first goes first: one that
// waited in a lane does not stand behind all that was read after it, or the committed prefix would
// stay behind by the whole queue for each event before it in the lane.
type queue struct {
	items  groups
	pushed uint64
}

// group is what one call takes.
type group struct {
	flows  []*flow
	order  uint64 // of the reading of the event that was read first
	pushed uint64 // among equals the first pushed goes first
}

func (q *queue) empty() bool { return len(q.items) == 0 }

func (q *queue) push(fs []*flow) {
	q.pushed++
	heap.Push(&q.items, group{flows: fs, order: firstRead(fs), pushed: q.pushed})
}

// firstRead is the order of the event of fs that was read first.
func firstRead(fs []*flow) uint64 {
	order := fs[0].u.order
	for _, f := range fs[1:] {
		order = min(order, f.u.order)
	}
	return order
}

func (q *queue) pop() []*flow { return heap.Pop(&q.items).(group).flows }

type groups []group

func (g groups) Len() int { return len(g) }
func (g groups) Less(i, j int) bool {
	return g[i].order < g[j].order || g[i].order == g[j].order && g[i].pushed < g[j].pushed
}
func (g groups) Swap(i, j int) { g[i], g[j] = g[j], g[i] }
func (g *groups) Push(x any)   { *g = append(*g, x.(group)) }
func (g *groups) Pop() any {
	old := *g
	last := old[len(old)-1]
	old[len(old)-1] = group{}
	*g = old[:len(old)-1]
	return last
}
