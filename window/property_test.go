package window_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a0c75104/enricher/window"
	"pgregory.net/rapid"
)

// machine runs a Windows beside the model and keeps the books of what came out. The model says exactly
// what must happen; the books check the promises from outside, without it.
type machine struct {
	w   *window.Windows[ev]
	cfg window.Config
	m   *model
	now time.Time

	added    []ev
	out      map[int]bool   // ids that left in a batch or were dropped
	last     map[string]int // per key the id that left last in a batch
	taken    map[string]bool
	late     bool // Expire was not called in time
	kept     [][]window.Item[ev]
	wantKept [][]ev
}

// TestPromises plays random workloads: each event leaves in exactly one batch, is dropped or is still
// inside; no batch is over count or bytes; no window is open for longer than its timeout; a key is in
// at most one open window or batch; the order of a key is kept; nothing waits without a reason.
func TestPromises(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     window.Config
		noLanes bool
	}{
		{name: "a window per event"},
		{name: "a window per event without lanes", noLanes: true},
		{name: "timeout", cfg: window.Config{Timeout: 30}},
		{name: "count", cfg: window.Config{Count: 3, Timeout: 50}},
		{name: "bytes", cfg: window.Config{Bytes: 30, Timeout: 100}},
		{name: "few bytes", cfg: window.Config{Bytes: 8, Timeout: 50}},
		{name: "count and bytes", cfg: window.Config{Count: 4, Bytes: 20, Timeout: 50}},
		{name: "count and bytes without lanes", cfg: window.Config{Count: 4, Bytes: 20, Timeout: 50}, noLanes: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 3 { // rapid's 100 workloads are few for what they cost
				rapid.Check(t, func(t *rapid.T) { promises(t, c.cfg, !c.noLanes) })
			}
		})
	}
}

func promises(t *rapid.T, cfg window.Config, ordered bool) {
	x := newMachine(t, cfg, ordered)
	t.Repeat(map[string]func(*rapid.T){
		"add":          x.add,
		"add burst":    x.addBurst,
		"free":         x.free,
		"tick":         x.tick,
		"tick late":    x.tickLate,
		"expire early": x.expireEarly,
		"close oldest": x.closeOldest,
		"close all":    x.closeAll,
		"holding":      x.closeHolding,
		"drop":         x.drop,
		"":             x.check,
	})
	x.drain(t)
}

func newMachine(t *rapid.T, cfg window.Config, ordered bool) *machine {
	w, err := window.New[ev](cfg, ordered)
	if err != nil {
		t.Fatalf("New(%+v) = %v, want no error", cfg, err)
	}
	return &machine{
		w: w, cfg: cfg, now: start,
		m:   &model{cfg: cfg, ordered: ordered, inBatch: map[string]bool{}},
		out: map[int]bool{}, last: map[string]int{}, taken: map[string]bool{},
	}
}

func (x *machine) draw(t *rapid.T) ev {
	e := ev{
		id:        len(x.added),
		keyless:   rapid.IntRange(0, 9).Draw(t, "keyless") == 0,
		partition: rapid.IntRange(0, 2).Draw(t, "partition"),
		size:      rapid.Int64Range(0, 12).Draw(t, "size"),
	}
	if !e.keyless {
		e.key = rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
	}
	e.group = rapid.SampledFrom([]string{e.key, e.key, "g", "h"}).Draw(t, "group")
	x.added = append(x.added, e)
	return e
}

func (x *machine) add(t *rapid.T) {
	e := x.draw(t)
	now := x.now
	if rapid.IntRange(0, 9).Draw(t, "behind") == 0 { // a time before earlier ones must not upset the order of expiry
		now = now.Add(-7)
		x.late = true
	}
	x.m.tick(now)
	x.m.add(e)
	x.w.Add(now, e.item())
}

func (x *machine) addBurst(t *rapid.T) {
	for range rapid.IntRange(2, 8).Draw(t, "events") {
		x.add(t)
	}
}

func (x *machine) free(t *rapid.T) {
	keys := x.takenKeys()
	if len(keys) == 0 {
		t.Skip("no key is in a batch")
	}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	delete(x.taken, key)
	x.m.tick(x.now)
	x.m.free(key)
	x.w.Free(x.now, key)
}

func (x *machine) takenKeys() []string {
	var keys []string
	for key := range x.taken {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// tick lets time pass, with Expire at each time that Next asks for.
func (x *machine) tick(t *rapid.T) {
	until := x.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "ns")))
	for {
		due, ok := x.w.Next()
		if !ok || due.After(until) {
			break
		}
		x.now = later(x.now, due)
		x.expire(x.now)
		x.check(t)
	}
	x.now = until
	x.late = false
}

// tickLate lets time pass as if the caller were too busy to look at Next.
func (x *machine) tickLate(t *rapid.T) {
	x.now = x.now.Add(time.Duration(rapid.IntRange(1, 80).Draw(t, "ns")))
	x.late = true
}

func (x *machine) expireEarly(t *rapid.T) {
	x.expire(x.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ns"))))
}

func (x *machine) expire(now time.Time) {
	x.m.tick(now)
	x.m.expire()
	x.w.Expire(now)
}

func (x *machine) closeOldest(t *rapid.T) {
	want := len(x.m.open) > 0
	if want {
		x.m.close(x.m.open[0], window.ByEager)
	}
	if got := x.w.CloseOldest(window.ByEager); got != want {
		t.Fatalf("CloseOldest = %v, want %v", got, want)
	}
}

func (x *machine) closeAll(*rapid.T) {
	for len(x.m.open) > 0 {
		x.m.close(x.m.open[0], window.ByDrain)
	}
	x.w.CloseAll(window.ByDrain)
}

func (x *machine) closeHolding(t *rapid.T) {
	p := rapid.IntRange(0, 3).Draw(t, "partition")
	for _, b := range slices.Clone(x.m.open) {
		if slices.ContainsFunc(b.evs, func(e ev) bool { return e.partition == p }) {
			x.m.close(b, window.ByBarrier)
		}
	}
	x.w.CloseHolding(p, window.ByBarrier)
}

func (x *machine) drop(t *rapid.T) {
	p := rapid.IntRange(0, 3).Draw(t, "partition")
	want := x.m.drop(p)
	got := evs(x.w.Drop(p))
	last := map[string]int{}
	for _, e := range got {
		x.leave(t, e)
		if prev, ok := last[e.key]; ok && !e.keyless && x.m.ordered && prev > e.id {
			t.Fatalf("Drop(%d) = %v, want the events of %q in the order they were added", p, got, e.key)
		}
		last[e.key] = e.id
	}
	byID := func(a, b ev) int { return cmp.Compare(a.id, b.id) }
	slices.SortFunc(want, byID)
	slices.SortFunc(got, byID)
	if !slices.Equal(got, want) {
		t.Fatalf("Drop(%d) = %v, want %v", p, got, want)
	}
}

// leave notes that an event is out, once.
func (x *machine) leave(t *rapid.T, e ev) {
	if e.id >= len(x.added) || x.added[e.id] != e {
		t.Fatalf("%+v came out, which never went in", e)
	}
	if x.out[e.id] {
		t.Fatalf("%+v came out twice", e)
	}
	x.out[e.id] = true
}

func (x *machine) check(t *rapid.T) {
	got := x.w.Take()
	for i, c := range got {
		x.checkBatch(t, c)
		if i >= len(x.m.closed) {
			t.Fatalf("closed %v (%s), want it open or waiting", evs(c.Items), c.Reason)
		}
		want := x.m.closed[i]
		if !slices.Equal(evs(c.Items), want.evs) || c.Reason != want.reason || !c.Opened.Equal(want.opened) {
			t.Fatalf("closed %v (%s, opened %v), want %v (%s, opened %v)", evs(c.Items), c.Reason, c.Opened.Sub(start), want.evs, want.reason, want.opened.Sub(start))
		}
		x.keepOrRecycle(c.Items)
	}
	if len(got) < len(x.m.closed) {
		t.Fatalf("closed %d windows, want also %v", len(got), x.m.closed[len(got):])
	}
	x.m.closed = nil
	inside := 0
	for _, b := range x.m.open {
		inside += len(b.evs)
	}
	if want := len(x.added) - inside - len(x.m.waiting); len(x.out) != want {
		t.Fatalf("%d events came out, want %d", len(x.out), want)
	}
	counts := [3]int{x.w.OpenWindows(), x.w.Lanes(), x.w.Waiting()}
	if want := [3]int{len(x.m.open), x.m.lanes(), len(x.m.waiting)}; counts != want {
		t.Fatalf("open windows, lanes, waiting events: got %v, want %v", counts, want)
	}
	x.checkNext(t)
}

func (x *machine) checkNext(t *rapid.T) {
	due, ok := x.w.Next()
	if ok != (len(x.m.open) > 0) {
		t.Fatalf("Next = %v, want %v", ok, !ok)
	}
	if want := x.m.open; ok && !due.Equal(want[0].opened.Add(x.cfg.Timeout)) {
		t.Fatalf("Next = %v, want the timeout of %v", due.Sub(start), want[0])
	}
}

// checkBatch checks the promises about one batch, without the model.
func (x *machine) checkBatch(t *rapid.T, c window.Closed[ev]) {
	batch := evs(c.Items)
	if len(batch) == 0 {
		t.Fatalf("an empty window closed (%s)", c.Reason)
	}
	if x.cfg.Count > 0 && len(batch) > x.cfg.Count || x.cfg.Timeout == 0 && len(batch) > 1 {
		t.Fatalf("%v is over count with %+v", batch, x.cfg)
	}
	if x.cfg.Bytes > 0 && len(batch) > 1 && bytesOf(batch) > x.cfg.Bytes {
		t.Fatalf("%v is over bytes with %+v", batch, x.cfg)
	}
	if age := x.now.Sub(c.Opened); age > x.cfg.Timeout && !x.late {
		t.Fatalf("%v was open for %d ns with %+v", batch, age, x.cfg)
	}
	for _, e := range batch {
		x.leave(t, e)
		if first := batch[0]; e.group != first.group || e.keyless != first.keyless || e.keyless && e.partition != first.partition {
			t.Fatalf("%v mixes groups", batch)
		}
		if e.keyless || !x.m.ordered {
			continue
		}
		if x.taken[e.key] {
			t.Fatalf("%v was closed while %q is in another batch", batch, e.key)
		}
		if prev, ok := x.last[e.key]; ok && prev > e.id {
			t.Fatalf("%+v came after event %d of its key", e, prev)
		}
		x.last[e.key] = e.id
	}
	for _, e := range batch {
		if !e.keyless && x.m.ordered {
			x.taken[e.key] = true
		}
	}
}

// keepOrRecycle gives every second batch back and keeps the others, which nothing may change.
func (x *machine) keepOrRecycle(items []window.Item[ev]) {
	if items[0].Value.id%2 == 0 {
		x.w.Recycle(items)
		return
	}
	x.kept = append(x.kept, items)
	x.wantKept = append(x.wantKept, evs(items))
}

// drain closes and frees until nothing is left inside.
func (x *machine) drain(t *rapid.T) {
	for round := 0; len(x.out) < len(x.added) || len(x.taken) > 0; round++ {
		if round > len(x.added) {
			t.Fatalf("%d of %d events came out, and nothing moves", len(x.out), len(x.added))
		}
		x.closeAll(t)
		x.check(t)
		for _, key := range x.takenKeys() {
			delete(x.taken, key)
			x.m.tick(x.now)
			x.m.free(key)
			x.w.Free(x.now, key)
			x.check(t)
		}
	}
	for i, items := range x.kept {
		if got := evs(items); !slices.Equal(got, x.wantKept[i]) {
			t.Fatalf("a batch that was taken changed from %v to %v", x.wantKept[i], got)
		}
	}
	if got := fmt.Sprint(x.w.OpenWindows(), x.w.Lanes(), x.w.Waiting()); got != "0 0 0" {
		t.Fatalf("open windows, lanes, waiting events when all is finished: got %s, want 0 0 0", got)
	}
}

func evs(items []window.Item[ev]) []ev {
	es := make([]ev, len(items))
	for i, it := range items {
		es[i] = it.Value
	}
	return es
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
