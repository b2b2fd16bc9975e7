package event

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Room counts what one call holds beside its events: the answer that it reads, and what it makes of it. The
// stream gives each call one, within its limits, and takes back what is left of it when the call ends.
type Room interface {
	// Take reserves n bytes if they are free now, and reports whether they were.
	Take(n int64) bool
	// Wait reserves n bytes. It waits for them, and returns an error when ctx or the call ends before.
	Wait(ctx context.Context, n int64) error
	// Give returns n bytes.
	Give(n int64)
}

// Reserve reserves room for n more bytes that the calling function is about to hold. It waits until there is
// room; meanwhile the function's own timeout and those made by WithTimeout stand still. What is not released
// is given back when the function returns, save for what its events take. An error means that nobody waits for the
// call any more: return it.
func Reserve(ctx context.Context, n int64) error {
	s := shareOf(ctx)
	if s == nil || n <= 0 || s.room.Take(n) {
		return nil
	}
	s.halt()
	defer s.goOn()
	return s.room.Wait(ctx, n)
}

// ReserveNow is Reserve where that need not wait. It reports whether it has reserved the room.
func ReserveNow(ctx context.Context, n int64) bool {
	s := shareOf(ctx)
	return s == nil || n <= 0 || s.room.Take(n)
}

// Release gives back n bytes that were reserved, before the function returns.
func Release(ctx context.Context, n int64) {
	if s := shareOf(ctx); s != nil && n > 0 {
		s.room.Give(n)
	}
}

// Waited returns for how long the call has waited for room so far.
func Waited(ctx context.Context) time.Duration {
	s := shareOf(ctx)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits > 0 {
		return s.waited + time.Since(s.since)
	}
	return s.waited
}

type roomKey struct{}

// WithRoom ties the room of a call to its context.
func WithRoom(ctx context.Context, r Room) context.Context {
	return context.WithValue(ctx, roomKey{}, &share{room: r})
}

func shareOf(ctx context.Context) *share {
	s, _ := ctx.Value(roomKey{}).(*share)
	return s
}

// share is the room of one call, and the time limits that stand still while the call waits for it.
type share struct {
	room Room

	mu     sync.Mutex // guards all below, and the times of the limits
	waits  int        // reservations that wait
	since  time.Time  // the first of them
	waited time.Duration
	limits []*timeLimit // few
}

func (s *share) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits++; s.waits > 1 {
		return
	}
	s.since = time.Now()
	for _, l := range s.limits {
		l.halt(s.since)
	}
}

func (s *share) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits--; s.waits > 0 {
		return
	}
	now := time.Now()
	s.waited += now.Sub(s.since)
	for _, l := range s.limits {
		l.goOn(now)
	}
}

// timeLimit is a context that ends after a time, of which the waits for room are no part.
type timeLimit struct {
	context.Context
	share  *share
	timer  *time.Timer
	until  time.Time
	left   time.Duration // of one that stands still
	halted bool
}

// WithTimeout is context.WithTimeoutCause for functions that reserve room: the time does not count in which the
// call waits for it. The cause of its end wraps cause, and context.DeadlineExceeded; nil is that alone.
func WithTimeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	s := shareOf(ctx)
	if s == nil {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	inner, end := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := &timeLimit{Context: inner, share: s, until: now.Add(d)}
	l.timer = time.AfterFunc(d, func() { end(&timeUpError{cause}) })
	if s.waits > 0 {
		l.halt(now)
	}
	s.limits = append(s.limits, l)
	return l, func() {
		s.mu.Lock()
		s.limits = slices.DeleteFunc(s.limits, func(other *timeLimit) bool { return other == l })
		s.mu.Unlock()
		l.timer.Stop()
		end(context.Canceled)
	}
}

// halt and goOn are called with the lock of the share.
func (l *timeLimit) halt(now time.Time) {
	if l.halted = l.timer.Stop(); l.halted {
		l.left = l.until.Sub(now)
	}
}

func (l *timeLimit) goOn(now time.Time) {
	if l.halted {
		l.halted = false
		l.until = now.Add(l.left)
		l.timer.Reset(l.left)
	}
}

// Deadline implements context.Context. It is as things stand: a wait for room moves it.
func (l *timeLimit) Deadline() (time.Time, bool) {
	l.share.mu.Lock()
	until := l.until
	if l.halted {
		until = time.Now().Add(l.left)
	}
	l.share.mu.Unlock()
	if at, ok := l.Context.Deadline(); ok && at.Before(until) {
		return at, true
	}
	return until, true
}

// Err implements context.Context.
func (l *timeLimit) Err() error {
	err := l.Context.Err()
	if err == nil {
		return nil
	}
	if _, up := errors.AsType[*timeUpError](context.Cause(l.Context)); up {
		return context.DeadlineExceeded
	}
	return err
}

// timeUpError is the cause of a time limit's end.
type timeUpError struct{ cause error }

func (e *timeUpError) Error() string   { return e.cause.Error() }
func (e *timeUpError) Unwrap() []error { return []error{e.cause, context.DeadlineExceeded} }
func (e *timeUpError) Timeout() bool   { return true }
