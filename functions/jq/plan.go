package jq

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// planner makes the nodes of one expression and gathers what they read.
type planner struct {
	more  []string // variables beside those of every event
	paths []event.Path
	reads bool
}

// node returns how q is evaluated where "." is the value of the event.
func (c *planner) node(q *gojq.Query) (node, error) {
	n, err := c.short(q)
	if n != nil || err != nil {
		return n, err
	}
	return c.gojq(q)
}

// gojq leaves q to gojq.
func (c *planner) gojq(q *gojq.Query) (*gojqNode, error) {
	p, err := newProgram(q, c.more)
	if err != nil {
		return nil, err
	}
	n := &gojqNode{whole: p}
	if !p.reads {
		return n, nil
	}
	if n.local = localize(q, c.more); n.local == nil {
		c.read(root)
		return n, nil
	}
	for _, path := range n.local.paths {
		c.read(path)
	}
	return n, nil
}

func (c *planner) read(p event.Path) {
	c.reads = true
	if !slices.ContainsFunc(c.paths, func(q event.Path) bool { return q.String() == p.String() }) {
		c.paths = append(c.paths, p)
	}
}

// short returns the node of q, nil if q is none of the forms that have one.
func (c *planner) short(q *gojq.Query) (node, error) {
	if len(q.FuncDefs) > 0 || len(q.Patterns) > 0 {
		return nil, nil
	}
	if q.Term != nil {
		return c.term(q.Term)
	}
	switch q.Op {
	case gojq.OpEq, gojq.OpNe, gojq.OpLt, gojq.OpLe, gojq.OpGt, gojq.OpGe, gojq.OpAnd, gojq.OpOr, gojq.OpAlt:
		l, err := c.node(q.Left)
		if err != nil {
			return nil, err
		}
		r, err := c.node(q.Right)
		if err != nil {
			return nil, err
		}
		switch q.Op {
		case gojq.OpAnd, gojq.OpOr:
			return &logicNode{left: l, right: r, and: q.Op == gojq.OpAnd}, nil
		case gojq.OpAlt:
			return &altNode{left: l, right: r}, nil
		default:
			return &compareNode{op: q.Op, left: l, right: r}, nil
		}
	case gojq.OpPipe:
		return c.pipe(q)
	default:
		return nil, nil
	}
}

// pipe knows "X | not" and "X | Y | not".
func (c *planner) pipe(q *gojq.Query) (node, error) {
	left, right := q.Left, q.Right
	if right.Op == gojq.OpPipe && len(right.Patterns) == 0 && len(right.FuncDefs) == 0 {
		// Pipes lean to the right: X | (Y | Z). Lean this one to the left, which means the same.
		left = &gojq.Query{Left: left, Op: gojq.OpPipe, Right: right.Left}
		return c.pipe(&gojq.Query{Left: left, Op: gojq.OpPipe, Right: right.Right})
	}
	if !isNot(right) {
		return nil, nil
	}
	n, err := c.node(left)
	if err != nil {
		return nil, err
	}
	return &notNode{of: n}, nil
}

func isNot(q *gojq.Query) bool {
	t := q.Term
	return t != nil && len(q.FuncDefs) == 0 && t.Type == gojq.TermTypeFunc && t.Func.Name == "not" &&
		len(t.Func.Args) == 0 && len(t.SuffixList) == 0
}

func (c *planner) term(t *gojq.Term) (node, error) {
	if p, ok := plainPath(t); ok {
		c.read(p)
		return &pathNode{path: p}, nil
	}
	if len(t.SuffixList) > 0 {
		return nil, nil
	}
	switch t.Type {
	case gojq.TermTypeNull:
		return &literal{raw: null}, nil
	case gojq.TermTypeTrue:
		return &literal{raw: yes}, nil
	case gojq.TermTypeFalse:
		return &literal{raw: no}, nil
	case gojq.TermTypeNumber:
		return numberNode(t.Number), nil
	case gojq.TermTypeUnary:
		if u := t.Unary; u.Op == gojq.OpSub && u.Term.Type == gojq.TermTypeNumber && len(u.Term.SuffixList) == 0 {
			return numberNode("-" + u.Term.Number), nil
		}
	case gojq.TermTypeString:
		if t.Str.Queries == nil {
			raw, err := marshal(t.Str.Str)
			return &literal{raw: raw}, err
		}
	case gojq.TermTypeFunc:
		if f := t.Func; f.Name[0] == '$' && known(f.Name[1:], c.more) {
			return &varNode{name: f.Name}, nil
		}
	case gojq.TermTypeQuery:
		return c.short(t.Query)
	case gojq.TermTypeIf:
		return c.branch(t.If)
	case gojq.TermTypeArray:
		return c.array(t.Array)
	case gojq.TermTypeObject:
		return c.object(t.Object)
	}
	return nil, nil
}

// numberNode keeps the spelling of a number that is one in JSON too, such as 1.0; others (.5) are
// gojq's.
func numberNode(text string) node {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return &literal{raw: []byte(text)}
}

func (c *planner) branch(i *gojq.If) (node, error) {
	if len(i.Elif) > 0 || i.Else == nil {
		return nil, nil
	}
	ns, err := c.nodes(i.Cond, i.Then, i.Else)
	if err != nil {
		return nil, err
	}
	return &ifNode{cond: ns[0], then: ns[1], other: ns[2]}, nil
}

func (c *planner) nodes(qs ...*gojq.Query) ([]node, error) {
	out := make([]node, len(qs))
	for i, q := range qs {
		n, err := c.node(q)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

func (c *planner) array(a *gojq.Array) (node, error) {
	if a.Query == nil {
		return &literal{raw: []byte("[]")}, nil
	}
	items := commas(a.Query)
	for _, q := range items {
		if !single(q) {
			return nil, nil // [.[] | f] may have any number of elements
		}
	}
	ns, err := c.nodes(items...)
	if err != nil {
		return nil, err
	}
	return &arrayNode{items: ns}, nil
}

// single guesses whether q has one result. A wrong guess costs time only: a node that has not one falls
// back to gojq.
func single(q *gojq.Query) bool {
	if len(q.FuncDefs) > 0 || len(q.Patterns) > 0 {
		return false
	}
	if q.Term == nil {
		return q.Op >= gojq.OpAdd && q.Op <= gojq.OpAlt && single(q.Left) && single(q.Right)
	}
	t := q.Term
	if _, ok := plainPath(t); ok {
		return true
	}
	if len(t.SuffixList) > 0 {
		return false
	}
	switch t.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
		return true
	case gojq.TermTypeString:
		return t.Str.Queries == nil
	case gojq.TermTypeFunc:
		return t.Func.Name[0] == '$'
	case gojq.TermTypeQuery:
		return single(t.Query)
	case gojq.TermTypeArray, gojq.TermTypeObject:
		return true
	default:
		return false
	}
}

// commas splits a, b, c.
func commas(q *gojq.Query) []*gojq.Query {
	if q.Term == nil && q.Op == gojq.OpComma && len(q.FuncDefs) == 0 {
		return append(commas(q.Left), commas(q.Right)...)
	}
	return []*gojq.Query{q}
}

func (c *planner) object(o *gojq.Object) (node, error) {
	out := &objectNode{}
	seen := map[string]bool{}
	for _, kv := range o.KeyVals {
		key, ok := constantKey(kv, c.more)
		if !ok || seen[key] {
			return nil, nil
		}
		seen[key] = true
		val := kv.Val
		if val == nil {
			val = shorthand(kv, key)
		}
		n, err := c.node(val)
		if err != nil {
			return nil, err
		}
		raw, err := marshal(key)
		if err != nil {
			return nil, err
		}
		out.keys, out.vals = append(out.keys, append(raw, ':')), append(out.vals, n)
	}
	return out, nil
}

// constantKey returns the name of a member that is written out: {a: 1}, {"a": 1}, {a}, {$key}.
func constantKey(kv *gojq.ObjectKeyVal, more []string) (string, bool) {
	switch {
	case strings.HasPrefix(kv.Key, "$"):
		return kv.Key[1:], kv.Val == nil && known(kv.Key[1:], more)
	case kv.Key != "":
		return kv.Key, true
	case kv.KeyString != nil:
		return kv.KeyString.Str, kv.KeyString.Queries == nil
	default:
		return "", false
	}
}

// shorthand returns the value that {a} and {$key} stand for.
func shorthand(kv *gojq.ObjectKeyVal, key string) *gojq.Query {
	if strings.HasPrefix(kv.Key, "$") {
		return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: kv.Key}}}
	}
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeIndex, Index: &gojq.Index{Str: &gojq.String{Str: key}}}}
}

// plainPath returns the path that t is, if it is one: names and indices from the root.
func plainPath(t *gojq.Term) (event.Path, bool) {
	steps, ok := pathSteps(t)
	if !ok {
		return event.Path{}, false
	}
	p, err := event.ParsePath(pathText(steps))
	return p, err == nil
}

// pathSteps returns the names (string) and indices (int) of a plain path.
func pathSteps(t *gojq.Term) ([]any, bool) {
	var steps []any
	switch t.Type {
	case gojq.TermTypeIdentity:
	case gojq.TermTypeIndex:
		s, ok := pathStep(t.Index)
		if !ok {
			return nil, false
		}
		steps = append(steps, s)
	default:
		return nil, false
	}
	for _, s := range t.SuffixList {
		if s.Index == nil {
			return nil, false
		}
		step, ok := pathStep(s.Index)
		if !ok {
			return nil, false
		}
		steps = append(steps, step)
	}
	return steps, true
}

func pathStep(i *gojq.Index) (any, bool) {
	switch {
	case i.IsSlice:
		return nil, false
	case i.Name != "":
		return i.Name, true
	case i.Str != nil:
		return i.Str.Str, i.Str.Queries == nil
	case i.Start == nil || i.Start.Term == nil || len(i.Start.Term.SuffixList) > 0 || len(i.Start.FuncDefs) > 0:
		return nil, false
	case i.Start.Term.Type == gojq.TermTypeString:
		return i.Start.Term.Str.Str, i.Start.Term.Str.Queries == nil
	case i.Start.Term.Type == gojq.TermTypeNumber:
		n, err := strconv.Atoi(i.Start.Term.Number)
		return n, err == nil
	default:
		return nil, false
	}
}

// pathText spells steps as a path.
func pathText(steps []any) string {
	if len(steps) == 0 {
		return "."
	}
	var b strings.Builder
	for i, s := range steps {
		switch s := s.(type) {
		case int:
			if i == 0 {
				b.WriteByte('.')
			}
			b.WriteString("[" + strconv.Itoa(s) + "]")
		case string:
			raw, err := marshal(s)
			if err != nil {
				return ""
			}
			b.WriteByte('.')
			b.Write(raw)
		}
	}
	return b.String()
}
