package jq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

const (
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
	ev      *event.Event          // for the variables
	doc     *event.Event          // whose value is "."
	more    func(name string) any // gives further variables; nil: there are none
	root    any                   // the value decoded
	decoded bool
	looked  bool // whether lone is known
	lone    bool // a string in root holds half of a surrogate pair
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
func (in *input) at(p event.Path) (v any, lone bool, err error) {
	raw, err := in.get(p)
	if r, ok := errors.AsType[*event.RejectError](err); ok && r.Type == event.Expression {
		return nil, false, errFallback
	}
	if err != nil {
		return nil, false, err
	}
	return decodeHalves(raw)
}

// value decodes the whole value, once.
func (in *input) value() (any, error) {
	if in.decoded {
		if !in.looked {
			in.lone, in.looked = hasHalves(in.root), true
		}
		return in.root, nil
	}
	raw, err := in.get(root)
	if err != nil {
		return nil, err
	}
	v, lone, err := decodeHalves(raw)
	if err != nil {
		return nil, err
	}
	in.root, in.decoded, in.lone, in.looked = v, true, lone, true
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
	}
	if in.more == nil {
		return nil
	}
	return in.more(name[1:])
}

// program is a query compiled by gojq.
type program struct {
	code  *gojq.Code
	vars  []string     // those of ours that it names
	paths []event.Path // of a localized program: the values of the variables after those
	reads bool         // whether it looks at its input
	quick bool         // whether it can be stopped at any time
	stuck atomic.Int64 // evaluations that were left behind and are still running
}

// newProgram compiles q, which may use the variables in more too. Of a localized program paths are those that
// its variables hold.
func newProgram(q *gojq.Query, more []string, paths ...event.Path) (*program, error) {
	p := &program{paths: paths, reads: len(paths) == 0 && readsInput(q), quick: prompt(q)}
	for _, name := range names(q) {
		if strings.HasPrefix(name, "$") && known(name[1:], more) {
			p.vars = append(p.vars, name)
		}
	}
	all := slices.Clone(p.vars)
	for i := range paths {
		all = append(all, localVar(i))
	}
	all = append(all, loneVar)
	safe, err := guard(q)
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(safe, append(slices.Clone(checks), gojq.WithVariables(all))...)
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

// arguments returns what p sees: its input and the values of its variables. Where lone is true their
// strings have private characters for halves of surrogate pairs.
func (p *program) arguments(in *input) (dot any, values []any, lone bool, err error) {
	if p.reads {
		if dot, err = in.value(); err != nil {
			return nil, nil, false, err
		}
		lone = in.lone
	}
	values = make([]any, 0, len(p.vars)+len(p.paths)+1)
	for _, name := range p.vars {
		values = append(values, in.variable(name))
	}
	for _, path := range p.paths {
		v, half, err := in.at(path)
		if err != nil {
			return nil, nil, false, err
		}
		values = append(values, v)
		lone = lone || half
	}
	if lone {
		if dot, err = private(dot); err != nil {
			return nil, nil, false, &limitError{err.Error()}
		}
		for i := range values {
			if values[i], err = private(values[i]); err != nil {
				return nil, nil, false, &limitError{err.Error()}
			}
		}
	}
	return dot, append(values, lone), lone, nil
}

// each calls yield for the results of p on in until it returns an error, which each returns.
func (p *program) each(in *input, yield func(any) error) error {
	dot, values, lone, err := p.arguments(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(in.ctx, timeLimit)
	defer cancel()
	e := &evaluation{
		iter: p.code.RunWithContext(ctx, dot, values...), stuck: &p.stuck,
		yield: yield,
		check: func(v any) (any, error) {
			if same(v, dot) {
				return in.root, nil // as it came
			}
			if err := spelled(v); err != nil {
				return nil, &limitError{err.Error()}
			}
			if lone {
				v = public(v)
			}
			return v, nil
		},
	}
	if p.quick {
		err = e.here()
	} else {
		err = e.wait(ctx)
	}
	if failed, ok := errors.AsType[*failedError](err); ok {
		return p.failure(ctx, in, failed.err)
	}
	return err
}

func (p *program) failure(ctx context.Context, in *input, err error) error {
	if in.ctx.Err() != nil {
		return in.ctx.Err() // the caller's end, not the expression's
	}
	if ctx.Err() != nil {
		return &limitError{fmt.Sprintf("it ran longer than %v", timeLimit)}
	}
	return &valueError{errors.New(cut(strings.ToValidUTF8(fmt.Sprint(public(err.Error())), "\uFFFD"), maxMessage))}
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
	if err == nil && bytes.Contains(raw, []byte(`\ufffd`)) { // so gojq spells what is not UTF-8, and that alone
		raw, err = appendHalves(nil, v)
	}
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
