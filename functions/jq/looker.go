package jq

import (
	"slices"
	"strconv"

	"github.com/itchyny/gojq"
)

// looker finds out what a program looks at of the elements of an array that is its input. It follows the array and parts
// of elements through the program as spots. What an operation is not known to leave alone is needed: all that is there.
// A program that needs an element itself is given up.
type looker struct {
	needed [][]string // paths of what is looked at
	passed [][]string // paths that lead there, or nowhere: to follow one fails where a value is no object
}

// spot is where values come from: the path of elements at which they are, with so many lists around. The array itself
// is a list around its elements. Values that come from nowhere in the array, or from what is needed, have no spot.
type spot struct {
	lists int
	names []string
}

func (l *looker) need(at []spot) bool {
	for _, s := range at {
		if len(s.names) == 0 || len(l.needed) > maxLocal {
			return false
		}
		l.needed = append(l.needed, s.names)
	}
	return true
}

// use is for a q whose results are looked at.
func (l *looker) use(q *gojq.Query, in []spot) bool {
	out, ok := l.query(q, in)
	return ok && l.need(out)
}

// query returns where the results of q come from, whose input comes from in.
func (l *looker) query(q *gojq.Query, in []spot) (out []spot, ok bool) {
	switch {
	case q == nil || len(in) == 0:
		return nil, true
	case len(q.FuncDefs) > 0 || !named(q.Patterns) || q.Op >= gojq.OpAssign:
		return nil, false
	case q.Term != nil:
		return l.term(q.Term, in)
	case q.Op == gojq.OpPipe && len(q.Patterns) > 0:
		if !l.use(q.Left, in) {
			return nil, false
		}
		return l.query(q.Right, in)
	case q.Op == gojq.OpPipe:
		if out, ok = l.query(q.Left, in); !ok {
			return nil, false
		}
		return l.query(q.Right, out)
	case q.Op == gojq.OpComma:
		return l.either(in, q.Left, q.Right)
	default:
		return nil, l.use(q.Left, in) && l.use(q.Right, in)
	}
}

// either is for results that come from one of several.
func (l *looker) either(in []spot, qs ...*gojq.Query) (out []spot, ok bool) {
	for _, q := range qs {
		more, ok := l.query(q, in)
		if !ok {
			return nil, false
		}
		out = append(out, more...)
	}
	return out, true
}

func (l *looker) term(t *gojq.Term, in []spot) (out []spot, ok bool) {
	if out, ok = l.value(t, in); !ok {
		return nil, false
	}
	for _, s := range t.SuffixList {
		switch {
		case s.Index != nil:
			out, ok = l.index(s.Index, out)
		case s.Iter:
			out, ok = l.inside(out)
		default: // .a? has what .a has, or nothing
		}
		if !ok {
			return nil, false
		}
	}
	return out, true
}

// value is a term without what follows it.
func (l *looker) value(t *gojq.Term, in []spot) (out []spot, ok bool) {
	switch t.Type {
	case gojq.TermTypeIdentity:
		return in, true
	case gojq.TermTypeIndex:
		return l.index(t.Index, in)
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
		return nil, true
	case gojq.TermTypeFunc:
		return l.call(t.Func, in)
	case gojq.TermTypeString, gojq.TermTypeFormat:
		if t.Str == nil {
			return nil, l.need(in)
		}
		return nil, l.text(t.Str, in)
	case gojq.TermTypeArray:
		out, ok = l.query(t.Array.Query, in)
		return around(out, 1), ok
	case gojq.TermTypeObject:
		return nil, l.object(t.Object, in)
	case gojq.TermTypeUnary:
		out, ok = l.term(t.Unary.Term, in)
		return nil, ok && l.need(out)
	case gojq.TermTypeQuery:
		return l.query(t.Query, in)
	case gojq.TermTypeIf:
		return l.branch(t.If, in)
	case gojq.TermTypeTry:
		return l.query(t.Try.Body, in) // catch sees the message alone
	case gojq.TermTypeReduce: // the update sees the state, and what is named
		return nil, named(t.Reduce.Patterns) && l.use(t.Reduce.Query, in) && l.use(t.Reduce.Start, in)
	case gojq.TermTypeForeach:
		return nil, named(t.Foreach.Patterns) && l.use(t.Foreach.Query, in) && l.use(t.Foreach.Start, in)
	default:
		return nil, false
	}
}

// around is where lists of what comes from at come from.
func around(at []spot, lists int) []spot {
	out := slices.Clone(at)
	for i := range out {
		out[i].lists += lists
	}
	return out
}

// lists splits spots into lists, of which the lengths and the order of elements stay, and what may be anything.
func lists(at []spot) (inside, others []spot) {
	for _, s := range at {
		if s.lists > 0 {
			inside = append(inside, spot{s.lists - 1, s.names})
		} else {
			others = append(others, s)
		}
	}
	return inside, others
}

// inside is where elements of lists come from. What else may have elements is needed.
func (l *looker) inside(at []spot) ([]spot, bool) {
	inside, others := lists(at)
	return inside, l.need(others)
}

// index is where x of what comes from at comes from. What x itself is made of must not be the input.
func (l *looker) index(x *gojq.Index, at []spot) ([]spot, bool) {
	if readsInput(x.Start) || readsInput(x.End) || stringReads(x.Str) {
		return nil, false
	}
	step, constant := pathStep(x)
	name, isName := step.(string)
	switch {
	case x.IsSlice:
		_, others := lists(at)
		return at, l.need(others)
	case !constant:
		return nil, l.need(at)
	case !isName:
		return l.inside(at)
	}
	var out []spot
	for _, s := range at {
		if s.lists > 0 {
			if !l.need([]spot{s}) { // it fails, with a message that shows the list
				return nil, false
			}
			continue
		}
		s.names = append(slices.Clone(s.names), name)
		l.passed = append(l.passed, s.names)
		out = append(out, s)
	}
	return out, true
}

func (l *looker) call(f *gojq.Func, in []spot) ([]spot, bool) {
	if f.Name[0] == '$' {
		return nil, true // what has a name is needed
	}
	switch name := f.Name + "/" + strconv.Itoa(len(f.Args)); name {
	case "map/1":
		inside, ok := l.inside(in)
		if !ok {
			return nil, false
		}
		out, ok := l.query(f.Args[0], inside)
		return around(out, 1), ok
	case "select/1":
		return in, l.use(f.Args[0], in)
	case "first/0", "last/0":
		return l.inside(in)
	case "length/0":
		_, others := lists(in)
		return nil, l.need(others)
	default:
		n, known := generators[name]
		if !known {
			return nil, l.need(in) // then arguments may look at what they like
		}
		for _, q := range f.Args[:n] {
			if !l.use(q, in) {
				return nil, false
			}
		}
		return nil, true
	}
}

// branch is where the results of an if come from.
func (l *looker) branch(i *gojq.If, in []spot) ([]spot, bool) {
	ok := l.use(i.Cond, in)
	results := []*gojq.Query{i.Then}
	for _, e := range i.Elif {
		ok = ok && l.use(e.Cond, in)
		results = append(results, e.Then)
	}
	if !ok {
		return nil, false
	}
	if i.Else != nil {
		return l.either(in, append(results, i.Else)...)
	}
	out, ok := l.either(in, results...)
	return append(out, in...), ok
}

func (l *looker) text(s *gojq.String, in []spot) bool {
	for _, q := range s.Queries {
		if !l.use(q, in) {
			return false
		}
	}
	return true
}

func (l *looker) object(o *gojq.Object, in []spot) bool {
	for _, kv := range o.KeyVals {
		val := kv.Val
		if val == nil {
			key, constant := constantKey(kv, nil)
			if !constant && kv.Key == "" {
				return false // {"\(.a)"} is made of what its name is
			}
			val = shorthand(kv, key)
		}
		if !l.text(&gojq.String{Queries: keyQueries(kv)}, in) || !l.use(val, in) {
			return false
		}
	}
	return true
}

// keyQueries are what the name of a member is made of.
func keyQueries(kv *gojq.ObjectKeyVal) []*gojq.Query {
	queries := []*gojq.Query{kv.KeyQuery}
	if kv.KeyString != nil {
		queries = append(queries, kv.KeyString.Queries...)
	}
	return queries
}
