package kafka

// gap is a range of offsets that are not in the log.
type gap struct{ from, to int64 }

// behind returns where to go on from at: not inside the gap, which would be passed over, said and counted anew.
func (g gap) behind(at int64) int64 {
	if at >= g.from && at < g.to {
		return g.to
	}
	return at
}

// overlap returns how many offsets of the gap are in from to to.
func (g gap) overlap(from, to int64) int64 { return max(0, min(g.to, to)-max(g.from, from)) }
