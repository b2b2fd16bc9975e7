package pipeline

import (
	"context"
	"fmt"
	"strings"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// NoteKind says what a Note tells of.
type NoteKind int

// What is told of an event. Asked: a condition, with Yes. Keyed and Grouped: Text is the key, or what the window is
// shared by. Calls: a function is called. Returned: it came back, with Events or Err.
const (
	Asked NoteKind = iota
	Keyed
	Grouped
	Calls
	Returned
)

// Note tells of one step of an event in a rehearsal.
type Note struct {
	Kind    NoteKind
	Event   int    // its index in Rehearsal.Events
	Place   string // filter, partition_by, window.by, or the name of the function
	Attempt int    // of a call, from 1
	Yes     bool
	Text    string
	Keyless bool
	Events  []*event.Event // to be read until Watch returns
	Err     error
}

// Call is a call of a function in a rehearsal, as those find it who answer its requests.
type Call struct {
	Events   []int // the indices of its events
	Function string
	tries    *event.Attempts
}

// Attempt is the number of the try that is being made, from 1.
func (c *Call) Attempt() int { return c.tries.Number() }

type callKey struct{}

// CallOf returns the call that ctx is of, nil where it is of none.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Windows says in words when the windows of the pipeline close.
func (p *Pipeline) Windows() string {
	w := p.cfg.Window
	if w == nil {
		return "none: each event goes at once"
	}
	var when []string
	if w.Count > 0 {
		when = append(when, fmt.Sprintf("at %d events", w.Count))
	}
	if w.Bytes > 0 {
		when = append(when, fmt.Sprintf("at %s", w.Bytes))
	}
	if w.Timeout > 0 {
		when = append(when, fmt.Sprintf("%v after its first event", w.Timeout))
	}
	if w.Eager {
		when = append(when, "when a worker is idle")
	}
	return "closes " + strings.Join(when, ", or ")
}

func (s *stage) note(n Note) {
	if s.Watch != nil {
		s.Watch(n)
	}
}

// condition watches a condition.
func (s *stage) condition(place string, of func(context.Context, *event.Event) (bool, error)) func(context.Context, *event.Event) (bool, error) {
	if s == nil {
		return of
	}
	return func(ctx context.Context, ev *event.Event) (bool, error) {
		yes, err := of(ctx, ev)
		s.note(Note{Kind: Asked, Event: s.of(ev), Place: place, Yes: yes, Err: err})
		return yes, err
	}
}

// key watches what gives the key.
func (s *stage) key(of func(context.Context, *event.Event) (streammanager.Key, error)) func(context.Context, *event.Event) (streammanager.Key, error) {
	if s == nil {
		return of
	}
	return func(ctx context.Context, ev *event.Event) (streammanager.Key, error) {
		key, err := of(ctx, ev)
		s.note(Note{Kind: Keyed, Event: s.of(ev), Place: "partition_by", Text: key.Value, Keyless: key.Keyless, Yes: !key.Drop, Err: err})
		return key, err
	}
}

// group watches what gives the text by which events share a window.
func (s *stage) group(of func(context.Context, *event.Event) (string, error)) func(context.Context, *event.Event) (string, error) {
	if s == nil {
		return of
	}
	return func(ctx context.Context, ev *event.Event) (string, error) {
		group, err := of(ctx, ev)
		s.note(Note{Kind: Grouped, Event: s.of(ev), Place: "window.by", Text: group, Err: err})
		return group, err
	}
}

// step watches a function.
func (s *stage) step(st streammanager.Step) streammanager.Step {
	if s == nil {
		return st
	}
	if st.When != nil {
		st.When = s.condition(st.Name, st.When)
	}
	switch {
	case st.Func != nil:
		st.Func = &watchedFunc{Func: st.Func, stage: s, name: st.Name}
	case st.Batch != nil:
		st.Batch = &watchedBatch{BatchFunc: st.Batch, stage: s, name: st.Name}
	}
	return st
}

// watchedFunc tells of the calls of a function. What the function can do beside is found before it is watched.
type watchedFunc struct {
	event.Func
	stage *stage
	name  string
}

// Process implements event.Func.
func (w *watchedFunc) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	i, tries := w.stage.of(ev), event.Attempt(ctx, ev)
	w.stage.note(Note{Kind: Calls, Event: i, Place: w.name, Attempt: tries.Number()})
	out, err := w.Func.Process(context.WithValue(ctx, callKey{}, &Call{[]int{i}, w.name, tries}), ev)
	w.stage.note(Note{Kind: Returned, Event: i, Place: w.name, Attempt: tries.Number(), Events: out, Err: err})
	return out, err
}

// watchedBatch tells of the calls of a BatchFunc.
type watchedBatch struct {
	event.BatchFunc
	stage *stage
	name  string
}

// ProcessBatch implements event.BatchFunc.
func (w *watchedBatch) ProcessBatch(ctx context.Context, evs []*event.Event) []event.Result {
	call := &Call{Function: w.name, tries: event.Attempt(ctx, evs[0])}
	for _, ev := range evs {
		i := w.stage.of(ev)
		call.Events = append(call.Events, i)
		w.stage.note(Note{Kind: Calls, Event: i, Place: w.name, Attempt: event.Attempt(ctx, ev).Number()})
	}
	results := w.BatchFunc.ProcessBatch(context.WithValue(ctx, callKey{}, call), evs)
	for n := range min(len(results), len(evs)) {
		w.stage.note(Note{
			Kind: Returned, Event: call.Events[n], Place: w.name, Attempt: event.Attempt(ctx, evs[n]).Number(),
			Events: results[n].Events, Err: results[n].Err,
		})
	}
	return results
}
