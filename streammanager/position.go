package streammanager

// Position is how far a partition has come.
type Position struct {
	// Offset is that of the next record to read: all before it is finished.
	Offset int64
	// Finished are the offsets beyond it that need not be processed again, in ascending ranges that do not
	// touch. It may hold fewer than are finished. Whoever gets it must not change it.
	Finished []Range
}

// Range is the offsets from From up to To, without To.
type Range struct{ From, To int64 }

// covered counts the offsets in ranges.
func covered(ranges []Range) (n int64) {
	for _, r := range ranges {
		n += r.To - r.From
	}
	return n
}

// mostRanges bounds the ranges of a position. What keeps them has hardly room for more.
const mostRanges = 2048

// mark is a position to be kept, and the state of the tracker that it pictures.
type mark struct {
	Position
	version uint64
}

// mark pictures offset and ranges together: ranges belong to no other offset than that beside them.
func (p *partition) mark() mark { return mark{p.tracker.snapshot(), p.tracker.version} }

// ahead reports whether there is more to keep than was kept.
func (p *partition) ahead() bool {
	return p.tracker.position() > p.committed || p.tracker.version > p.pictured
}

// kept notes that a mark was kept.
func (p *partition) kept(m mark) {
	p.committed, p.pictured = max(p.committed, m.Offset), max(p.pictured, m.version)
	p.base = m.Position
}

// finishedBefore reports whether a record's outcome was known when p was assigned. The reader asks, in the
// order of the offsets.
func (p *partition) finishedBefore(offset int64) bool {
	for len(p.before) > 0 && p.before[0].To <= offset {
		p.before = p.before[1:]
	}
	return len(p.before) > 0 && p.before[0].From <= offset
}
