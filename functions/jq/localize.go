package jq

import (
	"slices"
	"strconv"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// maxLocal bounds the paths that one program reads by themselves.
const maxLocal = 16

// localizer rewrites a program so that plain paths from the root are variables, which hold only what is
// at these paths. A program that looks at its input in no other way then needs no decoded value: a
// function of one field does not pay for the size of the others.
type localizer struct {
	paths []event.Path
}

// localVar is the variable of the i-th path.
func localVar(i int) string { return "$__path" + strconv.Itoa(i) }

// localize returns the program of q over single paths, nil if q needs the whole value.
func localize(q *gojq.Query, more []string) *program {
	var l localizer
	local, ok := l.query(q)
	if !ok || len(l.paths) == 0 || len(l.paths) > maxLocal {
		return nil
	}
	p, err := newProgram(local, more, l.paths...)
	if err != nil {
		return nil
	}
	return p
}

// query rewrites q, whose input is the value. It never changes q itself. ok is false where q needs the
// value as a whole.
func (l *localizer) query(q *gojq.Query) (_ *gojq.Query, ok bool) {
	if q == nil {
		return nil, true
	}
	if len(q.FuncDefs) > 0 || q.Op >= gojq.OpAssign || !named(q.Patterns) {
		return nil, false
	}
	out := *q
	if q.Term != nil {
		out.Term, ok = l.term(q.Term)
		return &out, ok
	}
	if out.Left, ok = l.query(q.Left); !ok {
		return nil, false
	}
	if q.Op == gojq.OpPipe && len(q.Patterns) == 0 {
		return &out, true // the input of the right side is what the left side gives
	}
	out.Right, ok = l.query(q.Right)
	return &out, ok
}

// named reports whether patterns only name a value: others may look at the input.
func named(ps []*gojq.Pattern) bool {
	return !slices.ContainsFunc(ps, func(p *gojq.Pattern) bool { return p.Name == "" })
}

func (l *localizer) queries(qs []*gojq.Query) ([]*gojq.Query, bool) {
	out := slices.Clone(qs)
	for i, q := range qs {
		var ok bool
		if out[i], ok = l.query(q); !ok {
			return nil, false
		}
	}
	return out, true
}

func (l *localizer) term(t *gojq.Term) (*gojq.Term, bool) {
	if t.Type == gojq.TermTypeIdentity || t.Type == gojq.TermTypeIndex {
		return l.path(t)
	}
	out := *t
	ok := true
	switch t.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber, gojq.TermTypeBreak:
	case gojq.TermTypeFunc:
		out.Func, ok = l.call(t.Func)
	case gojq.TermTypeString, gojq.TermTypeFormat:
		if t.Str == nil {
			return nil, false
		}
		out.Str, ok = l.text(t.Str)
	case gojq.TermTypeArray:
		a := *t.Array
		a.Query, ok = l.query(a.Query)
		out.Array = &a
	case gojq.TermTypeObject:
		out.Object, ok = l.object(t.Object)
	case gojq.TermTypeUnary:
		u := *t.Unary
		u.Term, ok = l.term(u.Term)
		out.Unary = &u
	case gojq.TermTypeQuery:
		out.Query, ok = l.query(t.Query)
	case gojq.TermTypeIf:
		out.If, ok = l.branch(t.If)
	case gojq.TermTypeTry:
		try := *t.Try // the input of catch is the message
		try.Body, ok = l.query(try.Body)
		out.Try = &try
	case gojq.TermTypeReduce:
		r := *t.Reduce // the input of the update is the state
		out.Reduce = &r
		ok = named(r.Patterns) && l.both(&r.Query, &r.Start)
	case gojq.TermTypeForeach:
		f := *t.Foreach
		out.Foreach = &f
		ok = named(f.Patterns) && l.both(&f.Query, &f.Start)
	default:
		return nil, false
	}
	if !ok {
		return nil, false
	}
	out.SuffixList, ok = l.suffixes(t.SuffixList)
	return &out, ok
}

func (l *localizer) both(a, b **gojq.Query) (ok bool) {
	if *a, ok = l.query(*a); !ok {
		return false
	}
	*b, ok = l.query(*b)
	return ok
}

// path replaces the longest plain path that t begins with.
func (l *localizer) path(t *gojq.Term) (*gojq.Term, bool) {
	first := 0
	var steps []any
	if t.Type == gojq.TermTypeIndex {
		s, ok := pathStep(t.Index)
		if !ok {
			return nil, false
		}
		steps = append(steps, s)
	}
	for ; first < len(t.SuffixList); first++ {
		if t.SuffixList[first].Index == nil {
			break
		}
		s, ok := pathStep(t.SuffixList[first].Index)
		if !ok {
			break
		}
		steps = append(steps, s)
	}
	if len(steps) == 0 {
		return nil, false
	}
	name, ok := l.local(steps)
	if !ok {
		return nil, false
	}
	rest, ok := l.suffixes(t.SuffixList[first:])
	return &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name}, SuffixList: rest}, ok
}

// local returns the variable of a path.
func (l *localizer) local(steps []any) (string, bool) {
	p, err := event.ParsePath(pathText(steps))
	if err != nil {
		return "", false
	}
	i := slices.IndexFunc(l.paths, func(q event.Path) bool { return q.String() == p.String() })
	if i < 0 {
		i = len(l.paths)
		l.paths = append(l.paths, p)
	}
	return localVar(i), true
}

// suffixes rewrites .[f] and .[f:g], whose f and g see the value. It leaves .[f]? alone: there gojq
// shows f the term before instead, and an expression means the same whichever way it is evaluated.
func (l *localizer) suffixes(list []*gojq.Suffix) ([]*gojq.Suffix, bool) {
	out := make([]*gojq.Suffix, len(list))
	for i, s := range list {
		c := *s
		if s.Optional && i > 0 && list[i-1].Index != nil {
			if _, constant := pathStep(list[i-1].Index); !constant {
				return nil, false
			}
		}
		if s.Index != nil {
			x := *s.Index
			if !l.both(&x.Start, &x.End) {
				return nil, false
			}
			if x.Str != nil {
				var ok bool
				if x.Str, ok = l.text(x.Str); !ok {
					return nil, false
				}
			}
			c.Index = &x
		}
		out[i] = &c
	}
	return out, true
}

func (l *localizer) text(s *gojq.String) (*gojq.String, bool) {
	if s.Queries == nil {
		return s, true
	}
	out := *s
	var ok bool
	out.Queries, ok = l.queries(s.Queries)
	return &out, ok
}

// generators are the functions that look at their input only through the arguments counted here.
var generators = map[string]int{
	"empty/0": 0, "now/0": 0, "range/1": 1, "range/2": 2, "range/3": 3, "error/1": 1, "first/1": 1, "last/1": 1, "isempty/1": 1, "add/1": 1,
	"limit/2": 2, "any/2": 1, "all/2": 1,
}

func (l *localizer) call(f *gojq.Func) (*gojq.Func, bool) {
	if f.Name[0] == '$' {
		return f, true
	}
	n, ok := generators[f.Name+"/"+strconv.Itoa(len(f.Args))]
	if !ok {
		return nil, false
	}
	out := *f
	args, ok := l.queries(f.Args[:n])
	out.Args = append(args, f.Args[n:]...)
	return &out, ok
}

func (l *localizer) object(o *gojq.Object) (*gojq.Object, bool) {
	out := &gojq.Object{KeyVals: make([]*gojq.ObjectKeyVal, len(o.KeyVals))}
	for i, kv := range o.KeyVals {
		c := *kv
		if kv.KeyString != nil {
			var ok bool
			if c.KeyString, ok = l.text(kv.KeyString); !ok {
				return nil, false
			}
		}
		if key, constant := constantKey(kv, nil); kv.Val == nil && constant {
			c.Val = shorthand(kv, key)
			c.Key, c.KeyString = "", &gojq.String{Str: key}
		} else if kv.Val == nil && kv.Key == "" {
			return nil, false
		}
		if !l.both(&c.KeyQuery, &c.Val) {
			return nil, false
		}
		out.KeyVals[i] = &c
	}
	return out, true
}

func (l *localizer) branch(i *gojq.If) (*gojq.If, bool) {
	out := *i
	if i.Else == nil || !l.both(&out.Cond, &out.Then) {
		return nil, false // without else the value itself is the result
	}
	out.Elif = make([]*gojq.IfElif, len(i.Elif))
	for n, e := range i.Elif {
		c := *e
		if !l.both(&c.Cond, &c.Then) {
			return nil, false
		}
		out.Elif[n] = &c
	}
	var ok bool
	out.Else, ok = l.query(i.Else)
	return &out, ok
}
