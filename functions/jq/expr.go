package jq

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// Expr is a compiled expression. It is immutable and safe for use by many goroutines at once.
type Expr struct {
	src   string
	path  event.Path // where bare
	bare  bool
	short node // nil: only gojq can evaluate it
	whole *gojqNode
	paths []event.Path
	reads bool
	vars  []string // of the event, without the dollar sign

	elements Elements
	hidden   hidden
}

// Compile compiles an expression. The error is a *SyntaxError. Functions that reach out of the event
// (env, input, modules, debug, halt) are refused. more names variables, without the dollar sign, that it may
// use beside those of every event; OnAnswer gives their values.
func Compile(src string, more ...string) (*Expr, error) {
	q, err := parse(src)
	if err != nil {
		return nil, err
	}
	return compile(src, q, more...)
}

// compile compiles a query that parse has checked; src is its text, for messages and places.
func compile(src string, q *gojq.Query, more ...string) (*Expr, error) {
	e := &Expr{src: src}
	c, other := planner{more: more}, planner{more: more}
	n, err := c.short(q)
	if err == nil && n == nil {
		c = planner{more: more}
		e.whole, err = c.gojq(q)
	} else if err == nil {
		e.whole, err = other.gojq(q)
	}
	if err != nil {
		return nil, compileError(src, err, more)
	}
	if p, ok := n.(*pathNode); ok {
		e.path, e.bare = p.path, true
	}
	e.short = n
	e.paths, e.reads = c.paths, c.reads
	e.elements = elementsOf(q)
	for _, name := range names(q) {
		if strings.HasPrefix(name, "$") && known(name[1:], nil) {
			e.vars = append(e.vars, name[1:])
		}
	}
	return e, nil
}

// String returns the expression as it was written.
func (e *Expr) String() string { return e.src }

// Normal returns the expression in one spelling: without comments, and with blanks only where they belong.
func (e *Expr) Normal() string {
	q, err := gojq.Parse(e.src)
	if err != nil {
		return e.src // it was compiled from a query that is not its text
	}
	return q.String()
}

// Paths returns the plain paths that the expression reads from the value; "." stands for all of it.
func (e *Expr) Paths() []event.Path { return slices.Clone(e.paths) }

// ReadsValue reports whether the expression looks at the event's value at all; one that does not works
// on values that are not JSON.
func (e *Expr) ReadsValue() bool { return e.reads }

// Variables returns the names, without the dollar sign, of those variables of the event that the expression uses.
func (e *Expr) Variables() []string { return slices.Clone(e.vars) }

// Path returns the path that the expression is, if it is no more than one.
func (e *Expr) Path() (event.Path, bool) { return e.path, e.bare }

// Bool evaluates a condition: null and false are false, as is no result; everything else is true. More
// than one result is an error.
func (e *Expr) Bool(ctx context.Context, ev *event.Event) (bool, error) {
	x, ok, err := e.eval(newInput(ctx, ev))
	return ok && x.truthy(), err
}

// JSON returns the one result as JSON text. The caller does not write to it: it may be a part of the
// event's value. No result and more than one are errors.
func (e *Expr) JSON(ctx context.Context, ev *event.Event) ([]byte, error) {
	x, err := e.one(newInput(ctx, ev))
	if err != nil {
		return nil, err
	}
	return x.json()
}

// Text returns the one result as text: a string as it is, numbers as spelled, lists and objects as
// compact JSON. missing reports that it is null.
func (e *Expr) Text(ctx context.Context, ev *event.Event) (text string, missing bool, err error) {
	return e.text(newInput(ctx, ev))
}

// OnJSON evaluates the expression on the JSON text raw instead of the event's value; the variables are
// those of ev, which may be nil. The result is nil where it is null or missing, else it may be a part
// of raw. More than one result is an error, none is a missing one.
func (e *Expr) OnJSON(ctx context.Context, raw []byte, ev *event.Event) ([]byte, error) {
	return e.OnAnswer(ctx, raw, ev, nil)
}

// OnAnswer is OnJSON with values for the further variables that Compile was told of. more gives the value of
// one, named without the dollar sign, as a nil, bool, int, float64, string, []any or map[string]any.
func (e *Expr) OnAnswer(ctx context.Context, raw []byte, ev *event.Event, more func(name string) any) ([]byte, error) {
	in := newInputOn(ctx, raw, ev)
	in.more = more
	x, ok, err := e.eval(in)
	if err != nil || !ok {
		return nil, err
	}
	out, err := x.json()
	if err != nil || string(out) == "null" {
		return nil, err
	}
	return out, nil
}

func (e *Expr) text(in *input) (text string, missing bool, err error) {
	x, err := e.one(in)
	if err != nil {
		return "", false, err
	}
	return x.text()
}

// one is eval where a result is needed.
func (e *Expr) one(in *input) (val, error) {
	x, ok, err := e.eval(in)
	if err == nil && !ok {
		err = event.Rejectf(event.Expression, "evaluating %q: no result where one is needed", e.Name())
	}
	return x, err
}

// eval returns the result and whether there is one.
func (e *Expr) eval(in *input) (val, bool, error) {
	if e.bare {
		raw, err := in.get(e.path)
		return val{raw: raw}, err == nil, err
	}
	if e.short != nil {
		x, err := e.short.eval(in)
		if !errors.Is(err, errFallback) {
			return x, err == nil, e.wrap(err)
		}
	}
	out, err := e.whole.run(in, 1)
	if errors.Is(err, errTooMany) {
		err = event.Rejectf(event.Expression, "evaluating %q: more than one result", e.Name())
		return val{}, false, err
	}
	if err != nil || len(out) == 0 {
		return val{}, false, e.wrap(err)
	}
	return val{v: out[0]}, true, nil
}

// results returns all results, for the programs that may have any number.
func (e *Expr) results(in *input) ([]val, error) {
	if e.short != nil {
		x, err := e.short.eval(in)
		if !errors.Is(err, errFallback) {
			return []val{x}, e.wrap(err)
		}
	}
	out, err := e.whole.run(in, maxResults)
	if errors.Is(err, errTooMany) {
		return nil, event.Rejectf(event.Expression, "evaluating %q: more than %d results", e.Name(), maxResults)
	}
	vals := make([]val, len(out))
	for i, v := range out {
		vals[i] = val{v: v}
	}
	return vals, e.wrap(err)
}

// first returns the first result and whether there is one. What would come after it is not evaluated.
func (e *Expr) first(in *input) (val, bool, error) {
	if e.short != nil {
		x, err := e.short.eval(in)
		if !errors.Is(err, errFallback) {
			return x, err == nil, e.wrap(err)
		}
	}
	var x val
	err := e.whole.each(in, func(v any) error {
		x = val{v: v}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		return x, true, nil
	}
	return val{}, false, e.wrap(err)
}

// wrap makes an error event of what went wrong within the expression; other errors stay as they are.
func (e *Expr) wrap(err error) error {
	if v, ok := errors.AsType[*valueError](err); ok {
		return event.Rejectf(event.Expression, "evaluating %q: %w", e.Name(), e.hidden.in(v.err))
	}
	if l, ok := errors.AsType[*limitError](err); ok {
		return event.Rejectf(event.Expression, "evaluating %q: %w", e.Name(), l)
	}
	return err
}
