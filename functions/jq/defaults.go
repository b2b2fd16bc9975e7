package jq

import (
	"fmt"
	"slices"

	"github.com/itchyny/gojq"
)

// CheckDefaults says which expression of the template may come out without a value because one of the
// named variables has none, nil if there is none such. It is for templates that must not fail, whatever
// the event. The error is a *SyntaxError.
func (t *Template) CheckDefaults(variables ...string) error {
	for _, p := range t.parts {
		if p.expr == nil {
			continue
		}
		q, err := gojq.Parse(p.expr.src)
		if err != nil {
			continue // it was compiled from a query that is not its text
		}
		d := defaults{variables: variables}
		if !d.given(q) {
			return &SyntaxError{Offset: p.at, Message: fmt.Sprintf(
				`\(%s) may be missing, and then the event could go nowhere: give it a default, such as \(%s // "none")`, p.expr.src, p.expr.src)}
		}
	}
	return nil
}

// defaults finds the variables that have an alternative where they are missing.
type defaults struct{ variables []string }

func (d defaults) reads(q *gojq.Query) bool {
	return slices.ContainsFunc(names(q), func(n string) bool { return slices.Contains(d.variables, n[min(len(n), 1):]) && n[0] == '$' })
}

// given reports whether q has a value though the variables have none. A true answer is certain of that,
// a false one is not.
func (d defaults) given(q *gojq.Query) bool {
	switch {
	case q == nil || !d.reads(q):
		return true
	case len(q.FuncDefs) > 0 || len(q.Patterns) > 0:
		return false
	case q.Term != nil:
		return d.termGiven(q.Term)
	case q.Op == gojq.OpAlt:
		return d.given(q.Right)
	case q.Op >= gojq.OpEq && q.Op <= gojq.OpLe, q.Op == gojq.OpAnd, q.Op == gojq.OpOr:
		return true // true or false, whatever is compared
	default:
		return d.given(q.Left) && d.given(q.Right)
	}
}

func (d defaults) termGiven(t *gojq.Term) bool {
	if len(t.SuffixList) > 0 {
		return false
	}
	switch t.Type {
	case gojq.TermTypeQuery:
		return d.given(t.Query)
	case gojq.TermTypeString:
		return !slices.ContainsFunc(t.Str.Queries, func(q *gojq.Query) bool { return !d.given(q) })
	case gojq.TermTypeIf:
		for _, elif := range t.If.Elif {
			if !d.given(elif.Then) {
				return false
			}
		}
		return t.If.Else != nil && d.given(t.If.Then) && d.given(t.If.Else)
	default:
		return false
	}
}
