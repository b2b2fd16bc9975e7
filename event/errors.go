package event

import (
	"errors"
	"fmt"
	"time"
)

// Type classifies an error event. Functions of users may use names of their own.
type Type string

// The types of error events that the program itself makes.
const (
	InvalidEvent     Type = "invalid_event"
	MissingKey       Type = "missing_key"
	MissingField     Type = "missing_field"
	Expression       Type = "expression"
	NotFound         Type = "not_found"
	NoContent        Type = "no_content"
	EmptyResponse    Type = "empty_response"
	InvalidResponse  Type = "invalid_response"
	UnexpectedStatus Type = "unexpected_status"
	Timeout          Type = "timeout"
	Connection       Type = "connection"
	RateLimited      Type = "rate_limited"
	TooLarge         Type = "too_large"
	Rejected         Type = "rejected"
	Function         Type = "function"
	Panic            Type = "panic"
)

// RejectError makes an error event of its input; the pipeline goes on.
type RejectError struct {
	Type   Type
	Status int // status of the answer that caused it, 0 if there was none
	Err    error
}

func (e *RejectError) Error() string { return fmt.Sprintf("%s: %v", e.Type, e.Err) }
func (e *RejectError) Unwrap() error { return e.Err }

// RejectOption adds to what Reject says.
type RejectOption func(*RejectError)

// Status notes the status code of the answer that caused the error event.
func Status(code int) RejectOption { return func(e *RejectError) { e.Status = code } }

// Reject makes an error event of type t.
func Reject(t Type, err error, opts ...RejectOption) error {
	e := &RejectError{Type: t, Err: err}
	for _, o := range opts {
		o(e)
	}
	return e
}

// Rejectf is Reject with a formatted message.
func Rejectf(t Type, format string, args ...any) error {
	return &RejectError{Type: t, Err: fmt.Errorf(format, args...)}
}

// RetryError asks for another try of the same function on the event as it entered it.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return fmt.Sprintf("trying again in %v: %v", e.After, e.Err) }
func (e *RetryError) Unwrap() error { return e.Err }

// Retry asks for another try after a wait, during which the worker is free. It counts as an attempt;
// when attempts are used up err decides the error event (its type if it is a Reject).
func Retry(err error, after time.Duration) error { return &RetryError{After: after, Err: err} }

// HoldError asks for another try that is no attempt.
type HoldError struct {
	Until time.Time
	Err   error
	Bell  *Bell // ends the wait before; nil: nothing does
}

func (e *HoldError) Error() string {
	return fmt.Sprintf("held until %s: %v", e.Until.UTC().Format(time.RFC3339), e.Err)
}
func (e *HoldError) Unwrap() error { return e.Err }

// Hold asks for another try at a time; it is no attempt, and the worker is free meanwhile.
func Hold(err error, until time.Time) error { return &HoldError{Until: until, Err: err} }

// FatalError stops the pipeline.
type FatalError struct{ Err error }

func (e *FatalError) Error() string { return e.Err.Error() }
func (e *FatalError) Unwrap() error { return e.Err }

// Fatal stops the pipeline: it ends with status 1 and is not restarted.
func Fatal(err error) error { return &FatalError{Err: err} }

// AsReject returns err as the error event that it makes: a Reject as it is, the Reject inside a Retry
// or Hold, anything else with type Function.
func AsReject(err error) *RejectError {
	var r *RejectError
	if errors.As(err, &r) {
		return r
	}
	var again *RetryError
	if errors.As(err, &again) {
		err = again.Err
	}
	var hold *HoldError
	if errors.As(err, &hold) {
		err = hold.Err
	}
	return &RejectError{Type: Function, Err: err}
}
