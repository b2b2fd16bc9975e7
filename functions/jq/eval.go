package jq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

const (
	// timeLimit stops an expression that does not end.
	timeLimit = time.Second
	// maxResults bounds what one program may make of one event.
	maxResults = 10_000
	// maxMessage bounds the bytes of an error message that a program chose itself.
	maxMessage = 500
)

// root is the path of the whole value.
var root event.Path

// input is what one evaluation sees. The expressions of one template share it, so that the value is
// decoded at most once.
type input struct {
	ctx     context.Context
	ev      *event.Event // for the variables
	doc     *event.Event // whose value is "."
	root    any          // the value decoded
	decoded bool
}

func newInput(ctx context.Context, ev *event.Event) *input {
	return &input{ctx: ctx, ev: ev, doc: ev}
}

// newInputOn is an input whose value is raw instead of the event's own.
func newInputOn(ctx context.Context, raw []byte, ev *event.Event) *input {
	if ev == nil {
		ev = event.New(event.Position{}, nil, nil, nil, time.Time{})
	}
	return &input{ctx: ctx, ev: ev, doc: event.New(ev.Position(), nil, raw, nil, time.Time{})}
}

// get reads a plain path, null where it is missing. A tombstone reads as null.
func (in *input) get(p event.Path) ([]byte, error) {
	if in.doc.Tombstone() {
		return null, nil
	}
	raw, err := in.doc.Get(p)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return null, nil
	}
	return raw, nil
}

// at decodes what is at a path. A path through a scalar is errFallback: whether it is an error is for
// the whole expression to say, which may not even come to it.
func (in *input) at(p event.Path) (any, error) {
	raw, err := in.get(p)
	if r, ok := errors.AsType[*event.RejectError](err); ok && r.Type == event.Expression {
		return nil, errFallback
	}
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

// value decodes the whole value, once.
func (in *input) value() (any, error) {
	if in.decoded {
		return in.root, nil
	}
	raw, err := in.get(root)
	if err != nil {
		return nil, err
	}
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	in.root, in.decoded = v, true
	return v, nil
}

// variable returns the value of a variable as gojq takes it.
func (in *input) variable(name string) any {
	ev := in.ev
	switch name {
	case "$key":
		if ev.Key() == nil {
			return nil
		}
		return strings.ToValidUTF8(string(ev.Key()), "\uFFFD")
	case "$headers":
		m := make(map[string]any, len(ev.Headers()))
		for _, h := range ev.Headers() {
			if h.Value == nil {
				m[h.Key] = nil
				continue
			}
			m[h.Key] = strings.ToValidUTF8(string(h.Value), "\uFFFD")
		}
		return m
	case "$topic":
		return ev.Position().Topic
	case "$partition":
		return int(ev.Position().Partition)
	case "$offset":
		return int(ev.Position().Offset)
	case "$timestamp":
		if ev.Timestamp().IsZero() {
			return nil
		}
		return int(ev.Timestamp().UnixMilli())
	case "$pipeline":
		return event.Pipeline(in.ctx)
	default:
		return nil
	}
}

// program is a query compiled by gojq.
type program struct {
	code  *gojq.Code
	vars  []string     // those of ours that it names
	paths []event.Path // of a localized program: the values of the variables after those
	reads bool         // whether it looks at its input
}

// newProgram compiles q. Of a localized program paths are those that its variables hold.
func newProgram(q *gojq.Query, paths ...event.Path) (*program, error) {
	p := &program{paths: paths, reads: len(paths) == 0 && readsInput(q)}
	for _, name := range names(q) {
		if strings.HasPrefix(name, "$") && slices.Contains(variables, name[1:]) {
			p.vars = append(p.vars, name)
		}
	}
	all := slices.Clone(p.vars)
	for i := range paths {
		all = append(all, localVar(i))
	}
	code, err := gojq.Compile(q, gojq.WithVariables(all))
	if err != nil {
		return nil, err
	}
	p.code = code
	return p, nil
}

var (
	// errTooMany says that a program has more results than were asked for.
	errTooMany = errors.New("more results than allowed")
	// errEnough ends a run after the results that were needed.
	errEnough = errors.New("enough results")
)

// valueError is the failure of the program itself on this value, which another way of evaluating the
// same expression might catch.
type valueError struct{ err error }

func (e *valueError) Error() string { return e.err.Error() }
func (e *valueError) Unwrap() error { return e.err }

// each calls yield for the results of p on in until it returns an error, which each returns.
func (p *program) each(in *input, yield func(any) error) error {
	var dot any
	if p.reads {
		v, err := in.value()
		if err != nil {
			return err
		}
		dot = v
	}
	values := make([]any, 0, len(p.vars)+len(p.paths))
	for _, name := range p.vars {
		values = append(values, in.variable(name))
	}
	for _, path := range p.paths {
		v, err := in.at(path)
		if err != nil {
			return err
		}
		values = append(values, v)
	}
	ctx, cancel := context.WithTimeout(in.ctx, timeLimit)
	defer cancel()
	iter := p.code.RunWithContext(ctx, dot, values...)
	for {
		v, ok := iter.Next()
		if !ok {
			return nil
		}
		if err, ok := v.(error); ok {
			return p.failure(ctx, in, err)
		}
		if err := yield(v); err != nil {
			return err
		}
	}
}

func (p *program) failure(ctx context.Context, in *input, err error) error {
	if in.ctx.Err() != nil {
		return in.ctx.Err() // the caller's end, not the expression's
	}
	if ctx.Err() != nil {
		return event.Rejectf(event.Expression, "the expression ran longer than %v", timeLimit)
	}
	return &valueError{errors.New(cut(err.Error(), maxMessage))}
}

// finite reports whether v has a JSON spelling that reads back as v.
func finite(v any) bool {
	switch v := v.(type) {
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case []any:
		for _, e := range v {
			if !finite(e) {
				return false
			}
		}
	case map[string]any:
		for _, e := range v {
			if !finite(e) {
				return false
			}
		}
	}
	return true
}

// marshal spells v as JSON. NaN becomes null and infinity the largest number, as in jq.
func marshal(v any) ([]byte, error) {
	raw, err := gojq.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding a result: %w", err)
	}
	return raw, nil
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
