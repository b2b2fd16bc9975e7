package asynchttp

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/a0c75104/enricher/event"
)

// Func calls an API for each event and puts the answer into it.
type Func struct {
	o          Options
	pool       *pool
	meters     *meters
	gates      *gates
	cache      *cache // nil: none
	log        *slog.Logger
	allow      allowList
	routes     routeTable
	auth       credentials // nil: none
	timeout    time.Duration
	total      time.Duration
	repeatable bool

	varying     []string    // with cache: headers that may differ from event to event
	withHeaders bool        // with cache: those of answers are kept
	unstored    atomic.Bool // it was said that a host forbids to keep its answers
}

var (
	_ event.Func     = (*Func)(nil)
	_ event.ReadOnly = (*Func)(nil)
)

// ReadOnly implements event.ReadOnly.
func (f *Func) ReadOnly() {}

// Paths returns the plain paths of the value that the function reads or sets.
func (f *Func) Paths() []event.Path {
	var paths []event.Path
	for _, t := range f.o.templates() {
		paths = append(paths, t.Paths()...)
	}
	if !f.o.Body.IsZero() {
		paths = append(paths, f.o.Body.Paths()...)
	}
	if r := f.o.RetryRecent; r != nil && !r.Time.IsZero() {
		paths = append(paths, r.Time.Paths()...)
	}
	for _, t := range f.o.Into.Targets {
		paths = append(paths, t.Path.Path)
	}
	return paths
}

// ReadsValue reports that the function needs a value that is JSON, since its answer goes into it: without
// this an API would be called for an event that can take no answer.
func (f *Func) ReadsValue() bool { return true }

// MaxAttempts says that the function bounds its attempts itself.
func (f *Func) MaxAttempts() int { return -1 }

// CallTimeout is the longest that one call of Process takes: all tries that it may make itself, and the
// waits between them. A step's own timeout must not be shorter.
func (f *Func) CallTimeout() time.Duration {
	return triesPerCall * (f.timeout + shortWait)
}

// Process implements event.Func.
func (f *Func) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	req, err := f.build(ctx, ev)
	if err != nil {
		return nil, err
	}
	c := newCall(ctx, f, ev, req)
	ask := c.run
	if f.cache != nil {
		ask = c.lookUp
	}
	do, err := ask()
	switch {
	case err != nil:
		return nil, err
	case do == doDrop:
		return nil, nil
	case do == doUse:
		if err := c.take(); err != nil {
			return nil, err
		}
	}
	return []*event.Event{ev}, nil
}
