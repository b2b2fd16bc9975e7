package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a0c75104/enricher/event"
)

// api is what all functions of all workers call: it may be slow or down.
type api struct {
	mu   sync.Mutex // guards all below
	slow int        // times
	down time.Time  // until then
}

func (a *api) set(slow int, down time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slow, a.down = slow, down
}

func (a *api) state() (slow int, down time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(1, a.slow), a.down
}

// function is one function of the chain in one worker.
type function struct {
	step int
	plan *Plan
	b    *books
	api  *api
	// mended says that what stops streams was mended.
	mended *atomic.Bool
	// end lets calls return that would hang on after the simulation.
	end <-chan struct{}
}

var errAPI = errors.New("the api says no")

// enter notes a call. What comes back is nil for a function that does not wait.
func (f *function) enter(ids []ID) (*running, func()) {
	if f.plan.steps[f.step].inline {
		return nil, func() {}
	}
	f.b.l.mu.Lock()
	r := f.b.begins(f.step, ids)
	f.b.l.mu.Unlock()
	return r, func() {
		f.b.l.mu.Lock()
		defer f.b.l.mu.Unlock()
		f.b.ends(r)
	}
}

// Process implements event.Func.
func (f *function) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	id, in := f.input(ev)
	r, leave := f.enter([]ID{id})
	defer leave()
	a := f.now(in)
	slow, down := f.api.state()
	if err := f.sleep(ctx, f.late(a.latency, slow)); err != nil {
		return nil, err
	}
	if now := time.Now(); down.After(now) && !f.plan.steps[f.step].inline {
		return nil, event.Hold(errAPI, down.Add(time.Duration(hash(id.String())%1000)*time.Millisecond))
	}
	f.foretell(r, id, a)
	return f.act(ctx, ev, in, a)
}

// now is what the function does with an event as it is: mended or not.
func (f *function) now(in *input) act {
	a := in.acts[f.step]
	if a.stops && f.mended.Load() {
		a.kind, a.stops = actOK, false
	}
	return a
}

// foretell tells the ledger what the act for one event means beyond it.
func (f *function) foretell(r *running, id ID, a act) {
	f.b.l.mu.Lock()
	defer f.b.l.mu.Unlock()
	switch {
	case a.stops:
		f.b.stops(r, id, a.ofAll())
	case r != nil && a.ofAll() && f.plan.steps[f.step].batch:
		f.b.endsAll(r, f.plan.steps[f.step].ends(a))
	case r != nil:
		f.b.goesOn(r, id)
	}
}

// ProcessBatch implements event.BatchFunc.
func (f *function) ProcessBatch(ctx context.Context, evs []*event.Event) []event.Result {
	ids := make([]ID, len(evs))
	latency := time.Duration(0)
	for i, ev := range evs {
		id, in := f.input(ev)
		ids[i] = id
		latency = max(latency, in.acts[f.step].latency)
	}
	r, leave := f.enter(slices.Clone(ids))
	defer leave()
	results := make([]event.Result, len(evs))
	slow, down := f.api.state()
	err := f.sleep(ctx, f.late(latency, slow))
	if err == nil && down.After(time.Now()) {
		err = event.Hold(errAPI, down)
	}
	if err == nil {
		err = f.together(ctx, r, ids, evs)
	}
	for i, ev := range evs {
		if err != nil {
			results[i].Err = err
			continue
		}
		_, in := f.input(ev)
		a := f.now(in)
		f.foretell(r, ids[i], a)
		results[i].Events, results[i].Err = f.act(ctx, ev, in, a)
	}
	return results
}

// together does what takes the whole call along, if the plan says so for one of its events.
func (f *function) together(ctx context.Context, r *running, ids []ID, evs []*event.Event) error {
	for i, ev := range evs {
		_, in := f.input(ev)
		if a := f.now(in); a.ofAll() {
			f.foretell(r, ids[i], a)
			_, err := f.act(ctx, ev, in, a)
			return err
		}
	}
	return nil
}

// act does what the plan says about one event.
func (f *function) act(ctx context.Context, ev *event.Event, in *input, a act) ([]*event.Event, error) {
	tries := event.Attempt(ctx, ev)
	switch a.kind {
	case actDrop:
		f.b.l.mu.Lock()
		defer f.b.l.mu.Unlock()
		f.b.drops(in.id)
		return nil, nil
	case actReject:
		return nil, event.Rejectf(event.NotFound, "nothing is known of %v", in.id)
	case actPlainError:
		return nil, errAPI
	case actRetry:
		if tries.Number() <= a.times {
			return nil, event.Retry(errAPI, a.wait)
		}
	case actGiveUp:
		return nil, event.Retry(event.Reject(event.Connection, errAPI), a.wait/4)
	case actHold:
		held, _ := tries.Slot().(int)
		if held < a.times {
			tries.SetSlot(held + 1)
			return nil, event.Hold(errAPI, time.Now().Add(a.wait))
		}
	case actPanic:
		panic(fmt.Sprintf("the plan says so for %v", in.id))
	case actGoexit:
		runtime.Goexit()
	case actHang:
		return nil, f.sleep(ctx, time.Hour)
	case actDeaf:
		return f.deaf()
	case actFatal:
		return nil, event.Fatal(fmt.Errorf("%w for ever, of %v", errAPI, in.id))
	}
	return f.answer(ev, a), nil
}

// deaf returns long after the deadline, whatever its context says.
func (f *function) deaf() ([]*event.Event, error) {
	t := time.NewTimer(f.plan.steps[f.step].timeout + grace + time.Duration(f.step+1)*777*time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.end:
	}
	return nil, errAPI
}

// answer grows the value, notes its step, and splits the event where the plan says so.
func (f *function) answer(ev *event.Event, a act) []*event.Event {
	if a.grow > 0 {
		ev.SetValue(append(bytes.Clone(ev.Value()), bytes.Repeat([]byte(" "), a.grow)...))
	}
	if a.kind != actFan {
		return []*event.Event{ev}
	}
	evs := make([]*event.Event, a.times)
	for i := range evs {
		evs[i] = ev.Clone()
		h := event.Header{Key: partHeader, Value: strconv.AppendInt(nil, int64(i), 10)}
		evs[i].SetHeaders(append(append([]event.Header(nil), ev.Headers()...), h))
	}
	return evs
}

func (f *function) input(ev *event.Event) (ID, *input) {
	id, ok := idOf(ev.Headers())
	in := f.plan.byID[id]
	if !ok || in == nil {
		f.b.l.Breach("a function got an event that was never written: %v", ev.Headers())
		return id, &input{id: id, acts: make([]act, len(f.plan.steps))}
	}
	return id, in
}

// late is how long a call takes: never so long that it changes the outcome.
func (f *function) late(latency time.Duration, slow int) time.Duration {
	return min(latency*time.Duration(slow), f.plan.steps[f.step].timeout*3/4)
}

func (f *function) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
