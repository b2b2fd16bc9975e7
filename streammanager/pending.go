package streammanager

// pend notes that a record was admitted, as one whose outcome is still to count or not.
func (p *partition) pend(outcome bool) {
	switch {
	case !outcome:
	case p.rereads > 0: // it was read before, in an epoch that was given up
		p.rereads--
	default:
		p.pending++
	}
}

// pending counts the events that were read of what is assigned, and have no outcome that counted.
func (l *loop) pending() (n int64) {
	for p := range l.parts {
		n += int64(p.pending)
	}
	for tp := range l.rewind.offsets { // between two epochs
		n += int64(l.rewind.pending[tp])
	}
	return n
}
