package sim

import (
	"time"

	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// books are what the ledger keeps of one worker. The ledger's mutex guards them.
type books struct {
	l    *Ledger
	name string
	dead bool // what it does is not looked at: it has crashed and reaches nobody, or see DrawOnce
	// killed says that it has crashed.
	killed bool
	// light: nothing is noted of single events; see way.
	light bool
	// pending are the events that are finished if the transaction is committed; nil without transactions.
	pending map[ID]bool
	// disturbed is when windows last may have lost events to a change of the assignment.
	disturbed time.Time

	parts   map[int32]*owned
	ended   map[int32]time.Time // when a partition was let go or set back
	held    map[ID]*holding
	heldBy  map[string]map[ID]*holding // by lane, keyed events only
	last    map[string]map[int32]int64 // by lane and source partition: the last offset sent
	lastOf  map[int32]int64            // by source partition
	skipped map[string]time.Time       // by class of window: when one was last held that skips the first function
	running map[*running]struct{}
	closedN func(window.Reason) float64 // windows closed so far by the worker's own metrics
	// culprits are the events for which the stream was to end.
	culprits map[ID]bool
	// committing are the partitions of which a commit is under way.
	committing map[int32]bool
	// anew is what the stream will pass over of partitions that it is about to set back.
	anew map[int32][]streammanager.Range
}

// owned is a partition in one epoch.
type owned struct {
	next     int64
	revoking bool
	before   []streammanager.Range // what the stream passes over, since it is finished
}

// holding is an event that a worker has read and not finished.
type holding struct {
	in     *input
	want   outcome
	readAt time.Time
	acks   int
	drops  int
	called bool
	stops  bool      // the stream must end before it is finished
	shared []outcome // what calls for others have made of it
}

// running is a call in progress.
type running struct {
	step  int
	ids   []ID
	began time.Time
	held  map[ID]*holding // when it began
}

func newBooks(l *Ledger, name string) *books {
	var pending map[ID]bool
	if l.plan.exactlyOnce {
		pending = map[ID]bool{}
	}
	return &books{
		light: l.plan.light(), pending: pending,
		l: l, name: name, parts: map[int32]*owned{}, ended: map[int32]time.Time{}, held: map[ID]*holding{},
		heldBy: map[string]map[ID]*holding{}, last: map[string]map[int32]int64{}, lastOf: map[int32]int64{}, running: map[*running]struct{}{},
		skipped: map[string]time.Time{}, culprits: map[ID]bool{},
		committing: map[int32]bool{}, anew: map[int32][]streammanager.Range{},
		closedN: func(window.Reason) float64 { return 0 },
	}
}

// unseen reports whether an event may have its outcome without the ledger seeing it.
func (b *books) unseen(id ID) bool {
	return !b.l.plan.set.errorSink && b.l.plan.expect(b.l.plan.byID[id]).failed()
}

// stranger reports whether a worker has something to do with an event that it does not hold, at a time
// when it must know.
func (b *books) stranger(id ID) bool {
	at, ok := b.ended[id.Partition]
	return (!ok || at.Before(time.Now())) && !b.unseen(id)
}

// forget drops what is held of a partition from an offset on.
func (b *books) forget(partition int32, from int64) {
	for id, h := range b.held {
		if id.Partition == partition && id.Offset >= from {
			b.release(id, h)
		}
	}
	for _, last := range b.last {
		if at, ok := last[partition]; ok {
			last[partition] = min(at, from-1)
		}
	}
	if at, ok := b.lastOf[partition]; ok {
		b.lastOf[partition] = min(at, from-1)
	}
	b.ended[partition] = time.Now()
}

func (b *books) release(id ID, h *holding) {
	delete(b.held, id)
	if h.in.skips() {
		b.skipped[b.class(h.in)] = time.Now()
	}
	if lane := b.heldBy[h.in.lane]; lane != nil {
		delete(lane, id)
	}
}

func (b *books) assigned(partition int32, start streammanager.Position) {
	b.forget(partition, 0)
	b.l.assigned[partition]++
	delete(b.anew, partition)
	b.parts[partition] = &owned{next: start.Offset, before: start.Finished}
	b.l.note("%s assigned %d from %d %v", b.name, partition, start.Offset, start.Finished)
	switch c := b.l.committed[partition]; {
	case start.Offset >= c || b.dead:
	case b.l.plan.has(garble) && start.Offset == 0: // it seems to be of another topic
		b.l.committed[partition] = 0
	case b.l.plan.has(trim, compaction): // of a log that holds nothing, the broker in memory says that it has lost records
	default:
		b.l.breach("%s: partition %d starts at %d although %d is committed", b.name, partition, start.Offset, c)
	}
	if b.pending != nil {
		// Whether the answer to a commit came is of no matter: what lies before is committed.
		for o := b.l.after(partition, b.l.committed[partition]); o < start.Offset; o = b.l.after(partition, o+1) {
			b.l.finish(ID{partition, o})
		}
		b.l.committed[partition] = max(b.l.committed[partition], start.Offset)
	}
}

// finish notes that an event has had its outcome.
func (b *books) finish(id ID) {
	if b.pending != nil {
		b.pending[id] = true
		return
	}
	b.l.finish(id)
}

// passesOver reports whether the stream knows an event for finished, and checks that it is.
func (b *books) passesOver(o *owned, id ID) bool {
	for _, r := range o.before {
		if id.Offset < r.From || id.Offset >= r.To {
			continue
		}
		if !b.l.finished[id] {
			b.l.breach("%s passes over %v, which is not finished", b.name, id)
		}
		b.l.passed++
		return true
	}
	return false
}

func (b *books) letGo(partition int32, how string) {
	b.forget(partition, 0)
	b.disturbed = time.Now()
	delete(b.parts, partition)
	delete(b.anew, partition)
	b.l.note("%s %s %d", b.name, how, partition)
}

func (b *books) rewound(partition int32, to int64) {
	b.l.note("%s sets %d back to %d", b.name, partition, to)
	b.disturbed = time.Now()
	if o := b.parts[partition]; o != nil {
		b.forget(partition, to)
		o.next = to
		if before, ok := b.anew[partition]; ok {
			o.before = before
			delete(b.anew, partition)
		}
	}
}

// read notes a record that the source delivered.
func (b *books) read(id ID) {
	o, in := b.parts[id.Partition], b.l.plan.byID[id]
	if o == nil || o.revoking || id.Offset < o.next || id.Offset > b.l.after(id.Partition, o.next) || b.dead {
		b.l.note("%s read %v out of turn", b.name, id)
		return // from before a change of the assignment; the stream must not use it
	}
	o.next = id.Offset + 1
	if b.passesOver(o, id) {
		return
	}
	b.l.delivered[id]++
	b.l.note("%s read %v: %v", b.name, id, in)
	want := b.l.plan.expect(in)
	h := &holding{in: in, want: want, readAt: time.Now()}
	if b.atOnce(in, want) {
		b.finish(id)
		return
	}
	b.held[id] = h
	if b.laned(in) {
		if b.heldBy[in.lane] == nil {
			b.heldBy[in.lane] = map[ID]*holding{}
		}
		b.heldBy[in.lane][id] = h
	}
	if n, limit := b.inFlight(), b.l.plan.set.limits.InFlightEvents; limit > 0 && n > limit {
		b.l.breach("%s: %d events in flight, the limit is %d", b.name, n, limit)
	}
}

// inFlight counts the events that count in the limits. Those of a partition that is being given back are
// let go one by one, which the ledger does not see.
func (b *books) inFlight() int {
	n := 0
	for id := range b.held {
		if o := b.parts[id.Partition]; o != nil && !o.revoking {
			n++
		}
	}
	return n
}

// atOnce reports whether the stream may take an event for finished without the ledger seeing it.
func (b *books) atOnce(in *input, want outcome) bool {
	set := b.l.plan.set
	switch {
	case want.failed():
		return !set.errorSink
	case want.outputs > 0:
		return false
	}
	return in.value == nil || in.filtered || in.kind == keyDropped
}

// laned reports whether an event waits for its key.
func (b *books) laned(in *input) bool {
	if in.kind != keyed || !b.l.plan.lanes() {
		return false
	}
	set := b.l.plan.set
	return in.value != nil || !set.byValue && set.tombstones == streammanager.TombstonesPass
}

// drops notes that a function dropped an event.
func (b *books) drops(id ID) {
	h := b.held[id]
	if h == nil || b.dead {
		return
	}
	if h.drops++; h.drops == h.want.drops {
		b.release(id, h)
		b.finish(id)
	}
}

// acked notes that a sink holds one record of an event. h is what was held of it when it was sent: what was
// read again since must be written again.
func (b *books) acked(id ID, h *holding, failed bool) {
	if h == nil || h != b.held[id] || b.dead {
		return
	}
	h.acks++
	if failed || h.acks == h.want.outputs {
		b.release(id, h)
		b.finish(id)
	}
}

// sending checks a record on its way to a sink and returns what is held of its event.
func (b *books) sending(id ID, failed bool) *holding {
	h := b.held[id]
	if b.dead || b.light {
		return h
	}
	if h == nil {
		if b.stranger(id) {
			b.l.breach("%s sends %v, which it does not hold", b.name, id)
		}
		return nil
	}
	b.l.note("%s sends %v (error %v)", b.name, id, failed)
	switch want := h.want; {
	case h.stops:
		b.l.breach("%s sends %v, for which it was to stop", b.name, id)
	case len(h.shared) > 0 && !failed:
		b.l.breach("%s sends %v, whose call ended with %+v", b.name, id, h.shared)
	case len(h.shared) == 0 && failed != want.failed() && !(h.in.poison && !failed):
		b.l.breach("%s sends %v as error=%v, want %+v", b.name, id, failed, want)
	}
	b.barriers(id, h)
	if failed || b.l.plan.set.order == streammanager.OrderNone {
		return h
	}
	if b.l.plan.inlineOnly() {
		b.inOrder(id, "partition", b.lastOf)
	}
	if h.in.kind == keyed {
		if b.last[h.in.lane] == nil {
			b.last[h.in.lane] = map[int32]int64{}
		}
		b.inOrder(id, "key "+h.in.lane, b.last[h.in.lane])
	}
	return h
}

func (b *books) inOrder(id ID, of string, last map[int32]int64) {
	if before, ok := last[id.Partition]; ok && before > id.Offset {
		b.l.breach("%s sends %v after %v of the same %s", b.name, id, ID{id.Partition, before}, of)
	}
	last[id.Partition] = id.Offset
}

// barriers checks that a tombstone whose key is unknown leaves after all before it and before all behind
// it in its partition.
func (b *books) barriers(id ID, h *holding) {
	set := b.l.plan.set
	if !set.byValue || set.tombstones != streammanager.TombstonesPass || b.l.plan.inlineOnly() {
		return
	}
	for other, o := range b.held {
		if other.Partition != id.Partition || other.Offset >= id.Offset {
			continue
		}
		if h.in.value == nil || o.in.value == nil {
			b.l.breach("%s sends %v although %v before it is not finished, and one of them is a tombstone", b.name, id, other)
		}
	}
}
