package streammanager_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// run is one random life of a stream over memory: a workload, faults, and what was seen.
type run struct {
	t     *testing.T
	rnd   *rand.Rand
	h     *harness
	order streammanager.Order
	parts int32
	total int

	mu      sync.Mutex // guards all below
	busy    map[string]int
	most    int
	calls   int
	faults  bool // something happened that lets events be read again
	sinkBad bool
}

const randomSeeds = 60

func TestRandomLivesKeepThePromises(t *testing.T) {
	for seed := range uint64(randomSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { live(t, seed) })
		})
	}
}

func live(t *testing.T, seed uint64) {
	r := &run{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), busy: map[string]int{}}
	r.order = []streammanager.Order{streammanager.OrderKey, streammanager.OrderKeySerial, streammanager.OrderNone}[r.rnd.IntN(3)]
	r.parts = int32(1 + r.rnd.IntN(4))
	workers := 1 + r.rnd.IntN(8)
	events := 5 + r.rnd.IntN(60)
	cfg := streammanager.Config{
		Workers: workers, Order: r.order, ShutdownTimeout: 20 * time.Second,
		Limits: streammanager.Limits{InFlightEvents: events, InFlightBytes: int64(200 + r.rnd.IntN(20_000)), UncommittedEvents: 10 + r.rnd.IntN(200)},
	}
	r.h = newHarness(t, false, cfg, func(b *streammanager.Builder) { r.shape(b, events) })
	r.h.sink.refuse = r.refuse
	for p := range r.parts {
		r.h.src.logs[tp{"in", p}] = nil
	}
	r.produce(200)
	stop := r.h.start(t)
	for range 6 {
		r.fault()
		r.produce(30)
		time.Sleep(time.Duration(r.number(8000)) * time.Millisecond)
	}
	r.mu.Lock()
	r.sinkBad = false
	r.mu.Unlock()
	time.Sleep(3 * time.Hour)
	r.check(workers, events)
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	time.Sleep(3 * time.Hour)
}

func (r *run) produce(n int) {
	for range n {
		key := fmt.Sprint("k", r.number(12))
		part := int32(len(key)+int(key[len(key)-1])) % r.parts
		if r.number(10) == 0 {
			key = "-"
		}
		value := fmt.Sprintf("%d:%s", r.total, strings.Repeat("v", r.number(60)))
		r.h.src.add(part, key, value)
		r.total++
	}
}

// shape draws chain and window. What the calls do depends on the event and on chance.
func (r *run) shape(b *streammanager.Builder, events int) {
	if r.rnd.IntN(2) == 0 {
		w := window.Config{Count: 1 + r.rnd.IntN(min(events, 10)), Timeout: time.Duration(1+r.rnd.IntN(3000)) * time.Millisecond, Eager: r.rnd.IntN(3) == 0}
		b.Window(w)
		if r.rnd.IntN(2) == 0 {
			b.WindowBy(func(context.Context, *event.Event) (string, error) { return "all", nil })
		}
	}
	chance := func(n int) bool { r.mu.Lock(); defer r.mu.Unlock(); return r.rnd.IntN(n) == 0 }
	one := streammanager.Step{Name: "one", Timeout: 30 * time.Second, Attempts: -1, Func: event.FuncOf(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		defer r.enter(ev)()
		r.pause(ctx)
		switch {
		case chance(12):
			return nil, event.Retry(errTest, time.Duration(r.number(5000))*time.Millisecond)
		case chance(25):
			return nil, event.Hold(errTest, time.Now().Add(time.Duration(r.number(5000))*time.Millisecond))
		case id(string(ev.Value()))%17 == 3:
			return nil, errTest
		case id(string(ev.Value()))%17 == 4:
			panic("boom")
		case id(string(ev.Value()))%17 == 5:
			return nil, nil
		}
		return []*event.Event{ev}, ctx.Err() // a call that was cancelled says so
	})}
	bulk := streammanager.Step{Name: "bulk", Timeout: 30 * time.Second, Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
		r.pause(ctx)
		out := make([]event.Result, len(evs))
		for i, ev := range evs {
			out[i].Events = []*event.Event{ev}
			if event.Attempt(ctx, ev).Number() < 3 && chance(10) {
				out[i] = event.Result{Err: event.Retry(errTest, time.Duration(r.number(3000))*time.Millisecond)}
			}
		}
		return out
	})}
	inline := streammanager.Step{Name: "inline", Inline: true, Func: event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		if id(string(ev.Value()))%17 == 6 {
			return nil, errTest
		}
		return []*event.Event{ev}, nil
	})}
	b.Process([][]streammanager.Step{{one}, {inline}, {one, inline}, {bulk}, {one, bulk}, {bulk, inline}, {}}[r.rnd.IntN(7)]...)
}

func (r *run) number(n int) int { r.mu.Lock(); defer r.mu.Unlock(); return r.rnd.IntN(n) }

func (r *run) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(r.number(300)) * time.Millisecond):
	}
}

// enter watches the calls in progress.
func (r *run) enter(ev *event.Event) func() {
	key := string(ev.Key())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.most = max(r.most, r.calls)
	if ev.Key() != nil {
		r.busy[key]++
		if r.busy[key] > 1 && r.order == streammanager.OrderKeySerial {
			r.t.Errorf("two calls at once for key %q", key)
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls--
		r.busy[key]--
	}
}

func (r *run) refuse(rec *streammanager.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sinkBad && r.rnd.IntN(3) == 0 {
		return errTest
	}
	if id(string(rec.Value))%23 == 7 {
		return event.Rejectf(event.TooLarge, "too large")
	}
	return nil
}

func (r *run) fault() {
	part := tp{"in", int32(r.number(int(r.parts)))}
	switch r.number(5) {
	case 0:
		r.note()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		r.h.src.revoke(ctx, part)
		cancel()
		r.h.src.assign(part)
	case 1:
		r.note()
		r.h.src.lose(part)
		r.h.src.assign(part)
	case 2:
		r.note()
		r.mu.Lock()
		r.sinkBad = !r.sinkBad
		r.mu.Unlock()
	case 3:
		r.h.src.refuse(errTest)
		time.Sleep(2 * time.Second)
		r.h.src.refuse(nil)
	}
	// A position never lies beyond an unfinished record, and never goes back.
	r.checkPositions()
}

func (r *run) note() { r.mu.Lock(); r.faults = true; r.mu.Unlock() }

func id(value string) int {
	n, _ := strconv.Atoi(value[:strings.IndexByte(value, ':')])
	return n
}

// outcomes counts, per event, outputs and error events.
func (r *run) outcomes() map[int]int {
	n := map[int]int{}
	for _, v := range append(r.h.sink.values(), r.h.errs.values()...) {
		n[id(v)]++
	}
	return n
}

func (r *run) checkPositions() {
	r.h.src.mu.Lock()
	positions := map[tp]int64{}
	for at, off := range r.h.src.committed {
		positions[at] = off
	}
	r.h.src.mu.Unlock()
	got := r.outcomes()
	for at, off := range positions {
		for i := range off {
			ev := id(string(r.h.src.logs[at][i].Value))
			if got[ev] == 0 && ev%17 != 5 {
				r.t.Errorf("partition %d: committed %d, but event %d at offset %d has no outcome", at.Partition, off, ev, i)
			}
		}
	}
}

func (r *run) check(workers, events int) {
	r.checkPositions()
	got := r.outcomes()
	for at, log := range r.h.src.logs {
		if off := r.h.src.offset(at.Partition); off != int64(len(log)) {
			r.t.Errorf("partition %d: committed %d at idle, want %d", at.Partition, off, len(log))
		}
	}
	for ev := range r.total {
		if got[ev] > 1 && !r.faults {
			r.t.Errorf("event %d has %d outcomes though nothing failed", ev, got[ev])
		}
	}
	if st := r.h.stream.Status(); st.InFlightEvents != 0 || st.InFlightBytes != 0 || st.Ready != nil {
		r.t.Errorf("at idle: %+v", st)
	}
	balanced(r.t, "at idle", r.h.stream.Status())
	if r.most > workers {
		r.t.Errorf("%d calls at once, want at most %d", r.most, workers)
	}
	if r.order != streammanager.OrderNone {
		r.checkOrder()
	}
}

// checkOrder holds the first outputs of each key against the order of its events.
func (r *run) checkOrder() {
	last := map[string]int{}
	seen := map[int]bool{}
	r.h.sink.mu.Lock()
	defer r.h.sink.mu.Unlock()
	for _, rec := range r.h.sink.got {
		ev := id(string(rec.Value))
		if rec.Key == nil || seen[ev] {
			continue
		}
		seen[ev] = true
		if prev, ok := last[string(rec.Key)]; ok && prev > ev {
			r.t.Errorf("key %q: event %d left after event %d", rec.Key, ev, prev)
		}
		last[string(rec.Key)] = ev
	}
}
