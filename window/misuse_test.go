package window_test

import (
	"fmt"
	"testing"

	"github.com/a0c75104/enricher/window"
)

func TestFreeOfAKeyInNoBatchPanics(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []string
	}{
		{name: "a key never seen"},
		{name: "a key in an open window", steps: []string{"add a1"}},
		{name: "a key that was freed", steps: []string{"add a1", "all", "free a"}},
		{name: "a key that entered the next window when it was freed", steps: []string{"add a1", "all", "add a2", "free a"}},
		{name: "a key whose window was dropped", steps: []string{"add a1@1", "drop 1"}},
		{name: "a key whose window lives on with events of others", steps: []string{"add a1@1/g b1/g", "drop 1", "all"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, window.Config{Timeout: long}, true)
			for _, step := range c.steps {
				r.do(step)
			}
			defer func() {
				want := `window: freeing key "a", which is in no batch`
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("%q, Free: panic %q, want %q", c.steps, got, want)
				}
			}()
			r.w.Free(r.now, "a")
		})
	}
}

func TestTakeHandsOutEachWindowOnce(t *testing.T) {
	w, err := window.New[string](window.Config{}, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Take(); len(got) != 0 {
		t.Errorf("Take of nothing = %v, want none", got)
	}
	w.Add(start, parseItem(t, "a1"))
	got := w.Take()
	w.Add(start, parseItem(t, "b1")) // closes a window while the caller still reads the last ones
	if len(got) != 1 || got[0].Items[0].Value != "a1" {
		t.Errorf("first Take = %v, want a1", got)
	}
	if got := w.Take(); len(got) != 1 || got[0].Items[0].Value != "b1" {
		t.Errorf("second Take = %v, want b1", got)
	}
	if got := w.Take(); len(got) != 0 {
		t.Errorf("third Take = %v, want none", got)
	}
}
