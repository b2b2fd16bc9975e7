package streammanager

// pend notes that a record was admitted, as one whose outcome is still to count or not.
func (l *loop) pend(p *partition, outcome bool) {
	switch {
	case !outcome:
	case p.rereads > 0: // it was read before, in an epoch that was given up
		p.rereads--
		l.giveBack(p.hop, 1)
	default:
		p.pending++
	}
}

// giveBack counts events that were read and are read again: what was read is what has an outcome, what is unfinished, and
// these. Of those that come out of a repartition topic none counts: they do not count as read either.
func (l *loop) giveBack(hop hop, n int) {
	if hop != secondHop {
		l.s.metrics.counts.Returned += int64(n)
	}
}

// notReturned has the end of an epoch return nothing of p: its events are kept as unfinished, until they are read again.
func (p *partition) notReturned() (pending int) {
	pending, p.pending = p.pending, 0
	return pending
}

// forgetRewind leaves a partition out of the way back that was taken away meanwhile.
func (l *loop) forgetRewind(tp TopicPartition) {
	if _, ok := l.rewind.offsets[tp]; ok {
		l.giveBack(l.s.assigned.through.hop(tp), l.rewind.pending[tp])
		delete(l.rewind.offsets, tp)
	}
}

// pending counts the events that were read of what is assigned, and have no outcome that counted; in are those of them that
// have not come out of a repartition topic.
func (l *loop) pending() (n, in int64) {
	add := func(hop hop, pending int) {
		n += int64(pending)
		if hop != secondHop {
			in += int64(pending)
		}
	}
	for p := range l.parts {
		add(p.hop, p.pending)
	}
	for tp := range l.rewind.offsets { // between two epochs
		add(l.s.assigned.through.hop(tp), l.rewind.pending[tp])
	}
	return n, in
}
