package streammanager

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/a0c75104/enricher/event"
)

// account is the room for answers within in_flight_bytes. Calls reserve it while they run, beside the loop: a
// message there and back for each piece of an answer would cost more than the piece, and the loop could be late.
// The loop says what inputs and outputs take, and reads what answers hold.
//
// Room goes to the event that was read first, of those whose calls ask for it. One of them may stand over the limit,
// or calls that each have a part of their answer would wait for each other for ever.
type account struct {
	limit int64
	wake  func() // tells the loop that a call waits

	mu      sync.Mutex // guards all below, and the rooms
	counted int64      // inputs and outputs, as the loop said last
	held    int64      // by calls
	over    *room      // the one that may stand over the limit
	waits   []*wait    // in the order of reading
}

// room is what one call holds. It implements event.Room.
type room struct {
	a     *account
	call  *call
	order uint64 // of the reading of its first event

	held    int64
	most    int64
	waiting int
	since   time.Time // of the first wait
	closed  bool      // the call has ended, or nobody waits for it

	// Of a call that has ended; the loop's.
	ended bool
	flows []*flow
	told  bool // it ended well: that it held nothing says what calls hold

	// What it made and still stands: the order of the last event of it that is not on its way to a sink, if there is one.
	stuck bool
	last  uint64
}

// wait is a reservation that waits.
type wait struct {
	r     *room
	n     int64
	done  chan struct{} // closed when it was answered
	given bool
}

var errRoomClosed = errors.New("reserving room: the call has ended")

// Take implements event.Room.
func (r *room) Take(n int64) bool {
	took := r.a.take(r, n)
	if took {
		makeWay(n)
	}
	return took
}

func (a *account) take(r *room, n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.closed || r != a.over && len(a.waits) > 0 && a.waits[0].r.order <= r.order || !a.fits(r, n) {
		return false
	}
	a.grant(r, n)
	return true
}

// Wait implements event.Room.
func (r *room) Wait(ctx context.Context, n int64) error {
	w := &wait{r: r, n: n, done: make(chan struct{})}
	if err := r.a.queue(w); err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	if err := r.a.end(ctx, w); err != nil {
		return err
	}
	makeWay(n)
	return nil
}

// queue puts w into the order of reading.
func (a *account) queue(w *wait) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := w.r
	if r.closed {
		return errRoomClosed
	}
	if r.waiting++; r.waiting == 1 {
		r.since = time.Now()
	}
	at := slices.IndexFunc(a.waits, func(other *wait) bool { return other.r.order > r.order })
	if at < 0 {
		at = len(a.waits)
	}
	a.waits = slices.Insert(a.waits, at, w)
	a.serve()
	if !w.given {
		a.wake()
	}
	return nil
}

// end is the end of a wait, whatever ended it.
func (a *account) end(ctx context.Context, w *wait) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := w.r
	if r.waiting--; r.waiting == 0 && !r.closed && r.call.deadline.Load() > 0 {
		// Before the loop can see that nothing waits: it would take the time that was waited for the call's.
		r.call.deadline.Add(int64(time.Since(r.since)))
	}
	switch {
	case r.closed:
		return errRoomClosed
	case ctx.Err() != nil && w.given:
		a.give(r, w.n)
		return ctx.Err()
	case !w.given:
		a.drop(w)
		a.serve() // others may have waited behind it alone
		return ctx.Err()
	}
	return nil
}

// drop takes a wait out that was not answered.
func (a *account) drop(w *wait) {
	if at := slices.Index(a.waits, w); at >= 0 {
		a.waits = slices.Delete(a.waits, at, at+1)
	}
}

// blocked counts the calls that wait. Those of one call stand together.
func (a *account) blocked() int {
	n := 0
	for i, w := range a.waits {
		if i == 0 || w.r != a.waits[i-1].r {
			n++
		}
	}
	return n
}

// keep gives back what a function did not release and its events do not take.
func (r *room) keep(evs []*event.Event) {
	if r == nil {
		return
	}
	size := int64(0)
	for _, ev := range evs {
		size += int64(ev.Size())
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if r.held > size && !r.closed {
		r.a.give(r, r.held-size)
	}
}

// Give implements event.Room.
func (r *room) Give(n int64) {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if !r.closed {
		r.a.give(r, n)
	}
}

func (a *account) give(r *room, n int64) {
	n = min(n, r.held)
	r.held -= n
	a.held -= n
	if a.over == r && r.held == 0 {
		a.over = nil
	}
	a.serve()
}

func (a *account) grant(r *room, n int64) {
	a.held += n
	r.held += n
	r.most = max(r.most, r.held)
}

// fits reports whether r may have n bytes more, and lets it stand over the limit where no other does. One whose call
// has ended gives way to events that were read before it: they may be what it waits for, unless it is on its way already.
func (a *account) fits(r *room, n int64) bool {
	switch {
	case r == a.over, a.counted+a.held+n <= a.limit:
		return true
	case a.over == nil, a.over.stuck && r.order <= a.over.last:
		a.over = r
		return true
	}
	return false
}

// serve answers those waits for which there is room: the first in the order of reading, and those of the call that may
// stand over the limit.
func (a *account) serve() {
	if a.counted+a.held <= a.limit {
		a.over = nil
	}
	for i := 0; i < len(a.waits); {
		w := a.waits[i]
		if w.r != a.over && (i > 0 || !a.fits(w.r, w.n)) {
			i++
			continue
		}
		a.grant(w.r, w.n)
		w.given = true
		a.waits = slices.Delete(a.waits, i, i+1)
		close(w.done)
		i = 0
	}
}

// close gives back what r holds and ends its waits.
func (a *account) close(r *room) {
	a.held -= r.held
	r.held, r.closed = 0, true
	for i := 0; i < len(a.waits); {
		if w := a.waits[i]; w.r == r {
			a.waits = slices.Delete(a.waits, i, i+1)
			close(w.done)
			continue
		}
		i++
	}
}

// waits reports whether the call of r waits for room, so that its time stands still.
func (r *room) waits() bool {
	if r == nil {
		return false
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	return r.waiting > 0
}

// roomState is what the loop knows of the account.
type roomState struct {
	back    []*room  // of calls that have ended since it was told last
	held    int64    // by answers
	told    int64    // bytes that the account was told of
	blocked int      // calls that wait
	stuck   bool     // what a call made that has ended stands over the limit, and not on its way
	last    uint64   // of its events, by the order of reading
	sizes   estimate // of what a call holds at most
}

// returnRoom gives back what a call holds: its outputs are counted now.
func (l *loop) returnRoom(c *call) {
	r := c.room
	if r == nil || r.ended { // it was abandoned before
		return
	}
	r.ended, r.flows = true, c.flows
	r.told = !c.abandoned && !slices.ContainsFunc(c.results, func(res result) bool { return res.err != nil })
	l.answers.back = append(l.answers.back, r)
}

// settleRoom tells the account what there is, and learns how it stands.
func (l *loop) settleRoom() {
	st, a := &l.answers, l.s.room
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range st.back {
		a.close(r)
		r.call = nil
		if r.most > 0 || r.told {
			st.sizes.learn(r.most)
		}
		if r != a.over {
			r.flows = nil
		}
	}
	clear(st.back)
	st.back = st.back[:0]
	a.counted = l.bytes
	if o := a.over; o != nil && o.closed && !o.stands() {
		a.over = nil
	}
	a.serve()
	st.held, st.told, st.blocked = a.held, l.bytes, a.blocked()
	if st.stuck = a.over != nil && a.over.stuck; st.stuck {
		st.last = a.over.last
	}
}

// stands reports whether what a call made still stands over the limit, and finds out what of it is stuck: not on its way to
// a sink, where it makes room by itself.
func (r *room) stands() bool {
	stands := false
	r.stuck, r.last = false, 0
	for _, f := range r.flows {
		if !f.u.stands() {
			continue
		}
		stands = true
		if f.u.state != unitLeaving {
			r.stuck, r.last = true, max(r.last, f.u.order)
		}
	}
	return stands
}

// stands reports whether what functions made of u takes room: it is on its way, or waits for its turn. What waits for
// the rest of its batch does not count: they must come too.
func (u *unit) stands() bool {
	if u.state == unitFinished || u.size <= u.input {
		return false
	}
	return u.state != unitRunning || !slices.ContainsFunc(u.flows, func(f *flow) bool { return f.state == flowArrived })
}

// forAnswers is what is kept free of inputs, so that calls do not wait for each other: what they hold by a mean of the
// last, and before that is known, half of the limit, which is the most in any case.
func (l *loop) forAnswers() int64 {
	half := l.s.cfg.Limits.InFlightBytes / 2
	switch {
	case l.s.inline:
		return 0
	case l.answers.sizes.known == 0:
		return half
	}
	return min(half, int64(l.answers.sizes.mean*float64(l.workers)))
}

// lends reports whether one more call than there are workers may start. Where all of them wait for room, what they wait
// for stands over the limit, and may itself wait for a call: its own next try, which is due, or one of an event that was
// read before it. Any later event would only take the worker from these.
func (l *loop) lends() bool {
	st := &l.answers
	if l.busy != l.limitOfWorkers() || !st.stuck || st.blocked < l.busy-l.hung {
		return false
	}
	q := l.eldest()
	return q != nil && q.items[0].order <= st.last
}

// eldest is the queue whose first was read first, nil where both are empty.
func (l *loop) eldest() *queue {
	switch {
	case l.again.empty() && l.fresh.empty():
		return nil
	case l.fresh.empty(), !l.again.empty() && l.again.items[0].order <= l.fresh.items[0].order:
		return &l.again
	}
	return &l.fresh
}

// holdEvent counts what functions have made of an event while it waits on its way: between two tries of a later step, or
// for its batch. nil: it waits no more, or is what was read.
func (l *loop) holdEvent(f *flow) {
	n := int64(0)
	if f.state != flowEnded && f.ev != nil && f.ev != f.u.ev {
		n = int64(f.ev.Size())
	}
	if n == f.kept || f.u.state == unitFinished {
		return
	}
	l.bytes += n - f.kept
	f.u.size += n - f.kept
	f.u.part.bytes += n - f.kept
	f.kept = n
}
