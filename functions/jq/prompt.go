package jq

import (
	"reflect"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// quick are the built-ins that take time in proportion to the value they get.
var quick = strings.Fields(`
	abs add all any arrays ascii_downcase ascii_upcase booleans ceil del empty endswith error explode fabs first
	floor from_entries fromdate fromjson getpath has implode isempty iterables join keys keys_unsorted last length
	ltrim ltrimstr map map_values max min not now nulls numbers objects path reverse round rtrim rtrimstr scalars
	select setpath split sqrt startswith strings to_entries toboolean toarray todate tojson tonumber tostring trim
	trimstr type utf8bytelength values with_entries`)

// prompt reports whether each step of q ends soon, so that the time limit, which is looked at between two
// steps, is enough to stop it. Loops may build what a single step then takes long for.
func prompt(q *gojq.Query) bool {
	ok := true
	visit(reflect.ValueOf(q), func(n any) {
		switch n := n.(type) {
		case *gojq.Query:
			ok = ok && n.Op != gojq.OpSub && n.Op != gojq.OpUpdateSub // quadratic in the lengths of two lists
		case *gojq.FuncDef, *gojq.Reduce, *gojq.Foreach:
			ok = ok && reflect.ValueOf(n).IsNil()
		case *gojq.Term:
			ok = ok && n.Type != gojq.TermTypeRecurse
		case *gojq.Func:
			ok = ok && (n.Name[0] == '$' || slices.Contains(quick, n.Name) || n.Name == "test" && constant(n.Args))
		}
	})
	return ok
}

// constant reports whether qs are strings as written: of a regular expression the author knows what it takes.
func constant(qs []*gojq.Query) bool {
	return !slices.ContainsFunc(qs, func(q *gojq.Query) bool {
		return q.Term == nil || q.Term.Type != gojq.TermTypeString || q.Term.Str.Queries != nil
	})
}
