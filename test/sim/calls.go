package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// grace is what a call may run over its deadline before it counts as abandoned.
const grace = 2 * time.Second

// begins checks a call of a function that may wait.
func (b *books) begins(step int, ids []ID) *running {
	b.l.calls++
	r := &running{step: step, ids: ids, began: time.Now(), held: map[ID]*holding{}}
	for _, id := range ids {
		r.held[id] = b.held[id]
	}
	if b.dead || b.light {
		return r
	}
	b.l.note("%s calls %s with %v", b.name, b.l.plan.steps[step].name, ids)
	b.busy(r)
	first := false
	for _, id := range ids {
		h := b.held[id]
		if h == nil {
			if b.stranger(id) {
				b.l.breach("%s calls %s for %v, which it does not hold", b.name, b.l.plan.steps[step].name, id)
			}
			continue
		}
		first = first || !h.called
		if !h.called && b.laned(h.in) {
			b.alone(id, h)
		}
	}
	if b.l.plan.steps[step].batch {
		b.batch(ids, first)
	}
	for _, id := range ids {
		if h := b.held[id]; h != nil {
			h.called = true
		}
	}
	b.running[r] = struct{}{}
	return r
}

// busy checks the number of calls in progress, and that those for one key do not overlap.
func (b *books) busy(r *running) {
	plan := b.l.plan
	n := 1
	for other := range b.running {
		if time.Since(other.began) >= plan.steps[other.step].timeout+grace {
			continue // abandoned
		}
		n++
		if plan.set.order != streammanager.OrderKeySerial {
			continue
		}
		for _, id := range r.ids {
			for _, with := range other.ids {
				if b.sameKey(id, with) {
					b.l.breach("%s: calls for %v and %v of one key overlap under key_serial", b.name, with, id)
				}
			}
		}
	}
	if n > plan.set.workers {
		b.l.breach("%s: %d calls in progress, workers: %d", b.name, n, plan.set.workers)
	}
}

func (b *books) sameKey(one, other ID) bool {
	x, y := b.held[one], b.held[other]
	return x != nil && y != nil && b.laned(x.in) && b.laned(y.in) && x.in.lane == y.in.lane
}

// alone checks that nothing is called for an event while an earlier batch of its key is unfinished: of the
// unfinished events before it, with itself, no more can be held than fit one window.
func (b *books) alone(id ID, h *holding) {
	cfg := b.l.plan.set.window
	most := cfg.Count
	if cfg.Timeout == 0 && most == 0 {
		most = 1
	}
	events, bytes, before := 1, int64(h.in.size()), []ID(nil)
	for other, o := range b.heldBy[h.in.lane] {
		if other.Partition == id.Partition && other.Offset < id.Offset {
			events++
			before = append(before, other)
			bytes += int64(o.in.size())
		}
	}
	if most > 0 && events > most || cfg.Bytes > 0 && events > 1 && bytes > cfg.Bytes {
		b.l.breach("%s calls a function for %v while %v before it of key %q are unfinished: more than fit a window (%d bytes)", b.name, id, before, h.in.lane, bytes)
	}
}

// batch checks the bounds of a window.
func (b *books) batch(ids []ID, first bool) {
	cfg := b.l.plan.set.window
	slices.SortFunc(ids, compareID)
	distinct := slices.Compact(slices.Clone(ids))
	bytes, read, known := int64(0), time.Now(), 0
	for _, id := range distinct {
		bytes += int64(b.l.plan.byID[id].size())
		if h := b.held[id]; h != nil {
			known++
			if h.readAt.Before(read) {
				read = h.readAt
			}
		}
	}
	most := cfg.Count
	if cfg.Timeout == 0 && most == 0 {
		most = 1
	}
	if most > 0 && len(distinct) > most {
		b.l.breach("%s: a batch of %d events, count: %d", b.name, len(distinct), most)
	}
	if cfg.Bytes > 0 && len(distinct) > 1 && bytes > cfg.Bytes {
		b.l.breach("%s: a batch of %d bytes, bytes: %d", b.name, bytes, cfg.Bytes)
	}
	if !first || !read.After(b.disturbed) || cfg.Eager || cfg.Bytes > 0 || cfg.Timeout == 0 || known < len(distinct) || most > 0 && len(distinct) >= most {
		return
	}
	// Events before it in the chain may have been dropped, so only the first function can tell.
	if b.l.plan.steps[0].batch && !b.someSkip(b.l.plan.byID[distinct[0]], read) && time.Since(read) < cfg.Timeout && b.onlyTimers() {
		b.l.breach("%s: a window of %v closed after %v, before its timeout of %v, with %d events", b.name, distinct, time.Since(read), cfg.Timeout, len(distinct))
	}
}

// someSkip reports whether an event that goes untouched past the first function may have filled or opened
// the window of an event since a time.
func (b *books) someSkip(of *input, since time.Time) bool {
	class := b.class(of)
	if !b.skipped[class].Before(since) {
		return true
	}
	for _, h := range b.held {
		if h.in.skips() && b.class(h.in) == class {
			return true
		}
	}
	return false
}

// class tells the windows apart that an event may be in.
func (b *books) class(in *input) string {
	class := "key " + in.lane
	if in.kind == keyless {
		class = "no key " + strconv.Itoa(int(in.id.Partition))
	}
	if !b.l.plan.set.byGroup {
		return class
	}
	if in.kind == keyless {
		return class + in.group
	}
	return in.group
}

// skips reports whether an event is in a window without being called for at its close.
func (in *input) skips() bool {
	return in.value == nil || len(in.acts) > 0 && in.acts[0].kind == actSkip
}

// onlyTimers reports whether nothing but counts and timers has closed a window of this worker.
func (b *books) onlyTimers() bool {
	for _, r := range []window.Reason{window.ByLimits, window.ByDrain, window.ByBarrier, window.ByEager, window.ByTransaction} {
		if b.closedN(r) > 0 {
			return false
		}
	}
	return true
}

func compareID(a, b ID) int {
	if a.Partition != b.Partition {
		return int(a.Partition - b.Partition)
	}
	return int(a.Offset - b.Offset)
}

func (b *books) ends(r *running) {
	b.l.note("%s: %s returns with %v", b.name, b.l.plan.steps[r.step].name, r.ids)
	delete(b.running, r)
}

// current returns what is held of an event if it is what the call got: it may have been read again since.
func (b *books) current(r *running, id ID) *holding {
	if h := b.held[id]; h != nil && h == r.held[id] {
		return h
	}
	return nil
}

// stops notes that the stream must end for an event, or for all of the call. r is nil for a function that
// does not wait.
func (b *books) stops(r *running, id ID, all bool) {
	b.l.note("%s: %v is to stop the stream", b.name, id)
	b.culprits[id] = true
	if r == nil {
		return
	}
	ids := []ID{id}
	if all {
		ids = r.ids
	}
	for _, id := range ids {
		b.culprits[id] = true
		if h := b.current(r, id); h != nil {
			h.stops = true
		}
	}
}

// goesOn notes that an event need not stop the stream any more.
func (b *books) goesOn(r *running, id ID) {
	if h := b.current(r, id); h != nil {
		h.stops = false
	}
}

// endsAll notes that all events of a call must end as one of them does.
func (b *books) endsAll(r *running, as outcome) {
	for _, id := range r.ids {
		if h := b.current(r, id); h != nil {
			h.shared = append(h.shared, as)
		} else if !b.light {
			continue
		}
		b.l.shared[id] = append(b.l.shared[id], as)
	}
}
