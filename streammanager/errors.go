package streammanager

import (
	"errors"

	"github.com/a0c75104/enricher/event"
)

// ErrAssignmentLost is wrapped by the error of a commit that came too late: the partitions belong to
// somebody else.
var ErrAssignmentLost = errors.New("partitions are no longer assigned to this worker")

var errAllAbandoned = event.Fatal(errors.New("all workers are taken by calls that do not return: the function ignores its context"))

// Reason is why a stream failed, in a word.
type Reason string

// The reasons.
const (
	ReasonOpen       Reason = "open"       // the stream could not be made or opened
	ReasonSource     Reason = "source"     // the source failed
	ReasonSink       Reason = "sink"       // the sink failed, and the source cannot go back
	ReasonGroup      Reason = "group"      // this worker was put out of its consumer group
	ReasonUnreadable Reason = "unreadable" // what is at a position cannot be read
	ReasonStalled    Reason = "stalled"    // something stood still and could not be set going
	// ReasonTransaction: no further transaction is possible, as when another worker has the same transactional id.
	ReasonTransaction Reason = "transaction"
	ReasonOther       Reason = "other"
)

// Reasons returns all of them.
func Reasons() []Reason {
	return []Reason{ReasonOpen, ReasonSource, ReasonSink, ReasonGroup, ReasonUnreadable, ReasonStalled, ReasonTransaction, ReasonOther}
}

// FailedError is how a stream fails that may be started again: why, and where if that is known. A failure at
// one place that comes again and again is the event's there, and no start will help.
type FailedError struct {
	Reason Reason
	At     *event.Position // nil: of no event in particular
	Err    error
}

func (e *FailedError) Error() string { return e.Err.Error() }
func (e *FailedError) Unwrap() error { return e.Err }

// failed gives err a reason, unless it has one or is for good.
func failed(reason Reason, err error) error {
	var fatal *event.FatalError
	var known *FailedError
	if err == nil || errors.As(err, &fatal) || errors.As(err, &known) {
		return err
	}
	return &FailedError{Reason: reason, Err: err}
}
