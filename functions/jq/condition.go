package jq

import (
	"fmt"
	"strings"

	"github.com/itchyny/gojq"
)

// CheckCondition says why the expression is no condition, nil if it is one: an assignment in place of a
// comparison gives the value it has changed, which is true for every event. The error is a *SyntaxError.
func (e *Expr) CheckCondition() error {
	q, err := gojq.Parse(e.src)
	if err != nil {
		return nil // it was compiled from a query that is not its text
	}
	op, found := assignment(q)
	if !found {
		return nil
	}
	cure := "did you mean ==?"
	if op != gojq.OpAssign {
		cure = "write a comparison, such as =="
	}
	return &SyntaxError{
		Offset:  findOperator(e.src, op.String()),
		Message: fmt.Sprintf("%s sets a value, and what it gives is true for every event: %s", op, cure),
	}
}

// assignment returns the operator by which q sets something where its truth is asked for.
func assignment(q *gojq.Query) (gojq.Operator, bool) {
	switch {
	case q == nil:
		return 0, false
	case q.Term != nil:
		return termAssignment(q.Term)
	case q.Op >= gojq.OpAssign:
		return q.Op, true
	case q.Op == gojq.OpAnd, q.Op == gojq.OpOr, q.Op == gojq.OpAlt:
		if op, found := assignment(q.Left); found {
			return op, true
		}
		return assignment(q.Right)
	case q.Op == gojq.OpPipe:
		return assignment(q.Right) // what comes before may set what this looks at
	default:
		return 0, false
	}
}

func termAssignment(t *gojq.Term) (gojq.Operator, bool) {
	if len(t.SuffixList) > 0 {
		return 0, false
	}
	switch t.Type {
	case gojq.TermTypeQuery:
		return assignment(t.Query)
	case gojq.TermTypeIf:
		return assignment(t.If.Cond)
	case gojq.TermTypeFunc:
		if n := len(t.Func.Args); n > 0 && (t.Func.Name == "select" || t.Func.Name == "any" || t.Func.Name == "all") {
			return assignment(t.Func.Args[n-1])
		}
	}
	return 0, false
}

// findOperator returns the place of an assignment's operator outside of strings and comments, -1 if it is
// not seen there.
func findOperator(src, op string) int {
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == '"':
			if i = closingQuote(src, i+1); i < 0 {
				return -1
			}
		case src[i] == '#':
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				return -1
			}
			i += n
		case strings.HasPrefix(src[i:], op) && !strings.HasPrefix(src[i+len(op):], "="):
			return i
		case strings.IndexByte("=!<>|+-*/%", src[i]) >= 0: // a longer operator, of which op may be the end
			for i+1 < len(src) && src[i+1] == '=' {
				i++
			}
		}
	}
	return -1
}
