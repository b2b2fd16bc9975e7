package event

import (
	"context"
	"sync"
	"time"
)

// Func processes one event. It may be called from many goroutines at once, honours ctx, and keeps
// neither ev nor its bytes after it returns. It returns the events that go on (none: the event is
// dropped); returning ev itself is the usual case. What kind of error it returns decides the outcome:
// see Reject, Retry, Hold and Fatal. Any other error makes an error event of type "function".
type Func interface {
	Process(ctx context.Context, ev *Event) ([]*Event, error)
}

// BatchFunc processes the events of a window that have reached it. It returns one result per event,
// in the same order.
type BatchFunc interface {
	ProcessBatch(ctx context.Context, evs []*Event) []Result
}

// Result is what became of one event of a batch.
type Result struct {
	Events []*Event
	Err    error
}

// FuncOf turns a plain function into a Func.
type FuncOf func(ctx context.Context, ev *Event) ([]*Event, error)

// Process implements Func.
func (f FuncOf) Process(ctx context.Context, ev *Event) ([]*Event, error) { return f(ctx, ev) }

// BatchFuncOf turns a plain function into a BatchFunc.
type BatchFuncOf func(ctx context.Context, evs []*Event) []Result

// ProcessBatch implements BatchFunc.
func (f BatchFuncOf) ProcessBatch(ctx context.Context, evs []*Event) []Result { return f(ctx, evs) }

// ReadOnly is an optional ability of a Func or BatchFunc: it promises never to write into the bytes of
// an event, so that the stream need not copy them for it. Setting parts through Event's methods is no
// such write.
type ReadOnly interface {
	ReadOnly()
}

// Attempts is what is known of the tries of one function on one event. It is shared by all tries and
// safe for concurrent use, since a call that was abandoned may still hold it.
type Attempts struct {
	mu     sync.Mutex // guards all below
	number int
	first  time.Time
	status int
	slot   any
}

// Attempt returns the tries of the calling function on ev. It never returns nil.
func Attempt(_ context.Context, ev *Event) *Attempts {
	if ev.attempts == nil {
		ev.attempts = NewAttempts(time.Now())
	}
	return ev.attempts
}

// NewAttempts starts counting at the first try.
func NewAttempts(now time.Time) *Attempts { return &Attempts{number: 1, first: now} }

// WithAttempts returns ev after tying its tries to a. The stream does so before each call.
func WithAttempts(ev *Event, a *Attempts) *Event {
	ev.attempts = a
	return ev
}

// Number is the number of this try, 1 for the first. A hold does not raise it.
func (a *Attempts) Number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.number
}

// Add counts n more tries: those a function made within one call, or one more call after a retry.
func (a *Attempts) Add(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.number += n
}

// First is the time of the first try.
func (a *Attempts) First() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.first
}

// LastStatus is the status that the last try saw, 0 if none.
func (a *Attempts) LastStatus() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// SetStatus notes the status of this try for the error event and for the next try.
func (a *Attempts) SetStatus(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
}

// Slot returns what the function kept with SetSlot in an earlier try, nil at first.
func (a *Attempts) Slot() any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slot
}

// SetSlot keeps v for the next try of the same function on the same event.
func (a *Attempts) SetSlot(v any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slot = v
}

type pipelineKey struct{}

// WithPipeline ties the pipeline's name to ctx, for expressions that name it.
func WithPipeline(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, pipelineKey{}, name)
}

// Pipeline returns the name that WithPipeline tied to ctx, "" if none.
func Pipeline(ctx context.Context) string {
	name, _ := ctx.Value(pipelineKey{}).(string)
	return name
}
