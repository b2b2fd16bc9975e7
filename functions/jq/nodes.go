package jq

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

var (
	null    = []byte("null")
	yes, no = []byte("true"), []byte("false")
)

// errFallback says that a node cannot give exactly one result the short way; the whole expression then
// runs in gojq, which decides whether that is an error.
var errFallback = errors.New("evaluating in gojq")

// val is a value as JSON text, or where raw is nil as gojq holds it.
type val struct {
	raw []byte
	v   any
}

func (x val) json() ([]byte, error) {
	if x.raw != nil {
		return x.raw, nil
	}
	return marshal(x.v)
}

func (x val) decode() (any, error) {
	if x.raw != nil {
		return decode(x.raw)
	}
	return x.v, nil
}

func (x val) truthy() bool {
	if x.raw != nil {
		return x.raw[0] != 'n' && x.raw[0] != 'f'
	}
	return x.v != nil && x.v != false
}

func truth(b bool) val {
	if b {
		return val{raw: yes}
	}
	return val{raw: no}
}

// node is a part of an expression that gives exactly one result, or errFallback.
type node interface {
	eval(in *input) (val, error)
}

type (
	pathNode  struct{ path event.Path }
	literal   struct{ raw []byte }
	varNode   struct{ name string }
	notNode   struct{ of node }
	altNode   struct{ left, right node }
	arrayNode struct{ items []node }
	gojqNode  struct{ local, whole *program } // local: nil if there is none
	ifNode    struct{ cond, then, other node }
	logicNode struct {
		left, right node
		and         bool
	}
	objectNode struct {
		keys [][]byte // spelled as JSON, with the colon
		vals []node
	}
	compareNode struct {
		op          gojq.Operator
		left, right node
	}
)

func (n *pathNode) eval(in *input) (val, error) {
	raw, err := in.get(n.path)
	if r, ok := errors.AsType[*event.RejectError](err); ok && r.Type == event.Expression {
		return val{}, errFallback // an alternative (//) may catch it
	}
	return val{raw: raw}, err
}

func (n *literal) eval(*input) (val, error) { return val{raw: n.raw}, nil }

func (n *varNode) eval(in *input) (val, error) {
	v := in.variable(n.name)
	return val{v: v}, nil
}

func (n *notNode) eval(in *input) (val, error) {
	x, err := n.of.eval(in)
	return truth(!x.truthyOr(err)), err
}

// truthyOr is truthy for a value that may not be there because of err.
func (x val) truthyOr(err error) bool { return err == nil && x.truthy() }

func (n *altNode) eval(in *input) (val, error) {
	x, err := n.left.eval(in)
	if err != nil || x.truthy() {
		return x, err
	}
	return n.right.eval(in)
}

func (n *ifNode) eval(in *input) (val, error) {
	x, err := n.cond.eval(in)
	switch {
	case err != nil:
		return val{}, err
	case x.truthy():
		return n.then.eval(in)
	default:
		return n.other.eval(in)
	}
}

func (n *logicNode) eval(in *input) (val, error) {
	x, err := n.left.eval(in)
	if err != nil {
		return val{}, err
	}
	if x.truthy() != n.and {
		return truth(!n.and), nil
	}
	x, err = n.right.eval(in)
	return truth(x.truthyOr(err)), err
}

func (n *gojqNode) eval(in *input) (val, error) {
	out, err := n.run(in, 1)
	if _, ok := errors.AsType[*valueError](err); ok || errors.Is(err, errTooMany) {
		return val{}, errFallback
	}
	if err != nil {
		return val{}, err
	}
	if len(out) != 1 {
		return val{}, errFallback
	}
	return val{v: out[0]}, nil
}

// run returns all results, at most limit of them: more are errTooMany.
func (n *gojqNode) run(in *input, limit int) ([]any, error) {
	var out []any
	err := n.each(in, func(v any) error {
		if len(out) == limit {
			return errTooMany
		}
		out = append(out, v)
		return nil
	})
	return out, err
}

// each calls yield for the results until it returns an error, which each returns.
func (n *gojqNode) each(in *input, yield func(any) error) error {
	if n.local != nil {
		if err := n.local.each(in, yield); !errors.Is(err, errFallback) {
			return err
		}
	}
	return n.whole.each(in, yield)
}

func (n *arrayNode) eval(in *input) (val, error) {
	out := []byte{'['}
	for i, item := range n.items {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendValue(out, in, item); err != nil {
			return val{}, err
		}
	}
	return val{raw: append(out, ']')}, nil
}

func (n *objectNode) eval(in *input) (val, error) {
	out := []byte{'{'}
	for i, item := range n.vals {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, n.keys[i]...)
		var err error
		if out, err = appendValue(out, in, item); err != nil {
			return val{}, err
		}
	}
	return val{raw: append(out, '}')}, nil
}

// appendValue appends the JSON text of a node that becomes part of a larger one. What has no faithful
// text is left to gojq.
func appendValue(dst []byte, in *input, n node) ([]byte, error) {
	x, err := n.eval(in)
	if err != nil {
		return nil, err
	}
	if x.raw == nil && !finite(x.v) {
		return nil, errFallback
	}
	raw, err := x.json()
	return append(dst, raw...), err
}

func (n *compareNode) eval(in *input) (val, error) {
	l, err := n.left.eval(in)
	if err != nil {
		return val{}, err
	}
	r, err := n.right.eval(in)
	if err != nil {
		return val{}, err
	}
	c, err := compare(l, r)
	if err != nil {
		return val{}, err
	}
	switch n.op {
	case gojq.OpEq:
		return truth(c == 0), nil
	case gojq.OpNe:
		return truth(c != 0), nil
	case gojq.OpLt:
		return truth(c < 0), nil
	case gojq.OpLe:
		return truth(c <= 0), nil
	case gojq.OpGt:
		return truth(c > 0), nil
	default:
		return truth(c >= 0), nil
	}
}

// compare orders two values as jq does, scalars from their bytes.
func compare(l, r val) (int, error) {
	if l.raw != nil && r.raw != nil {
		a, b := l.raw, r.raw
		switch {
		case a[0] == '"' && b[0] == '"' && bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0:
			return bytes.Compare(a[1:len(a)-1], b[1:len(b)-1]), nil
		case isNumber(a[0]) && isNumber(b[0]):
			if bytes.Equal(a, b) {
				return 0, nil
			}
			return gojq.Compare(json.Number(a), json.Number(b)), nil
		case kind(a[0]) != kind(b[0]):
			return int(kind(a[0])) - int(kind(b[0])), nil
		}
	}
	x, err := l.decode()
	if err != nil {
		return 0, err
	}
	y, err := r.decode()
	if err != nil {
		return 0, err
	}
	return gojq.Compare(x, y), nil
}

func isNumber(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// kind ranks the types of JSON texts by their first byte, in jq's order.
func kind(c byte) byte {
	switch c {
	case 'n':
		return 0
	case 'f':
		return 1
	case 't':
		return 2
	case '"':
		return 4
	case '[':
		return 5
	case '{':
		return 6
	default:
		return 3
	}
}

// text returns the value as text; missing reports null.
func (x val) text() (text string, missing bool, err error) {
	if s, ok := x.v.(string); ok && x.raw == nil {
		return strings.ToValidUTF8(s, "\uFFFD"), false, nil
	}
	raw, err := x.json()
	if err != nil {
		return "", false, err
	}
	switch raw[0] {
	case 'n':
		return "", true, nil
	case '"':
		text, err = event.Unquote(raw)
		return text, false, err
	case '[', '{':
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return "", false, event.Reject(event.InvalidEvent, err)
		}
		return b.String(), false, nil
	default:
		return string(raw), false, nil
	}
}
