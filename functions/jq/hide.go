package jq

import (
	"errors"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// nameBytes bounds an expression in a message.
const nameBytes = 120

// hidden keeps out of messages what must not be read there.
type hidden struct{ mask func(string) string }

// name is text as a message may show it.
func (h hidden) name(text string) string {
	if h.mask != nil {
		text = h.mask(text) // before it is cut, so that no half of a secret is left
	}
	return cut(text, nameBytes)
}

// in returns err with its message masked.
func (h hidden) in(err error) error {
	if err == nil || h.mask == nil {
		return err
	}
	text := err.Error()
	r, reject := errors.AsType[*event.RejectError](err)
	if reject {
		text = r.Err.Error()
	}
	masked := errors.New(h.mask(text))
	switch {
	case masked.Error() == text:
		return err
	case reject:
		return event.Reject(r.Type, masked, event.Status(r.Status))
	}
	return masked
}

// Hide makes messages about the expression, and its Name, show mask of their text. It is called after
// Compile and before any other method.
func (e *Expr) Hide(mask func(string) string) { e.hidden.mask = mask }

// HideIn returns err, which came of what the expression gave, with its message masked.
func (e *Expr) HideIn(err error) error { return e.hidden.in(err) }

// Name is the expression for a message: what Hide hides is left out, and what is long is cut.
func (e *Expr) Name() string { return e.hidden.name(e.src) }

// Hide is that of Expr.
func (t *Template) Hide(mask func(string) string) {
	t.hidden.mask = mask
	for _, p := range t.parts {
		if p.expr != nil {
			p.expr.Hide(mask)
		}
	}
}

// HideIn returns err, which came of what the template gave, with its message masked.
func (t *Template) HideIn(err error) error { return t.hidden.in(err) }

// Name is the template for a message, as that of Expr.
func (t *Template) Name() string { return t.hidden.name(t.src) }

// Hide is that of Expr.
func (f *Func) Hide(mask func(string) string) {
	f.hidden.mask = mask
	for _, e := range f.exprs {
		e.Hide(mask)
	}
}

// Name is the program for a message, as that of Expr.
func (f *Func) Name() string { return f.hidden.name(f.src) }

// compile compiles a part of the program.
func (c *stepper) compile(q *gojq.Query) (*Expr, error) {
	e, err := compile(q.String(), q)
	if err == nil {
		c.exprs = append(c.exprs, e)
	}
	return e, err
}
