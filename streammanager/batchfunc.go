package streammanager

import (
	"cmp"
	"slices"
)

// settleBatch calls a BatchFunc when all events of the batch that do not wait have reached it, and
// measures the batch when its last call has ended.
func (l *loop) settleBatch(b *batch) {
	if b.active == 0 && len(b.arrived) > 0 {
		l.callBatch(b)
	}
	if b.open == 0 && !b.observed {
		b.observed = true
		l.s.metrics.batchDuration.Observe(l.now.Sub(b.dispatched).Seconds())
	}
}

// callBatch queues one call per BatchFunc that was reached.
func (l *loop) callBatch(b *batch) {
	groups := map[int][]*flow{}
	var order []int
	serial := l.s.cfg.Order == OrderKeySerial
	var later []*flow
	at := map[*keyState]int{} // the one step at which calls of a key may run
	sortFlows(b, b.arrived)
	for _, f := range b.arrived {
		if f.state != flowArrived {
			continue
		}
		if l.leftAlone(f.u) {
			l.giveUp(f)
			continue
		}
		if ks := f.u.ks; serial && !ks.loose {
			step, taken := at[ks]
			if ks.active > 0 || taken && step != f.step {
				later = append(later, f) // its key has a call ahead of it
				continue
			}
			at[ks] = f.step
		}
		if groups[f.step] == nil {
			order = append(order, f.step)
		}
		groups[f.step] = append(groups[f.step], f)
	}
	b.arrived = later
	for _, step := range order {
		fs := groups[step]
		sortFlows(b, fs)
		for _, f := range fs {
			f.state = flowReady
			b.active++
			if serial && !f.u.ks.loose {
				f.u.ks.active++
			}
		}
		l.fresh.push(fs)
	}
}

// sortFlows brings flows into the order of their events in the batch.
func sortFlows(b *batch, fs []*flow) {
	rank := make(map[*unit]int, len(b.units))
	for i, u := range b.units {
		rank[u] = i
	}
	slices.SortStableFunc(fs, func(x, y *flow) int { return cmp.Compare(rank[x.u], rank[y.u]) })
}
