package jq

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// SyntaxError says what is wrong with the text of an expression or template, and where.
type SyntaxError struct {
	// Offset is the byte in the text at which the problem was seen, -1 where that is not known.
	Offset int
	// Message says what is wrong.
	Message string
}

func (e *SyntaxError) Error() string { return e.Message }

// shifted returns err with its offset moved by n, for an expression within a longer text.
func shifted(err error, n int) error {
	var s *SyntaxError
	if errors.As(err, &s) && s.Offset >= 0 {
		return &SyntaxError{Offset: s.Offset + n, Message: s.Message}
	}
	return err
}

// variables are the names that every expression may use, without the dollar sign.
var variables = []string{"headers", "key", "offset", "partition", "pipeline", "timestamp", "topic"}

// known reports whether name is one of variables or of more.
func known(name string, more []string) bool {
	return slices.Contains(variables, name) || slices.Contains(more, name)
}

// refused are the functions that reach out of the event, each with the reason for the user.
var refused = map[string]string{
	"env":               "the environment is not at hand in expressions; write ${NAME} in the pipeline file",
	"$ENV":              "the environment is not at hand in expressions; write ${NAME} in the pipeline file",
	"input":             "an expression sees one event only",
	"inputs":            "an expression sees one event only",
	"input_filename":    "an expression sees one event only",
	"input_line_number": "an expression sees one event only",
	"debug":             "expressions do not print",
	"stderr":            "expressions do not print",
	"halt":              "an expression cannot stop the program; use error",
	"halt_error":        "an expression cannot stop the program; use error",
	"modulemeta":        "modules are not at hand in expressions",
	"get_search_list":   "modules are not at hand in expressions",
}

// parse reads src and refuses what no expression may use.
func parse(src string) (*gojq.Query, error) {
	if strings.TrimSpace(src) == "" {
		return nil, &SyntaxError{Offset: 0, Message: "the expression is empty"}
	}
	q, err := gojq.Parse(src)
	if err != nil {
		return nil, syntaxError(src, err)
	}
	if q.Meta != nil || len(q.Imports) > 0 {
		at := max(slices.Max([]int{find(src, "import"), find(src, "include"), find(src, "module")}), 0)
		return nil, &SyntaxError{Offset: at, Message: "modules are not at hand in expressions"}
	}
	for _, name := range names(q) {
		if why, ok := refused[name]; ok {
			return nil, &SyntaxError{Offset: find(src, name), Message: fmt.Sprintf("%s: %s", name, why)}
		}
	}
	return q, nil
}

// syntaxError turns an error of gojq's parser into one that points at the start of the token.
func syntaxError(src string, err error) error {
	var p *gojq.ParseError
	if !errors.As(err, &p) {
		return &SyntaxError{Offset: -1, Message: err.Error()}
	}
	msg := err.Error()
	if msg == "unexpected EOF" {
		return &SyntaxError{Offset: len(src), Message: "the expression ends too early"}
	}
	at := max(p.Offset-len(p.Token), 0)
	if h := foreign(src, at); h != "" {
		msg += ": " + h
	}
	return &SyntaxError{Offset: at, Message: msg}
}

// foreign says what to write in place of what other languages write at that place, "" where it knows nothing.
func foreign(src string, at int) string {
	for _, f := range []struct{ token, hint string }{
		{"'", `a jq string takes double quotes, "…"`},
		{"&", "jq writes and"},
		{"!", "jq negates behind the value: .a | not"},
	} {
		if strings.HasPrefix(src[min(at, len(src)):], f.token) {
			return f.hint
		}
	}
	if strings.HasPrefix(src[max(at-1, 0):], "||") {
		return "jq writes or"
	}
	if strings.HasSuffix(src[:min(at, len(src))], "==") || strings.HasSuffix(src[:min(at, len(src))], "!=") {
		return "jq compares by == and !="
	}
	return ""
}

// compileError turns an error of gojq's compiler, which knows no place, into one with a place.
func compileError(src string, err error, more []string) error {
	msg := err.Error()
	at := -1
	if _, name, ok := strings.Cut(msg, "not defined: "); ok {
		name, _, _ = strings.Cut(name, "/")
		at = find(src, name)
		if strings.HasPrefix(name, "$") {
			msg += "; expressions know $" + strings.Join(slices.Concat(variables, more), ", $")
		} else if !strings.HasSuffix(msg, "/0") || at < 0 {
			return &SyntaxError{Offset: at, Message: msg}
		} else {
			msg += "; a field of the event begins with a dot: ." + name
		}
	}
	return &SyntaxError{Offset: at, Message: msg}
}

// find returns the place of name as a whole word in src, -1 if it is not there.
func find(src, name string) int {
	if name == "" {
		return -1
	}
	re, err := regexp.Compile(`(^|[^A-Za-z0-9_$.@])(` + regexp.QuoteMeta(name) + `)($|[^A-Za-z0-9_])`)
	if err != nil {
		return -1
	}
	if m := re.FindStringSubmatchIndex(src); m != nil {
		return m[4]
	}
	return -1
}

// names returns all names of functions and variables that q calls, sorted.
func names(q *gojq.Query) []string {
	var out []string
	visit(reflect.ValueOf(q), func(n any) {
		switch n := n.(type) {
		case *gojq.Func:
			out = append(out, n.Name)
		case *gojq.ObjectKeyVal:
			if strings.HasPrefix(n.Key, "$") {
				out = append(out, n.Key)
			}
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// visit calls f for each node of a syntax tree. The tree's types have no common interface to walk by.
func visit(v reflect.Value, f func(any)) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		f(v.Interface())
		visit(v.Elem(), f)
	case reflect.Struct:
		for i := range v.NumField() {
			visit(v.Field(i), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			visit(v.Index(i), f)
		}
	}
}

// readsInput reports whether q may look at its input. A false answer is certain; a true one is not.
func readsInput(q *gojq.Query) bool {
	switch {
	case q == nil:
		return false
	case len(q.FuncDefs) > 0:
		return true
	case q.Term != nil:
		return termReads(q.Term)
	case q.Op == gojq.OpPipe && len(q.Patterns) == 0:
		return readsInput(q.Left)
	case q.Op >= gojq.OpAssign:
		return true
	default:
		return readsInput(q.Left) || readsInput(q.Right)
	}
}

func termReads(t *gojq.Term) bool {
	for _, s := range t.SuffixList {
		if s.Index != nil && (readsInput(s.Index.Start) || readsInput(s.Index.End) || stringReads(s.Index.Str)) {
			return true
		}
	}
	switch t.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber, gojq.TermTypeBreak:
		return false
	case gojq.TermTypeFunc:
		return t.Func.Name[0] != '$' && t.Func.Name != "now" && t.Func.Name != "empty"
	case gojq.TermTypeString:
		return stringReads(t.Str)
	case gojq.TermTypeFormat:
		return t.Str == nil || stringReads(t.Str)
	case gojq.TermTypeArray:
		return readsInput(t.Array.Query)
	case gojq.TermTypeUnary:
		return termReads(t.Unary.Term)
	case gojq.TermTypeQuery:
		return readsInput(t.Query)
	case gojq.TermTypeObject:
		return slices.ContainsFunc(t.Object.KeyVals, keyValReads)
	default:
		return true
	}
}

func stringReads(s *gojq.String) bool {
	return s != nil && slices.ContainsFunc(s.Queries, readsInput)
}

func keyValReads(kv *gojq.ObjectKeyVal) bool {
	if kv.Val == nil && !strings.HasPrefix(kv.Key, "$") {
		return true
	}
	return stringReads(kv.KeyString) || readsInput(kv.KeyQuery) || readsInput(kv.Val)
}
