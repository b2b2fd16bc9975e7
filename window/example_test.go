package window_test

import (
	"fmt"
	"time"

	"github.com/a0c75104/enricher/window"
)

// Windows of two events: a slow key keeps its own events waiting and nobody else's.
func Example() {
	w, err := window.New[string](window.Config{Count: 2, Timeout: 500 * time.Millisecond}, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	add := func(key, value string) {
		w.Add(now, window.Item[string]{Value: value, Key: key, Group: key})
	}
	take := func(after string) {
		for _, c := range w.Take() {
			fmt.Printf("%s: batch by %s:", after, c.Reason)
			for _, it := range c.Items {
				fmt.Print(" ", it.Value)
			}
			fmt.Println()
		}
		fmt.Printf("%s: %d open, %d waiting\n", after, w.OpenWindows(), w.Waiting())
	}

	add("a", "a1")
	add("a", "a2")
	add("a", "a3") // a is in a batch
	add("b", "b1") // b is not
	take("added")

	w.Free(now, "a") // all events of a in its batch are finished
	take("freed")

	now, _ = w.Next()
	w.Expire(now)
	take("expired")
	// Output:
	// added: batch by count: a1 a2
	// added: 1 open, 1 waiting
	// freed: 2 open, 0 waiting
	// expired: batch by timeout: b1
	// expired: batch by timeout: a3
	// expired: 0 open, 0 waiting
}
