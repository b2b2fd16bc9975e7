package window_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/a0c75104/enricher/window"
)

// cycle carries one event per key through a Windows: added, closed, freed.
func cycle(w *window.Windows[int], now time.Time, items []window.Item[int]) {
	for i := range items {
		w.Add(now, items[i])
		finish(w, now)
	}
}

// finish frees all keys of the windows that closed.
func finish(w *window.Windows[int], now time.Time) {
	for _, c := range w.Take() {
		for j := range c.Items {
			w.Free(now, c.Items[j].Key)
		}
		w.Recycle(c.Items)
	}
}

func keyedItems(n, keysPerGroup int) []window.Item[int] {
	items := make([]window.Item[int], n)
	for i := range items {
		key := "key-" + strconv.Itoa(i)
		items[i] = window.Item[int]{Value: i, Key: key, Group: key, Partition: i % 8, Size: 1500}
		if keysPerGroup > 1 {
			items[i].Group = items[i/keysPerGroup*keysPerGroup].Key
		}
	}
	return items
}

func newCost(tb testing.TB, cfg window.Config) *window.Windows[int] {
	tb.Helper()
	w, err := window.New[int](cfg, true)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   window.Config
		group int
	}{
		{name: "a window per event", group: 1},
		{name: "shared windows that grow", cfg: window.Config{Count: 100, Timeout: time.Second}, group: 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, items := newCost(t, c.cfg), keyedItems(1000, c.group)
			cycle(w, start, items)
			if got := testing.AllocsPerRun(50, func() { cycle(w, start, items) }); got >= 1 {
				t.Errorf("%v allocations per %d events, want none", got, len(items))
			}
		})
	}
	t.Run("waiting events", func(t *testing.T) {
		w := newCost(t, window.Config{})
		backlog := func() {
			for i := range 100 {
				w.Add(start, window.Item[int]{Value: i, Key: "a", Group: "a"})
			}
			for w.Lanes() > 0 {
				finish(w, start)
			}
		}
		backlog()
		if got := testing.AllocsPerRun(50, backlog); got >= 1 {
			t.Errorf("%v allocations per 100 events that waited, want none", got)
		}
	})
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAnOpenWindowOfOneEventIsSmall(t *testing.T) {
	const n, most = 250_000, 400 // a million take the same each, and longer to test
	w, items := newCost(t, window.Config{Timeout: time.Hour}), keyedItems(n, 1)
	before := heap()
	for i := range items {
		w.Add(start, items[i])
	}
	got := (int64(heap()) - int64(before)) / n
	if w.OpenWindows() != n {
		t.Fatalf("%d open windows, want %d", w.OpenWindows(), n)
	}
	if got > most {
		t.Errorf("an open window of one event takes %d bytes, its event included, want at most %d", got, most)
	}
	t.Logf("%d bytes per open window", got)
	runtime.KeepAlive(items)
	runtime.KeepAlive(w)
}

func TestIdleKeysCostNothing(t *testing.T) {
	const n, most = 250_000, 1 << 20
	w, items := newCost(t, window.Config{}), keyedItems(n, 1)
	before := heap()
	cycle(w, start, items)
	if got := int64(heap()) - int64(before); got > most {
		t.Errorf("%d keys that are idle hold %d bytes, want at most %d in all", n, got, most)
	}
	runtime.KeepAlive(items)
	runtime.KeepAlive(w)
}

func TestPartitionsGoneCostNothing(t *testing.T) {
	const n, most = 100_000, 1 << 20
	w := newCost(t, window.Config{Timeout: time.Hour})
	before := heap()
	for i := range n {
		w.Add(start, window.Item[int]{Keyless: true, Partition: i})
		if i%2 == 0 {
			w.Drop(i)
		} else {
			w.CloseHolding(i, window.ByBarrier)
			w.Recycle(w.Take()[0].Items)
		}
	}
	if got := int64(heap()) - int64(before); got > most {
		t.Errorf("%d partitions that are gone hold %d bytes, want at most %d in all", n, got, most)
	}
	runtime.KeepAlive(w)
}

func BenchmarkEvent(b *testing.B) {
	for _, keys := range []int{1_000, 1_000_000} {
		for _, count := range []int{1, 100} {
			b.Run(fmt.Sprintf("keys=%d/count=%d", keys, count), func(b *testing.B) {
				w, items := newCost(b, window.Config{Count: count, Timeout: time.Second}), keyedItems(keys, count)
				cycle(w, start, items)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					w.Add(start, items[i%keys])
					finish(w, start)
				}
			})
		}
	}
}

// BenchmarkOpenWindows has all keys in open windows, which expire while new ones open.
func BenchmarkOpenWindows(b *testing.B) {
	for _, keys := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			w, items := newCost(b, window.Config{Timeout: time.Duration(keys - 1)}), keyedItems(keys, 1)
			now := start
			step := func(i int) {
				now = now.Add(1)
				w.Expire(now)
				finish(w, now)
				w.Add(now, items[i%keys])
			}
			for i := range keys {
				step(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				step(i)
			}
			if got := w.OpenWindows(); got < keys-1 {
				b.Fatalf("%d open windows, want %d", got, keys-1)
			}
		})
	}
}
