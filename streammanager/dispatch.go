package streammanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/a0c75104/enricher/event"
)

// grace is what a call may run over its deadline before it is abandoned.
const grace = 2 * time.Second

// inlineChunk bounds how many events of a partition one task of a chain without calls takes.
const inlineChunk = 256

// queue is a first-in first-out list of flow groups that wait for a worker.
type queue struct {
	items [][]*flow
	head  int
}

func (q *queue) empty() bool { return q.head == len(q.items) }

func (q *queue) push(fs []*flow) { q.items = append(q.items, fs) }

func (q *queue) pop() []*flow {
	fs := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head*2 > len(q.items) {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	return fs
}

// dispatchClosed turns windows that closed into batches.
func (l *loop) dispatchClosed() {
	for _, c := range l.windows.Take() {
		l.s.metrics.closed.WithLabelValues(string(c.Reason)).Inc()
		l.s.metrics.batchEvents.Observe(float64(len(c.Items)))
		b := &batch{keys: make(map[string]*keyState, 1), dispatched: l.now, open: len(c.Items)}
		for i := range c.Items {
			u := c.Items[i].Value
			b.units = append(b.units, u)
			u.state = unitRunning
			u.part.running++
			l.join(b, u)
		}
		for _, u := range b.units {
			if slices.Contains(u.ks.gaps, u.part) {
				l.unitDone(u) // one before it stays unfinished, so must it
				continue
			}
			f := &flow{u: u, ev: u.ev}
			u.flows = []*flow{f}
			u.open = 1
			if u.pass {
				f.step = len(l.s.steps)
				rec := recordOf(u.ev)
				f.out = &rec
				l.endFlow(f)
				continue
			}
			l.ready(f, false)
		}
		l.settleBatch(b)
	}
}

// join adds u to the state of its key in b.
func (l *loop) join(b *batch, u *unit) {
	loose := u.loose || l.s.cfg.Order == OrderNone
	if loose {
		u.ks = &keyState{b: b, loose: true, units: []*unit{u}, left: 1}
		return
	}
	ks := b.keys[u.key]
	if ks == nil {
		ks = &keyState{b: b, key: u.key, gaps: l.gapped[u.key]}
		b.keys[u.key] = ks
	} else if ks.units[0].part.tp != u.part.tp {
		l.s.warnTwoPartitions(ks.units[0], u)
	}
	u.ks = ks
	ks.units = append(ks.units, u)
	ks.left++
}

// ready queues a flow for a worker, behind the flow of its key that is at work if calls must not overlap.
func (l *loop) ready(f *flow, before bool) {
	ks := f.u.ks
	if l.s.cfg.Order == OrderKeySerial && !ks.loose {
		if ks.active > 0 {
			f.state = flowSerial
			if before {
				ks.serial = append([]*flow{f}, ks.serial...)
			} else {
				ks.serial = append(ks.serial, f)
			}
			return
		}
		ks.active++
	}
	f.state = flowReady
	ks.b.active++
	l.fresh.push([]*flow{f})
}

// leaveWork says that f needs no worker any more, for now or for good.
func (l *loop) leaveWork(f *flow) {
	ks := f.u.ks
	if l.s.cfg.Order != OrderKeySerial || ks.loose {
		return
	}
	ks.active--
	for ks.active == 0 && len(ks.serial) > 0 {
		next := ks.serial[0]
		ks.serial = ks.serial[1:]
		if next.state == flowSerial {
			l.ready(next, false)
		}
	}
}

func (l *loop) limitOfWorkers() int { return l.s.cfg.Workers + l.hung }

// start hands waiting work to idle workers: what was called before goes first.
func (l *loop) start() {
	for l.busy < l.limitOfWorkers() && l.mode != ended {
		var fs []*flow
		switch {
		case !l.again.empty():
			fs = l.again.pop()
		case !l.fresh.empty():
			fs = l.fresh.pop()
		case len(l.turn) > 0:
			l.startInline()
			continue
		default:
			return
		}
		fs = l.wanted(fs)
		if len(fs) > 0 {
			l.startCall(fs)
		}
	}
}

// wanted leaves out the flows of partitions that were taken away meanwhile.
func (l *loop) wanted(fs []*flow) []*flow {
	kept := fs[:0]
	for _, f := range fs {
		if f.state != flowReady {
			continue
		}
		if l.leftAlone(f.u) || f.u.failure != nil {
			f.u.ks.b.active--
			l.giveUp(f)
			continue
		}
		kept = append(kept, f)
	}
	if len(kept) == 0 && len(fs) > 0 {
		l.settleBatch(fs[0].u.ks.b)
	}
	return kept
}

// leftAlone reports whether nothing new may be started for u.
func (l *loop) leftAlone(u *unit) bool {
	return !u.part.live.Load() || u.part.revoking || l.failure != nil || u.state == unitFinished
}

func (l *loop) startCall(fs []*flow) {
	st := l.s.steps
	c := &call{flows: fs, batchStep: fs[0].step < len(st) && st[fs[0].step].Batch != nil && fs[0].attempts != nil}
	for _, f := range fs {
		f.state = flowRunning
		f.u.calls++
	}
	l.launch(c, fs[0].step)
}

// startInline runs the waiting events of one partition through a chain without calls, in their order.
func (l *loop) startInline() {
	p := l.turn[0]
	l.turn = l.turn[1:]
	if p.busy || len(p.queue) == 0 {
		return
	}
	n := min(len(p.queue), inlineChunk)
	c := &call{inline: p, flows: make([]*flow, n)}
	flows := make([]flow, n)
	for i, u := range p.queue[:n] {
		flows[i] = flow{u: u, ev: u.ev, state: flowRunning}
		if u.pass {
			flows[i].step = len(l.s.steps)
		}
		c.flows[i] = &flows[i]
		u.state = unitRunning
		u.calls++
		p.running++
	}
	p.queue = p.queue[n:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	p.busy = true
	l.launch(c, 0)
}

func (l *loop) launch(c *call, step int) {
	c.results = make([]result, len(c.flows))
	c.ctx, c.cancel = context.WithCancel(l.s.callCtx)
	c.at.Store(int32(step))
	l.busy++
	l.calls[c] = true
	if !l.s.submit(func() { worker{l.s}.run(c) }) {
		l.fail(errors.New("worker pool refused a call; this is a fault of the program"))
		return
	}
	if step < len(l.s.steps) && c.inline == nil {
		if soonest := l.soonestTimeout(step); soonest > 0 {
			l.timers.add(&timer{at: l.now.Add(soonest + grace), call: c})
		}
	}
}

// soonestTimeout is the shortest time after which a call that starts at step may hang: the worker goes on
// to later steps without telling.
func (l *loop) soonestTimeout(step int) time.Duration {
	soonest := time.Duration(0)
	for _, st := range l.s.steps[step:] {
		if st.Timeout > 0 && (soonest == 0 || st.Timeout < soonest) {
			soonest = st.Timeout
		}
	}
	return soonest
}

// returned takes a call back from its worker.
func (l *loop) returned(c *call) {
	c.returned = true
	c.cancel()
	l.busy--
	delete(l.calls, c)
	if c.abandoned {
		l.hung--
		l.s.resize(l.limitOfWorkers())
		return
	}
	if c.inline != nil {
		l.returnedInline(c)
		return
	}
	b := c.flows[0].u.ks.b
	b.active -= len(c.flows)
	var waiting []*flow
	latest := l.now
	for i, f := range c.flows {
		f.u.calls--
		if at, waits := l.apply(f, &c.results[i]); waits {
			waiting = append(waiting, f)
			if at.After(latest) {
				latest = at
			}
		}
	}
	if len(waiting) > 0 {
		l.timers.add(&timer{at: latest, flows: waiting})
	}
	l.settleBatch(b)
}

// apply takes the result of one flow. It reports when the flow is to be tried again, if it is.
func (l *loop) apply(f *flow, r *result) (time.Time, bool) {
	u := f.u
	if u.state != unitRunning {
		f.state = flowEnded
		l.leaveWork(f)
		return time.Time{}, false
	}
	if u.failure != nil || !u.part.live.Load() {
		l.giveUp(f)
		return time.Time{}, false
	}
	switch {
	case r.err != nil:
		return l.applyError(f, r)
	case r.ended:
		l.leaveWork(f)
		l.fork(f, r)
	case r.events != nil:
		l.leaveWork(f)
		l.derive(f, r)
	default: // reached a BatchFunc
		f.ev, f.step, f.attempts = r.ev, r.step, r.tries
		if f.attempts == nil {
			f.attempts = event.NewAttempts(l.now)
		}
		f.state = flowArrived
		l.leaveWork(f)
		u.ks.b.arrived = append(u.ks.b.arrived, f)
	}
	return time.Time{}, false
}

// fork ends a flow with no, one or (chains without calls aside, only through derive) several outputs.
func (l *loop) fork(f *flow, r *result) {
	if len(r.records) == 0 {
		l.remove(f)
		l.endFlow(f)
		return
	}
	f.out = &r.records[0]
	l.countOutput(f)
	l.endFlow(f)
}

// countOutput adds an output to the limits.
func (l *loop) countOutput(f *flow) {
	n := recordSize(f.out)
	f.u.size += n
	f.u.part.bytes += n
	l.bytes += n
}

// derive puts the events that a function made of one in its place.
func (l *loop) derive(f *flow, r *result) {
	u := f.u
	made := make([]*flow, len(r.events))
	for i, ev := range r.events {
		made[i] = &flow{u: u, ev: ev, step: r.step}
	}
	for i, old := range u.flows {
		if old == f {
			u.flows = append(u.flows[:i:i], append(made, u.flows[i+1:]...)...)
			break
		}
	}
	f.state = flowEnded
	u.open += len(made) - 1
	for i := len(made) - 1; i >= 0; i-- {
		if l.s.cfg.Order == OrderKeySerial && !u.ks.loose {
			u.ks.serial = append([]*flow{made[i]}, u.ks.serial...)
			made[i].state = flowSerial
		}
	}
	if l.s.cfg.Order == OrderKeySerial && !u.ks.loose {
		u.ks.active++
		l.leaveWork(f)
		return
	}
	for _, m := range made {
		l.ready(m, false)
	}
}

// remove takes a flow without output out of its unit.
func (l *loop) remove(f *flow) {
	for i, old := range f.u.flows {
		if old == f {
			f.u.flows = append(f.u.flows[:i:i], f.u.flows[i+1:]...)
			return
		}
	}
}

// applyError finds out what an error means for the flow and its unit.
func (l *loop) applyError(f *flow, r *result) (time.Time, bool) {
	u := f.u
	name, limit := "sink", 1
	if r.step < len(l.s.steps) {
		name, limit = l.s.steps[r.step].Name, l.s.steps[r.step].Attempts
	}
	f.attempts = r.tries
	var fatal *event.FatalError
	if errors.As(r.err, &fatal) {
		l.giveUp(f)
		l.fail(fmt.Errorf("function %q at %s: %w", name, where(u.ev.Position()), r.err))
		return time.Time{}, false
	}
	var retry *event.RetryError
	var hold *event.HoldError
	again := errors.As(r.err, &retry) && f.attempts != nil && (limit < 0 || f.attempts.Number() < limit)
	if again || errors.As(r.err, &hold) && f.attempts != nil {
		at := l.now
		if again {
			f.attempts.Add(1)
			at = at.Add(max(0, retry.After))
		} else if hold.Until.After(at) {
			at = hold.Until
		}
		if u.part.revoking || l.failure != nil || l.mode == draining && !l.until.IsZero() && at.After(l.until) {
			l.giveUp(f)
			return time.Time{}, false
		}
		f.ev, f.step, f.state = r.ev, r.step, flowWaiting
		return at, true
	}
	if l.endedByStream(r.err) {
		l.giveUp(f)
		return time.Time{}, false
	}
	attempts, status := 0, 0
	if f.attempts != nil {
		attempts, status = f.attempts.Number(), f.attempts.LastStatus()
	}
	u.failure = l.s.failure(u, r.err, name, attempts, status)
	l.giveUp(f)
	return time.Time{}, false
}

// endedByStream reports whether an error is the end of the stream's own context and not the call's.
func (l *loop) endedByStream(err error) bool {
	return l.s.callCtx.Err() != nil && errors.Is(err, context.Canceled)
}

// giveUp ends a flow without output. Its unit failed, or becomes unfinished when its calls are back.
func (l *loop) giveUp(f *flow) {
	if f.state == flowEnded {
		return
	}
	wasWorking := f.state != flowArrived && f.state != flowSerial
	if f.state == flowSerial {
		f.state = flowEnded
	}
	l.endFlow(f)
	if wasWorking {
		l.leaveWork(f)
	}
}

// endFlow marks a flow as at its end, and the unit when it was the last.
func (l *loop) endFlow(f *flow) {
	f.state = flowEnded
	u := f.u
	u.open--
	if u.failure != nil || u.open > 0 && l.leftAlone(u) {
		// The other flows of a failed unit are not carried on.
		for _, other := range u.flows {
			if other.state != flowEnded && other.state != flowRunning && other.state != flowReady {
				serial := other.state == flowWaiting
				other.state = flowEnded
				u.open--
				if serial {
					l.leaveWork(other)
				}
			}
		}
	}
	if u.open == 0 {
		l.unitDone(u)
	}
}

// unitDone notes that no function is at work on u any more, and hands on what is next of its key.
func (l *loop) unitDone(u *unit) {
	if u.state != unitRunning {
		return
	}
	u.state = unitDone
	ks := u.ks
	ks.b.open--
	for ks.release < len(ks.units) && ks.units[ks.release].state >= unitDone {
		next := ks.units[ks.release]
		ks.release++
		l.hand(next)
	}
}

// hand sends a unit whose turn has come to the emitter, or gives it its outcome.
func (l *loop) hand(u *unit) {
	switch {
	case u.state == unitFinished:
	case !u.part.live.Load() || u.failure == nil && u.gaveUp() || slices.Contains(u.ks.gaps, u.part):
		if !u.ks.loose {
			u.ks.gaps = append(u.ks.gaps, u.part)
		}
		u.part.running--
		l.finish(u, "")
	case u.failure == nil && len(u.flows) == 0:
		u.part.running--
		l.finish(u, outcomeDropped)
	default:
		l.leave(u)
	}
}

// gaveUp reports whether a flow ended without an output and without being dropped: dropped flows are
// taken out of the unit.
func (u *unit) gaveUp() bool {
	for _, f := range u.flows {
		if !f.hasOutput() {
			return true
		}
	}
	return false
}

func (f *flow) hasOutput() bool { return f.state == flowEnded && f.out != nil }

// leave gives a unit to the emitter: its outputs or its error event.
func (l *loop) leave(u *unit) {
	u.state = unitLeaving
	if u.failure != nil {
		l.leaveFailed(u)
		return
	}
	records := make([]Record, len(u.flows))
	clean := false
	for i, f := range u.flows {
		records[i] = *f.out
		clean = clean || hasErrorHeaders(f.out.Headers)
	}
	if clean {
		for i := range records {
			records[i].Headers = withoutErrorHeaders(records[i].Headers)
		}
	}
	l.leaving++
	l.s.emissions.send(emission{u: u, records: records})
}

// leaveFailed sends the error event, or says what on_error wants where there is no error sink.
func (l *loop) leaveFailed(u *unit) {
	if l.s.errorSink != nil {
		l.leaving++
		l.s.emissions.send(emission{u: u, failure: u.failure})
		return
	}
	u.part.running--
	f := u.failure
	if l.s.cfg.OnError == OnErrorDrop {
		l.s.log.Warn("event dropped: it failed and there is no error sink", "topic", u.part.tp.Topic, "partition", u.part.tp.Partition,
			"offset", u.ev.Position().Offset, "type", string(f.Type), "function", f.Function, "err", f.Message)
		l.s.metrics.failed(f)
		l.finish(u, outcomeError)
		return
	}
	l.finish(u, "")
	l.fail(fmt.Errorf("event at %s failed in %s: %s: %s (set error_sink, or on_error: drop)", where(u.ev.Position()), f.Function, f.Type, f.Message))
}

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
