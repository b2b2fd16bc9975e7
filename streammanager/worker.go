package streammanager

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/a0c75104/enricher/event"
)

// worker runs calls on the pool. It owns nothing that changes: all it finds out goes into the call's
// results, which the loop reads after the call was sent back.
type worker struct {
	s *Stream
}

// run carries out c and sends it back, also when the function panics or ends its goroutine.
func (w worker) run(c *call) { w.runFrom(c, 0) }

// runFrom carries out the flows of c from one on. A panic is the fault of its own flow alone, so that the
// others are carried on.
func (w worker) runFrom(c *call, at int) {
	finished := false
	defer func() {
		if finished {
			return
		}
		step := int(c.at.Load())
		why := "it ended its goroutine"
		if p := recover(); p != nil {
			why = fmt.Sprint(p)
		}
		w.s.log.Error("function panicked", "function", w.stepName(step), "panic", why, "stack", string(debug.Stack()))
		err := event.Rejectf(event.Panic, "function %q panicked: %.200s", w.stepName(step), why)
		if !c.batchStep {
			c.results[at] = result{step: step, err: err, tries: c.results[at].tries}
			w.runFrom(c, at+1)
			return
		}
		for i := range c.results {
			c.results[i] = result{step: step, err: err, tries: c.flows[i].attempts}
		}
		w.s.completions.send(completion{call: c})
	}()
	if c.batchStep {
		w.runBatch(c)
	} else {
		began := time.Now()
		for ; at < len(c.flows); at++ {
			f := c.flows[at]
			if f.u.pass {
				c.results[at] = result{step: len(w.s.steps), ended: true, records: []Record{*f.u.passed}}
				continue
			}
			w.runFlow(c, f.ev, f.step, f.attempts, &c.results[at])
			if c.inline != nil && (c.ctx.Err() != nil || time.Since(began) > handOver) {
				break // the loop takes the rest back
			}
		}
	}
	finished = true
	w.s.completions.send(completion{call: c})
}

func (r *result) done() bool { return r.ended || r.err != nil || r.events != nil || r.ev != nil }

func (w worker) stepName(i int) string {
	if i >= len(w.s.steps) {
		return "sink"
	}
	return w.s.steps[i].Name
}

// runFlow carries one event through the chain from step on, as far as needs no wait.
func (w worker) runFlow(c *call, ev *event.Event, step int, tries *event.Attempts, r *result) {
	for ; step < len(w.s.steps); step++ {
		if err := c.ctx.Err(); err != nil { // nobody waits for the result any more
			*r = result{step: step, ev: ev, err: err, tries: tries}
			return
		}
		st := &w.s.steps[step]
		c.at.Store(int32(step))
		if st.When != nil {
			yes, err := st.When(c.ctx, ev)
			if err != nil {
				*r = result{step: step, ev: ev, err: err, tries: tries}
				return
			}
			if !yes {
				tries = nil
				continue
			}
		}
		if st.Batch != nil {
			*r = result{step: step, ev: ev, tries: tries}
			return
		}
		if tries == nil {
			tries = event.NewAttempts(time.Now())
		}
		r.tries = tries // also of a call that panics
		out, err := w.call(c, st, event.WithAttempts(handOut(st.readOnly, ev), tries))
		if err != nil {
			*r = result{step: step, ev: ev, err: err, tries: tries}
			return
		}
		tries = nil
		switch {
		case len(out) == 0:
			*r = result{step: step, ended: true}
			return
		case len(out) > 1 && c.inline != nil:
			w.fanOut(c, out, step+1, r)
			return
		case len(out) > 1:
			*r = result{step: step + 1, events: out}
			return
		}
		ev = out[0]
	}
	w.prepare(c, ev, r)
}

// fanOut carries derived events of a chain without calls to its end, one after the other.
func (w worker) fanOut(c *call, evs []*event.Event, step int, r *result) {
	var records []Record
	var bytes int64
	for _, ev := range evs {
		var one result
		w.runFlow(c, ev, step, nil, &one)
		for i := range one.records {
			bytes += recordSize(&one.records[i])
		}
		if one.err != nil {
			*r = one
			return
		}
		if err := tooMuch(len(records)+len(one.records), bytes); err != nil {
			*r = result{step: step - 1, ev: ev, err: err}
			return
		}
		records = append(records, one.records...)
	}
	*r = result{step: len(w.s.steps), ended: true, records: records}
}

// What may become of one event: the limits of a stream see it only afterwards.
const (
	mostOutputs     = 10_000
	mostOutputBytes = 64 << 20
)

// tooMuch is the error of an event that becomes too many, or too much.
func tooMuch(outputs int, bytes int64) error {
	switch {
	case outputs > mostOutputs:
		return event.Rejectf(event.TooLarge, "the event becomes more than %d events", mostOutputs)
	case bytes > mostOutputBytes && outputs > 1:
		return event.Rejectf(event.TooLarge, "the event becomes more than %d bytes in %d events", mostOutputBytes, outputs)
	}
	return nil
}

// handOut gives a function an event of its own.
func handOut(readOnly bool, ev *event.Event) *event.Event {
	if readOnly {
		return ev.Share()
	}
	return ev.Clone()
}

func (w worker) call(c *call, st *step, ev *event.Event) ([]*event.Event, error) {
	ctx, cancel := w.limit(c, st)
	defer cancel()
	out, err := st.Func.Process(ctx, ev)
	if err != nil {
		return nil, w.deadlineError(ctx, c, st, err)
	}
	for _, o := range out {
		if o == nil {
			return nil, event.Rejectf(event.Function, "function %q returned a nil event", st.Name)
		}
	}
	c.room.keep(out)
	return out, nil
}

// limit bounds one call of st and tells the loop when to look whether it hangs.
func (w worker) limit(c *call, st *step) (context.Context, context.CancelFunc) {
	if st.Timeout <= 0 {
		c.deadline.Store(0)
		return c.ctx, func() {}
	}
	c.deadline.Store(int64(time.Since(w.s.started) + st.Timeout + grace))
	return event.WithTimeout(c.ctx, st.Timeout, nil)
}

// deadlineError turns the end of the call's own deadline into its outcome. Whether the stream ended the
// call is for the loop to say.
func (w worker) deadlineError(ctx context.Context, c *call, st *step, err error) error {
	if ctx.Err() == nil || c.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	var r *event.RejectError
	if errors.As(err, &r) {
		return err
	}
	return event.Reject(event.Timeout, fmt.Errorf("function %q did not return within %v: %w", st.Name, st.Timeout, err))
}

// runBatch calls a BatchFunc with all events of the call.
func (w worker) runBatch(c *call) {
	i := c.flows[0].step
	st := &w.s.steps[i]
	c.at.Store(int32(i))
	evs := make([]*event.Event, len(c.flows))
	for n, f := range c.flows {
		evs[n] = event.WithAttempts(handOut(st.readOnly, f.ev), f.attempts)
	}
	ctx, cancel := w.limit(c, st)
	defer cancel()
	got := st.Batch.ProcessBatch(ctx, evs)
	c.deadline.Store(0)
	if len(got) != len(evs) {
		err := event.Rejectf(event.Function, "function %q returned %d results for %d events", st.Name, len(got), len(evs))
		got = make([]event.Result, len(evs))
		for n := range got {
			got[n].Err = err
		}
	}
	for n, f := range c.flows {
		r := &c.results[n]
		switch {
		case got[n].Err != nil:
			*r = result{step: i, ev: f.ev, err: w.deadlineError(ctx, c, st, got[n].Err), tries: f.attempts}
		case slices.Contains(got[n].Events, nil):
			*r = result{step: i, ev: f.ev, err: event.Rejectf(event.Function, "function %q returned a nil event", st.Name), tries: f.attempts}
		case len(got[n].Events) == 0:
			*r = result{step: i, ended: true}
		case i+1 == len(w.s.steps) && len(got[n].Events) == 1:
			w.prepare(c, got[n].Events[0], r)
		default:
			*r = result{step: i + 1, events: got[n].Events}
		}
	}
}

// prepare makes the record of an event that has passed the chain.
func (w worker) prepare(c *call, ev *event.Event, r *result) {
	c.at.Store(int32(len(w.s.steps)))
	c.deadline.Store(0)
	if w.s.preparer == nil {
		*r = result{step: len(w.s.steps), ended: true, records: []Record{recordOf(ev)}}
		return
	}
	rec, err := w.s.preparer.Prepare(ev)
	if err != nil {
		*r = result{step: len(w.s.steps), ev: ev, err: err}
		return
	}
	*r = result{step: len(w.s.steps), ended: true, records: []Record{rec}}
}

func recordOf(ev *event.Event) Record {
	return Record{Key: ev.Key(), Value: ev.Value(), Headers: ev.Headers(), Timestamp: ev.Timestamp()}
}
