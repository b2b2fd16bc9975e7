package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
)

// OperationKey names an operation. One that is asked for under another kind or job is unknown.
type OperationKey struct {
	Kind string // operations of one kind share their ids: savepoint and stop do
	Job  string // "" where it is of no job
	ID   string // 32 hex digits
}

// The errors of Operations.
var (
	ErrUnknownOperation  = errors.New("no such operation: its result is forgotten, or it was never triggered")
	ErrTooManyOperations = errors.New("too many operations are kept: wait until the results of some are forgotten")
	ErrClosing           = errors.New("the process ends: nothing new is begun")
)

// Progress is how far an operation is.
type Progress struct {
	Done   bool
	Result any   // what it came to, where it is done without Err
	Err    error // why it failed
}

// Operations carries out what takes longer than a request may: a trigger answers at once with an id, under which the
// result is asked for. Results are kept for a time after the operation has ended; what runs is never forgotten.
type Operations struct {
	store time.Duration
	most  int

	mu      sync.Mutex // guards what follows
	known   map[OperationKey]*operation
	closing bool
	waiters []chan struct{} // of Settle
	running sync.WaitGroup
	cancels map[*operation]context.CancelFunc
}

type operation struct {
	progress Progress
	ended    time.Time
	fetched  bool // its result, at least once
}

// NewOperations keeps results for store, and at most so many operations at a time.
func NewOperations(store time.Duration, most int) *Operations {
	return &Operations{store: store, most: most, known: map[OperationKey]*operation{}, cancels: map[*operation]context.CancelFunc{}}
}

// NewID makes an id.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Trigger begins do and returns its id: that of the key, or a new one where it has none. Where the id is known already,
// nothing is begun. do gets a context that ends with Close, not with ctx, of which it has the values.
func (o *Operations) Trigger(ctx context.Context, key OperationKey, do func(context.Context) (any, error)) (id string, err error) {
	if key.ID == "" {
		key.ID = NewID()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget()
	if o.known[key] != nil {
		return key.ID, nil
	}
	switch {
	case o.closing:
		return "", ErrClosing
	case len(o.known) >= o.most:
		return "", ErrTooManyOperations
	}
	op := &operation{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o.known[key], o.cancels[op] = op, cancel
	o.running.Go(func() {
		defer cancel()
		result, err := guarded(ctx, do)
		o.mu.Lock()
		defer o.mu.Unlock()
		op.progress, op.ended = Progress{Done: true, Result: result, Err: err}, time.Now()
		delete(o.cancels, op)
		o.tell()
	})
	return key.ID, nil
}

// guarded makes a panic the operation's failure: it must not end the jobs of the process.
func guarded(ctx context.Context, do func(context.Context) (any, error)) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the operation panicked: %v", p)
		}
	}()
	return do(ctx)
}

// Poll tells how far an operation is.
func (o *Operations) Poll(key OperationKey) (Progress, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget()
	op := o.known[key]
	if op == nil {
		return Progress{}, ErrUnknownOperation
	}
	if op.progress.Done && !op.fetched {
		op.fetched = true
		o.tell()
	}
	return op.progress, nil
}

// Pending reports whether there are operations under way, or results that nobody has fetched.
func (o *Operations) Pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, wait := o.left()
	return wait
}

// forget drops the results whose time is over.
func (o *Operations) forget() {
	now := time.Now()
	for key, op := range o.known {
		if op.progress.Done && now.Sub(op.ended) >= o.store {
			delete(o.known, key)
		}
	}
}

// tell wakes who waits in Settle; the lock is held.
func (o *Operations) tell() {
	for _, w := range o.waiters {
		close(w)
	}
	o.waiters = nil
}

// left returns until when results are kept that nobody has fetched, and whether there is anything to wait for.
func (o *Operations) left() (until time.Time, wait bool) {
	o.forget()
	for _, op := range o.known {
		if op.progress.Done && op.fetched {
			continue
		}
		wait = true
		if at := op.ended.Add(o.store); op.progress.Done && (until.IsZero() || at.Before(until)) {
			until = at
		}
	}
	return until, wait
}

// Settle takes no more triggers, and waits until every operation has ended and its result was fetched or forgotten, or
// ctx ends. It reports whether nothing is left.
func (o *Operations) Settle(ctx context.Context) bool {
	for {
		o.mu.Lock()
		o.closing = true
		until, wait := o.left()
		changed := make(chan struct{})
		o.waiters = append(o.waiters, changed)
		o.mu.Unlock()
		if !wait {
			return true
		}
		var forgotten <-chan time.Time
		timer := time.NewTimer(time.Until(until))
		if !until.IsZero() {
			forgotten = timer.C
		}
		select {
		case <-changed:
		case <-forgotten:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// Close ends the contexts of what still runs and waits for it.
func (o *Operations) Close() {
	o.mu.Lock()
	o.closing = true
	for _, cancel := range o.cancels {
		cancel()
	}
	o.mu.Unlock()
	o.running.Wait()
}
