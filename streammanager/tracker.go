package streammanager

// tracker follows one partition in one epoch: what was delivered, what of it is finished, and the
// contiguous finished prefix, which is all that may be committed. Offsets that the broker never
// delivers (compaction, aborted transactions) are not pending.
type tracker struct {
	entries []tracked // a ring of the delivered records from the first unfinished one on
	head    int
	length  int
	first   uint64  // number of the record at head
	next    int64   // the offset to go on from once everything delivered is finished
	before  []Range // what was finished when the partition was assigned; as far as it is not delivered
	version uint64  // counts what snapshots may show beyond the position
}

type tracked struct {
	offset   int64
	time     int64 // the record's timestamp in ms
	finished bool
	kept     bool // finished, and need not be processed again
}

func newTracker(start Position) tracker { return tracker{next: start.Offset, before: start.Finished} }

// deliver adds a record and returns its number.
func (t *tracker) deliver(offset, timeMillis int64) uint64 {
	if t.length == len(t.entries) {
		t.grow()
	}
	t.entries[(t.head+t.length)%len(t.entries)] = tracked{offset: offset, time: timeMillis}
	t.length++
	t.next = offset + 1
	return t.first + uint64(t.length) - 1
}

// finish marks a delivered record. Finishing one twice does nothing.
func (t *tracker) finish(number uint64) {
	if number < t.first {
		return
	}
	t.entries[(t.head+int(number-t.first))%len(t.entries)].finished = true
	for t.length > 0 && t.entries[t.head].finished {
		t.head = (t.head + 1) % len(t.entries)
		t.length--
		t.first++
	}
}

// keep lets a finished record be passed over when it is read again.
func (t *tracker) keep(number uint64) {
	if number < t.first {
		return
	}
	t.entries[(t.head+int(number-t.first))%len(t.entries)].kept = true
	t.version++
}

// snapshot returns the position with what is finished beyond it. Where there are too many ranges the nearest
// are told.
func (t *tracker) snapshot() Position {
	at := Position{Offset: t.position()}
	open := false // the last range reaches to the record before
	for i := 0; i < t.length && len(at.Finished) <= mostRanges; i++ {
		e := &t.entries[(t.head+i)%len(t.entries)]
		switch {
		case e.kept && open:
			at.Finished[len(at.Finished)-1].To = e.offset + 1 // across offsets that hold no record
		case e.kept:
			at.Finished = append(at.Finished, Range{e.offset, e.offset + 1})
		}
		open = e.kept
	}
	for i := 0; i < len(t.before) && len(at.Finished) <= mostRanges; i++ {
		r := Range{max(t.before[i].From, t.next), t.before[i].To}
		switch {
		case r.From >= r.To:
			continue
		case open && r.From == t.next:
			at.Finished[len(at.Finished)-1].To = r.To
		default:
			at.Finished = append(at.Finished, r)
		}
		open = false
	}
	at.Finished = at.Finished[:min(len(at.Finished), mostRanges)]
	return at
}

// position is the offset of the next record to read after a restart: that of the first unfinished one.
func (t *tracker) position() int64 {
	if t.length == 0 {
		return t.next
	}
	return t.entries[t.head].offset
}

// oldest returns the timestamp of the first unfinished record.
func (t *tracker) oldest() (ms int64, ok bool) {
	if t.length == 0 {
		return 0, false
	}
	return t.entries[t.head].time, true
}

// isHead reports whether all records before number are finished.
func (t *tracker) isHead(number uint64) bool { return number == t.first }

func (t *tracker) grow() {
	bigger := make([]tracked, max(64, 2*len(t.entries)))
	for i := range t.length {
		bigger[i] = t.entries[(t.head+i)%len(t.entries)]
	}
	t.entries, t.head = bigger, 0
}
