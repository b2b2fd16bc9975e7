package streammanager_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

func TestRandomLivesInTransactionsShowEachOutcomeOnce(t *testing.T) {
	aborts := 0
	for seed := range uint64(2 * randomSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { aborts += liveTx(t, seed) })
		})
	}
	if aborts < randomSeeds && !t.Failed() {
		t.Errorf("only %d transactions were aborted: the faults do nothing", aborts)
	}
}

// txRun is a run whose source has transactions. It never notes a fault: none explains an outcome that is seen twice.
type txRun struct {
	run
	m *memTx
}

func liveTx(t *testing.T, seed uint64) (aborts int) {
	r := &txRun{run: run{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), busy: map[string]int{}}}
	r.order = []streammanager.Order{streammanager.OrderKey, streammanager.OrderKeySerial, streammanager.OrderNone}[r.rnd.IntN(3)]
	r.parts = int32(1 + r.rnd.IntN(4))
	workers := 1 + r.rnd.IntN(8)
	events := 5 + r.rnd.IntN(60)
	cfg := streammanager.Config{
		Workers: workers, Order: r.order, ShutdownTimeout: 20 * time.Second, CommitInterval: time.Duration(1+r.rnd.IntN(5000)) * time.Millisecond,
		Limits: streammanager.Limits{InFlightEvents: events, InFlightBytes: int64(200 + r.rnd.IntN(20_000)), UncommittedEvents: 10 + r.rnd.IntN(200)},
	}
	timeout := time.Duration(20+r.rnd.IntN(60)) * time.Second
	r.h, r.m = newTxHarness(t, false, timeout, cfg, func(b *streammanager.Builder) { r.shape(b, events) })
	r.m.refuse = r.refuseInTransaction
	r.m.fate = func(bool) (bool, error) { r.mu.Lock(); defer r.mu.Unlock(); return r.rnd.IntN(8) > 0, nil }
	for p := range r.parts {
		r.h.src.logs[tp{"in", p}] = nil
	}
	r.produce(200)
	stop := r.h.start(t)
	for range 6 {
		r.faultTx()
		r.produce(30)
		time.Sleep(time.Duration(r.number(8000)) * time.Millisecond)
	}
	r.mu.Lock()
	r.sinkBad = false
	r.mu.Unlock()
	r.m.set(func() { r.m.delay, r.m.hold = 0, false })
	time.Sleep(3 * time.Hour)
	r.check(workers, events)
	r.checkOnce()
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, end := range r.m.ended() {
		if end == "abort" {
			aborts++
		}
	}
	return aborts
}

// refuseInTransaction refuses what the sink finds too large, as one that finds out only when it has written it.
func (r *txRun) refuseInTransaction(rec *streammanager.Record) error {
	if slices.ContainsFunc(rec.Headers, func(h event.Header) bool { return h.Key == "enricher.error.type" }) {
		return nil
	}
	return r.refuse(rec)
}

func (r *txRun) faultTx() {
	part := tp{"in", int32(r.number(int(r.parts)))}
	switch r.number(7) {
	case 0:
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		within(r.t, "the revoke", 0, func() { r.m.revoke(ctx, part) })
		cancel()
		time.Sleep(time.Duration(r.number(3000)) * time.Millisecond)
		r.h.src.assign(part)
	case 1:
		r.m.lose(part)
		r.h.src.assign(part)
	case 2:
		r.mu.Lock()
		r.sinkBad = !r.sinkBad
		r.mu.Unlock()
	case 3:
		delay := time.Duration(r.number(4000)) * time.Millisecond
		r.m.set(func() { r.m.delay = delay })
	case 4:
		r.m.set(func() { r.m.hold = true })
		time.Sleep(time.Duration(r.number(60)) * time.Second)
		r.m.set(func() { r.m.hold = false })
	case 5: // a join takes one away and gives it back at once, while a transaction may be ending
		r.m.revoke(context.Background(), part)
		r.h.src.assign(part)
	}
	r.checkPositions()
}

// checkOnce holds what is seen to the events: each outcome once, and error events for those alone that fail.
func (r *txRun) checkOnce() {
	for ev, n := range r.outcomes() {
		if n != 1 {
			r.t.Errorf("event %d has %d outcomes, want 1", ev, n)
		}
	}
	st := r.h.stream.Status()
	balanced(r.t, "at idle", st)
	if seen := int64(len(r.h.sink.values())); st.Outputs != seen || st.Emitted != seen {
		r.t.Errorf("counted %d outputs and %d events emitted, %d are seen", st.Outputs, st.Emitted, seen)
	}
	if seen := int64(len(r.h.errs.values())); st.Errors != seen {
		r.t.Errorf("counted %d error events, %d are seen", st.Errors, seen)
	}
}
