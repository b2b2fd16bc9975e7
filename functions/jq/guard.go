package jq

import (
	"reflect"
	"strconv"

	"github.com/itchyny/gojq"
)

// guard returns q with what gojq does without a bound put under one: operators and built-ins that may
// make a value much larger than those it got are checked before or after, and the regular expressions
// are those of this package, which take time in proportion to the text. q itself stays as it is.
func guard(q *gojq.Query) (*gojq.Query, error) {
	out, ok := clone(reflect.ValueOf(q)).Interface().(*gojq.Query)
	if !ok {
		return q, nil
	}
	guarded := map[*gojq.Term]bool{}
	visit(reflect.ValueOf(out), func(n any) {
		switch n := n.(type) {
		case *gojq.Query:
			guardQuery(n)
		case *gojq.Term:
			if !guarded[n] {
				guarded[guardTerm(n)] = true
			}
		case *gojq.ObjectKeyVal:
			if n.KeyString != nil && n.KeyString.Queries != nil && n.Val != nil {
				n.KeyQuery = &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeString, Str: n.KeyString}}
				n.KeyString = nil
			}
		}
	})
	defs, err := preludeFor(out)
	if err != nil || len(defs) == 0 {
		return out, err
	}
	out.FuncDefs = append(defs, out.FuncDefs...)
	return out, nil
}

// clone copies a syntax tree.
func clone(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(clone(v.Elem()))
		return p
	case reflect.Struct:
		s := reflect.New(v.Type()).Elem()
		for i := range v.NumField() {
			s.Field(i).Set(clone(v.Field(i)))
		}
		return s
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		s := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			s.Index(i).Set(clone(v.Index(i)))
		}
		return s
	default:
		return v
	}
}

func call(name string, args ...*gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name, Args: args}}}
}

func pipe(left, right *gojq.Query) *gojq.Query {
	return &gojq.Query{Left: left, Op: gojq.OpPipe, Right: right}
}

// updates are the functions of OP in PATH OP= EXPR.
var updates = map[gojq.Operator]string{
	gojq.OpUpdateAdd: "__add", gojq.OpUpdateSub: "_subtract", gojq.OpUpdateMul: "__multiply",
	gojq.OpUpdateDiv: "_divide", gojq.OpUpdateMod: "_modulo", gojq.OpUpdateAlt: "_alternative",
}

// guardQuery puts the operators of q itself under their guards. What it makes of q is visited afterwards.
func guardQuery(q *gojq.Query) {
	l, r, defs := q.Left, q.Right, q.FuncDefs
	if name, ok := updates[q.Op]; ok {
		// PATH OP= EXPR is EXPR as $x | PATH |= OP(.; $x), in gojq as here.
		const operand = "$__operand"
		identity := &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeIdentity}}
		*q = gojq.Query{
			FuncDefs: defs, Left: r, Op: gojq.OpPipe, Patterns: []*gojq.Pattern{{Name: operand}},
			Right: &gojq.Query{Left: l, Op: gojq.OpModify, Right: call(name, identity, call(operand))},
		}
		return
	}
	var as *gojq.Query
	switch q.Op {
	case gojq.OpAdd:
		as = call("__add", l, r)
	case gojq.OpMul:
		as = call("__multiply", l, r)
	case gojq.OpAssign:
		if keepsLength(l) {
			return
		}
		as = call("__assign", l, r)
	case gojq.OpModify:
		if keepsLength(l) {
			return
		}
		as = call("__modify", l, r)
	default:
		return
	}
	as.FuncDefs = defs
	*q = *as
}

// before are the checks that built-ins without arguments get put before them.
var before = map[string]*gojq.Query{
	"tojson": call("__spelled"), "tostring": call("__spelled"), "@json": call("__spelled"), "@text": call("__spelled"),
	"add": call("__summed"), "flatten": call("__flattened"), "transpose": call("__transposed"),
	"explode": call("__halves", call(loneVar)), "utf8bytelength": call("__halves", call(loneVar)),
	"@uri": call("__halves", call(loneVar)), "@base64": call("__halves", call(loneVar)),
}

// loneVar is the variable that says whether private characters stand for halves of surrogate pairs.
const loneVar = "$__lone"

// guardTerm puts the built-in that t calls, or the string that it makes, under its guard. It returns where
// that is then, which is not to be guarded again.
func guardTerm(t *gojq.Term) *gojq.Term {
	switch {
	case t.Str != nil && t.Str.Queries != nil:
		check := before[t.Format]
		if check == nil {
			check = call("__spelled")
		}
		for i, piece := range t.Str.Queries {
			if piece.Term != nil && piece.Term.Str == nil {
				t.Str.Queries[i] = &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeQuery, Query: pipe(piece, check)}}
			}
		}
		inner := *t
		inner.SuffixList = nil
		return wrap(t, &inner, pipe(&gojq.Query{Term: &inner}, call("__built")))
	case t.Type == gojq.TermTypeFormat && before[t.Format] != nil:
		inner := *t
		inner.SuffixList = nil
		return wrap(t, &inner, pipe(before[t.Format], &gojq.Query{Term: &inner}))
	case t.Type == gojq.TermTypeFunc && before[t.Func.Name] != nil && len(t.Func.Args) == 0:
		inner := *t
		inner.SuffixList = nil
		return wrap(t, &inner, pipe(before[t.Func.Name], &gojq.Query{Term: &inner}))
	}
	return t
}

// wrap puts q in the place of t, of which inner is a copy within q. What follows t still does.
func wrap(t, inner *gojq.Term, q *gojq.Query) *gojq.Term {
	*t = gojq.Term{Type: gojq.TermTypeQuery, Query: q, SuffixList: t.SuffixList}
	return inner
}

// maxConstant bounds the indices that are too small to make an array long, whatever the others are.
const maxConstant = 100

// keepsLength reports whether setting what is at the paths of q makes no array much longer. A true answer
// is certain; a false one is not.
func keepsLength(q *gojq.Query) bool {
	switch {
	case q == nil || len(q.FuncDefs) > 0 || len(q.Patterns) > 0:
		return false
	case q.Term != nil:
		return termKeepsLength(q.Term)
	case q.Op == gojq.OpPipe, q.Op == gojq.OpComma, q.Op == gojq.OpAlt:
		return keepsLength(q.Left) && keepsLength(q.Right)
	default:
		return false
	}
}

func termKeepsLength(t *gojq.Term) bool {
	for _, s := range t.SuffixList {
		if s.Index != nil && !indexKeepsLength(s.Index) {
			return false
		}
	}
	switch t.Type {
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse:
		return true
	case gojq.TermTypeIndex:
		return indexKeepsLength(t.Index)
	case gojq.TermTypeQuery:
		return keepsLength(t.Query)
	case gojq.TermTypeFunc:
		return t.Func.Name == "select" && len(t.Func.Args) == 1
	default:
		return false
	}
}

func indexKeepsLength(i *gojq.Index) bool {
	if i.IsSlice {
		return true
	}
	if n, ok := i.Start, i.Start != nil && i.Start.Term != nil; ok && n.Term.Type == gojq.TermTypeNumber && len(n.Term.SuffixList) == 0 {
		c, err := strconv.Atoi(n.Term.Number)
		return err == nil && c <= maxConstant
	}
	_, constant := pathStep(i)
	return constant
}
