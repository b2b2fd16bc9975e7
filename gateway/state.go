package gateway

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// State is what a job does, by Flink's names.
type State string

// The states, in Flink's order. Restarting is waiting for the next start after a failure. Suspended is a job whose
// worker goes while the job itself goes on elsewhere. No job here is ever Reconciling; clients know the word.
const (
	Initializing State = "INITIALIZING"
	Created      State = "CREATED"
	Running      State = "RUNNING"
	Failing      State = "FAILING"
	Failed       State = "FAILED"
	Cancelling   State = "CANCELLING"
	Canceled     State = "CANCELED"
	Finished     State = "FINISHED"
	Restarting   State = "RESTARTING"
	Suspended    State = "SUSPENDED"
	Reconciling  State = "RECONCILING"
)

// States returns all of them.
func States() []State {
	return []State{Initializing, Created, Running, Failing, Failed, Cancelling, Canceled, Finished, Restarting, Suspended, Reconciling}
}

// next has the states that may follow each. Nothing follows a final one.
var next = map[State][]State{
	Initializing: {Created, Cancelling, Failing, Suspended},
	Created:      {Running, Cancelling, Failing, Finished, Suspended},
	Running:      {Restarting, Finished, Cancelling, Failing, Suspended},
	Restarting:   {Running, Finished, Cancelling, Failing, Suspended},
	Failing:      {Failed, Cancelling, Suspended},
	Cancelling:   {Canceled, Failed, Suspended},
}

// Final reports whether nothing follows s.
func (s State) Final() bool { return len(next[s]) == 0 }

// TransitionError is a change of state that may not be.
type TransitionError struct{ From, To State }

func (e *TransitionError) Error() string {
	return fmt.Sprintf("a job that is %s does not become %s", e.From, e.To)
}

// Exception is a failure of a job.
type Exception struct {
	Name   string // what kind of failure it is, in a word
	Text   string
	At     time.Time
	Worker string            // id of the worker, "" where it is the job's as a whole
	Labels map[string]string // such as the reason
}

// mostExceptions is how many of the last failures are kept.
const mostExceptions = 16

// Course is the way of a job through its states: the one place where they change.
type Course struct {
	mu         sync.Mutex // guards what follows
	state      State
	since      map[State]time.Time // when each was entered last
	changed    time.Time
	exceptions []Exception // the oldest first
	dropped    bool        // there were more
}

// NewCourse begins at Initializing.
func NewCourse() *Course {
	now := time.Now()
	return &Course{state: Initializing, changed: now, since: map[State]time.Time{Initializing: now}}
}

// To changes the state, or returns a TransitionError and changes nothing.
func (c *Course) To(s State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(next[c.state], s) {
		return &TransitionError{From: c.state, To: s}
	}
	c.state, c.changed = s, time.Now()
	c.since[s] = c.changed
	return nil
}

// Add notes a failure.
func (c *Course) Add(e Exception) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.exceptions) == mostExceptions {
		c.exceptions = slices.Delete(c.exceptions, 0, 1)
		c.dropped = true
	}
	c.exceptions = append(c.exceptions, e)
}

// State returns where the job is.
func (c *Course) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// History is a picture of a Course.
type History struct {
	State      State
	Since      map[State]time.Time // only those that were entered
	Changed    time.Time
	Exceptions []Exception // the newest first
	Truncated  bool        // there were more
}

// Began is when the job did.
func (h *History) Began() time.Time { return h.Since[Initializing] }

// Ended is when the job did, the zero time where it goes on.
func (h *History) Ended() time.Time {
	if h.State.Final() {
		return h.Changed
	}
	return time.Time{}
}

// Failure is what a job failed of, nil where it did not.
func (h *History) Failure() *Exception {
	if h.State != Failed || len(h.Exceptions) == 0 {
		return nil
	}
	return &h.Exceptions[0]
}

// History returns a copy.
func (c *Course) History() History {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := History{State: c.state, Since: map[State]time.Time{}, Changed: c.changed, Exceptions: slices.Clone(c.exceptions), Truncated: c.dropped}
	for s, at := range c.since {
		h.Since[s] = at
	}
	slices.Reverse(h.Exceptions)
	return h
}
