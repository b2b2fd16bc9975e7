package jq

import (
	"context"
	"reflect"
	"slices"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// Func is a jq program as a function of the chain. Assignments and deletes of plain paths, select and
// . joined by | work on the bytes of the value: what they do not name stays byte for byte. Any other
// program writes the value anew wherever its result is not the value it got.
type Func struct {
	src      string
	steps    []step // nil: the whole program is one expression
	whole    *Expr
	paths    []event.Path
	reads    bool
	rewrites bool
	exprs    []*Expr // all that the program is made of
	hidden   hidden
}

var (
	_ event.Func     = (*Func)(nil)
	_ event.ReadOnly = (*Func)(nil)
)

// step makes the events that go on of one event.
type step interface {
	apply(ctx context.Context, ev *event.Event) ([]*event.Event, error)
}

// NewFunc compiles a program. The error is a *SyntaxError.
func NewFunc(src string) (*Func, error) {
	q, err := parse(src)
	if err != nil {
		return nil, err
	}
	whole, err := compile(src, q)
	if err != nil {
		return nil, err
	}
	f := &Func{src: src, reads: true}
	var c stepper
	if steps, ok := c.steps(q); ok {
		f.steps, f.paths, f.exprs = steps, c.paths, c.exprs
		return f, nil
	}
	f.whole, f.paths, f.exprs, f.rewrites = whole, whole.Paths(), []*Expr{whole}, true
	return f, nil
}

// String returns the program as it was written.
func (f *Func) String() string { return f.src }

// Paths returns the plain paths that the program reads or sets; "." stands for all of the value.
func (f *Func) Paths() []event.Path { return slices.Clone(f.paths) }

// ReadsValue reports that the program needs a value that is JSON. It always does.
func (f *Func) ReadsValue() bool { return f.reads }

// Rewrites reports whether the program is none of the forms that work on the bytes, so that a value it
// changes is written anew: members sorted, white space gone.
func (f *Func) Rewrites() bool { return f.rewrites }

// ReadOnly implements event.ReadOnly.
func (f *Func) ReadOnly() {}

// Inline promises that the function never waits.
func (f *Func) Inline() bool { return true }

// Process implements event.Func. No result drops the event, several derive that many.
func (f *Func) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	if f.steps == nil {
		return f.rewrite(ctx, ev)
	}
	evs := []*event.Event{ev}
	for _, s := range f.steps {
		if len(evs) == 1 {
			var err error
			if evs, err = s.apply(ctx, evs[0]); err != nil {
				return nil, err
			}
			continue
		}
		var next []*event.Event
		for _, e := range evs {
			out, err := s.apply(ctx, e)
			if err != nil {
				return nil, err
			}
			if next = append(next, out...); len(next) > maxResults {
				return nil, event.Rejectf(event.Expression, "evaluating %q: more than %d results", f.Name(), maxResults)
			}
		}
		evs = next
	}
	return evs, nil
}

// rewrite makes an event of each result. A result that is the input itself, as select and if leave it,
// keeps its bytes.
func (f *Func) rewrite(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	in := newInput(ctx, ev)
	vals, err := f.whole.results(in)
	if err != nil {
		return nil, err
	}
	out := make([]*event.Event, len(vals))
	for i, x := range vals {
		out[i] = ev
		if len(vals) > 1 {
			out[i] = ev.Share()
		}
		if x.raw == nil && in.decoded && same(x.v, in.root) {
			continue
		}
		raw, err := x.json()
		if err != nil {
			return nil, err
		}
		out[i].SetValue(slices.Clone(raw))
	}
	return out, nil
}

// same reports whether two values are one object or list in memory, which gojq never changes in place.
func same(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if !x.IsValid() || !y.IsValid() || x.Kind() != y.Kind() {
		return false
	}
	switch x.Kind() {
	case reflect.Map:
		return x.Pointer() == y.Pointer()
	case reflect.Slice:
		return x.Len() == y.Len() && x.Len() > 0 && x.Pointer() == y.Pointer()
	default:
		return false
	}
}

// branch calls set for each of n results: on ev itself if there is one, else on copies.
func branch(ev *event.Event, vals []val, set func(*event.Event, val) error) ([]*event.Event, error) {
	out := make([]*event.Event, len(vals))
	for i, x := range vals {
		out[i] = ev
		if len(vals) > 1 {
			out[i] = ev.Share()
		}
		if err := set(out[i], x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// assign is PATH = EXPR: the expression sees the whole value.
type assign struct {
	path event.Path
	expr *Expr
}

func (s *assign) apply(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	vals, err := s.expr.results(newInput(ctx, ev))
	if err != nil {
		return nil, err
	}
	return branch(ev, vals, func(e *event.Event, x val) error { return setVal(e, s.path, x) })
}

func setVal(ev *event.Event, p event.Path, x val) error {
	raw, err := x.json()
	if err != nil {
		return err
	}
	return ev.Set(p, raw)
}

// modify is PATH |= EXPR: the expression sees what is at the path; its first result is set, none
// deletes the path.
type modify struct {
	path event.Path
	expr *Expr
}

func (s *modify) apply(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	raw, err := newInput(ctx, ev).get(s.path)
	if err != nil {
		return nil, err
	}
	x, ok, err := s.expr.first(newInputOn(ctx, raw, ev))
	if err != nil {
		return nil, err
	}
	if !ok {
		return []*event.Event{ev}, ev.Delete(s.path)
	}
	return []*event.Event{ev}, setVal(ev, s.path, x)
}

// remove is del(PATH, …).
type remove struct{ paths []event.Path }

func (s *remove) apply(_ context.Context, ev *event.Event) ([]*event.Event, error) {
	for _, p := range s.paths {
		if err := ev.Delete(p); err != nil {
			return nil, err
		}
	}
	return []*event.Event{ev}, nil
}

// choose is select(EXPR).
type choose struct{ expr *Expr }

func (s *choose) apply(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	vals, err := s.expr.results(newInput(ctx, ev))
	if err != nil {
		return nil, err
	}
	vals = slices.DeleteFunc(vals, func(x val) bool { return !x.truthy() })
	return branch(ev, vals, func(*event.Event, val) error { return nil })
}

// stepper finds the programs that work on bytes.
type stepper struct {
	paths []event.Path
	exprs []*Expr
}

func (c *stepper) steps(q *gojq.Query) ([]step, bool) {
	if len(q.FuncDefs) > 0 || len(q.Patterns) > 0 {
		return nil, false
	}
	if q.Term == nil && q.Op == gojq.OpPipe {
		l, ok := c.steps(q.Left)
		if !ok {
			return nil, false
		}
		r, ok := c.steps(q.Right)
		return append(l, r...), ok
	}
	if q.Term != nil {
		return c.term(q.Term)
	}
	if q.Op < gojq.OpAssign {
		return nil, false
	}
	return c.update(q)
}

func (c *stepper) term(t *gojq.Term) ([]step, bool) {
	if t.Type == gojq.TermTypeIdentity && len(t.SuffixList) == 0 {
		return []step{}, true
	}
	if t.Type == gojq.TermTypeQuery && len(t.SuffixList) == 0 {
		return c.steps(t.Query)
	}
	if t.Type != gojq.TermTypeFunc || len(t.Func.Args) != 1 || len(t.SuffixList) > 0 {
		return nil, false
	}
	arg := t.Func.Args[0]
	switch t.Func.Name {
	case "del":
		return c.remove(arg)
	case "select":
		e, ok := c.expr(arg)
		return []step{&choose{expr: e}}, ok
	}
	return nil, false
}

func (c *stepper) expr(q *gojq.Query) (*Expr, bool) {
	e, err := c.compile(q)
	if err != nil {
		return nil, false
	}
	c.paths = append(c.paths, e.paths...)
	return e, true
}

func (c *stepper) remove(arg *gojq.Query) ([]step, bool) {
	var all [][]any
	for _, q := range commas(arg) {
		if q.Term == nil || len(q.FuncDefs) > 0 {
			return nil, false
		}
		steps, ok := pathSteps(q.Term)
		if !ok || len(steps) == 0 {
			return nil, false
		}
		all = append(all, steps)
	}
	// All paths mean the value before the first delete, so later elements of a list go first.
	slices.SortFunc(all, func(a, b []any) int { return gojq.Compare(b, a) })
	out := &remove{}
	for _, steps := range slices.CompactFunc(all, func(a, b []any) bool { return gojq.Compare(a, b) == 0 }) {
		p, err := event.ParsePath(pathText(steps))
		if err != nil {
			return nil, false
		}
		out.paths = append(out.paths, p)
	}
	c.paths = append(c.paths, out.paths...)
	return []step{out}, true
}

// update knows PATH = EXPR, PATH |= EXPR, and PATH += EXPR and its like, which jq takes for
// EXPR as $x | PATH |= (. + $x).
func (c *stepper) update(q *gojq.Query) ([]step, bool) {
	if q.Left.Term == nil || len(q.Left.FuncDefs) > 0 {
		return nil, false
	}
	path, ok := plainPath(q.Left.Term)
	if !ok {
		return nil, false
	}
	c.paths = append(c.paths, path)
	switch q.Op {
	case gojq.OpModify:
		e, err := c.compile(q.Right)
		return []step{&modify{path: path, expr: e}}, err == nil
	case gojq.OpAssign:
		e, ok := c.expr(q.Right)
		return []step{&assign{path: path, expr: e}}, ok
	}
	op, ok := map[gojq.Operator]gojq.Operator{
		gojq.OpUpdateAdd: gojq.OpAdd, gojq.OpUpdateSub: gojq.OpSub, gojq.OpUpdateMul: gojq.OpMul,
		gojq.OpUpdateDiv: gojq.OpDiv, gojq.OpUpdateMod: gojq.OpMod, gojq.OpUpdateAlt: gojq.OpAlt,
	}[q.Op]
	if !ok {
		return nil, false
	}
	const name = "$__operand"
	operand := &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name}}}
	e, ok := c.expr(&gojq.Query{
		Left: q.Right, Op: gojq.OpPipe, Patterns: []*gojq.Pattern{{Name: name}},
		Right: &gojq.Query{Left: q.Left, Op: op, Right: operand},
	})
	return []step{&assign{path: path, expr: e}}, ok
}
