package jq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/itchyny/gojq"
)

const (
	// timeLimit stops an expression that does not end.
	timeLimit = time.Second
	// grace is how long past its end an evaluation is waited for. Between two steps gojq looks at its
	// context; within one built-in it does not.
	grace = 100 * time.Millisecond
	// maxStuck bounds the evaluations of one program that were not waited for and are still running.
	maxStuck = 4
)

// limitError is the end of an evaluation that took too much.
type limitError struct{ message string }

func (e *limitError) Error() string { return e.message }

// evaluation is one run of a program, in a goroutine of its own: one that does not return within its time
// is left behind, since Go cannot stop it, and whoever asked for it goes on. What it is still to give
// goes nowhere, and its program counts it until it returns.
type evaluation struct {
	iter  gojq.Iter
	check func(any) (any, error) // makes a result fit to be handed over
	yield func(any) error
	stuck *atomic.Int64
	done  chan struct{} // closed at the end

	mu       sync.Mutex // guards what follows, and calls of yield
	left     bool       // nobody waits for it
	ended    bool
	err      error
	panicked any
}

// here is wait without a goroutine, which costs as much as a small program.
func (e *evaluation) here() error {
	for e.next() {
	}
	return e.err
}

// wait calls yield for the results until it returns an error, which is returned, as are those that gojq
// gives; ctx is that of iter.
func (e *evaluation) wait(ctx context.Context) error {
	if n := e.stuck.Load(); n >= maxStuck {
		return &limitError{fmt.Sprintf("not evaluated: on %d events before this one it ran longer than %v and has not ended yet", n, timeLimit)}
	}
	e.done = make(chan struct{})
	go e.run()
	select {
	case <-e.done:
		return e.result()
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-e.done:
		return e.result()
	case <-late.C:
	}
	if e.leave() {
		return &failedError{ctx.Err()}
	}
	return e.result()
}

// failedError is an error that gojq gave, not yield.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }

func (e *evaluation) run() {
	defer close(e.done)
	defer func() {
		panicked := recover() // it is the caller's to deal with, or of no matter any more
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ended, e.panicked = true, panicked
		if e.left {
			e.stuck.Add(-1)
		}
	}()
	for e.next() {
	}
}

// next hands one result over and reports whether there may be more.
func (e *evaluation) next() bool {
	v, ok := e.iter.Next()
	if !ok {
		return false
	}
	err, failed := v.(error)
	if failed {
		err = &failedError{err}
	} else {
		v, err = e.check(v)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left {
		return false
	}
	if err == nil {
		err = e.yield(v)
	}
	e.err = err
	return err == nil
}

// result is called after the end.
func (e *evaluation) result() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.panicked != nil {
		panic(e.panicked)
	}
	return e.err
}

// leave gives the evaluation up, unless it has ended.
func (e *evaluation) leave() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.left = true
	e.stuck.Add(1)
	return true
}
