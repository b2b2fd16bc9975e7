package window

import "time"

// Config says when a window closes. The zero Config is a window of one event.
type Config struct {
	Count   int           // events at most; 0: 1 if Timeout is 0 too, else no bound
	Bytes   int64         // bytes at most; 0: no bound
	Timeout time.Duration // after the first event entered; 0: a window of one event
	Eager   bool          // the stream also closes windows when a worker is idle
}

// Reason is why a window closed.
type Reason string

// The reasons.
const (
	ByCount       Reason = "count"
	ByBytes       Reason = "bytes"
	ByTimeout     Reason = "timeout"
	ByEager       Reason = "eager"
	ByLimits      Reason = "limits"
	ByDrain       Reason = "drain"
	ByTransaction Reason = "transaction"
	ByBarrier     Reason = "barrier"
)

// Item is one event in a lane or window.
type Item[T any] struct {
	Value     T
	Key       string // compared by content
	Keyless   bool   // no lane; Key means nothing
	Group     string // events of equal Group share a window; with no `by` the caller sets it to Key
	Partition int    // the caller's number of the partition; also parts the windows of keyless items
	Size      int64
}

// Closed is a window that closed: a batch to be dispatched.
type Closed[T any] struct {
	Items  []Item[T]
	Reason Reason
	Opened time.Time
}

// Windows holds all lanes and open windows of one stream.
type Windows[T any] struct{}

// New returns an empty set. Without lanes (no order) events never wait for their key.
func New[T any](cfg Config, lanes bool) (*Windows[T], error) { panic("to come") }

// Add takes one event: into the open window of its group, or behind its key's lane.
func (w *Windows[T]) Add(now time.Time, it Item[T]) { panic("to come") }

// Free says that all events of key in its batch are finished. Waiting events of the key fill at most one window.
func (w *Windows[T]) Free(now time.Time, key string) { panic("to come") }

// Expire closes the windows whose time is up.
func (w *Windows[T]) Expire(now time.Time) { panic("to come") }

// Next returns when Expire is due, and whether any window is open with a timeout.
func (w *Windows[T]) Next() (time.Time, bool) { panic("to come") }

// CloseOldest closes the window that opened first and reports whether there was one.
func (w *Windows[T]) CloseOldest(reason Reason) bool { panic("to come") }

// CloseAll closes every open window.
func (w *Windows[T]) CloseAll(reason Reason) { panic("to come") }

// CloseHolding closes the windows that hold events of the partition.
func (w *Windows[T]) CloseHolding(partition int, reason Reason) { panic("to come") }

// Drop removes the events of the partition from all lanes and open windows and returns them.
func (w *Windows[T]) Drop(partition int) []Item[T] { panic("to come") }

// Take returns the windows closed since the last call, in the order they closed. The slice is valid until the next Take; the batches are the caller's.
func (w *Windows[T]) Take() []Closed[T] { panic("to come") }

// OpenWindows returns the number of open windows.
func (w *Windows[T]) OpenWindows() int { panic("to come") }

// Lanes returns the number of keys with unfinished events.
func (w *Windows[T]) Lanes() int { panic("to come") }

// Waiting returns the number of events that wait behind their key.
func (w *Windows[T]) Waiting() int { panic("to come") }
