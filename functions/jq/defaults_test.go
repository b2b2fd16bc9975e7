package jq_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/functions/jq"
)

func TestCheckDefaultsFindsAVariableThatMayBeMissing(t *testing.T) {
	tests := []struct {
		name, src string
		offset    int    // of the expression; -1: it always has a value
		cure      string // its beginning
	}{
		{"other variables", `e.\($topic).\($partition)`, -1, ""},
		{"a default", `e.\($headers.kind // "none")`, -1, ""},
		{"a default that is another variable", `e.\($key // $topic)`, -1, ""},
		{"a default before more", `e.\(($key // "none") | ascii_downcase)`, -1, ""},
		{"a default in a sum", `e.\("k-" + ($key // "none"))`, -1, ""},
		{"a default in a string", `e.\("k-\($key // "none")")`, -1, ""},
		{"a name that is chosen", `e.\(if $key == null then "keyless" else "keyed" end)`, -1, ""},
		{"a comparison", `e.\($key == null)`, -1, ""},
		{"the key", `e.\($topic).\($key)`, 12, `\($key // "none")`},
		{"a header", `e.\( $headers.kind )`, 2, `\($headers.kind // "none")`},
		{"a default that may be missing", `e.\($headers.a // $headers.b)`, 2, `such as`},
		{"a default of a part", `e.\("\($key // "a")-\($headers.b)")`, 2, `such as`},
		{"a branch", `e.\(if $topic == "a" then $key else "b" end)`, 2, `such as`},
		{"no branch", `e.\(if $key then "b" end)`, 2, `such as`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			tpl, err := jq.CompileTemplate(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			err = tpl.CheckDefaults("key", "headers")
			if tc.offset < 0 {
				if err != nil {
					t.Errorf("%s: got %v, want none", tc.src, err)
				}
				return
			}
			s, ok := errors.AsType[*jq.SyntaxError](err)
			if !ok || s.Offset != tc.offset || !strings.Contains(s.Message, tc.cure) {
				t.Errorf("%s: got %+v, want %q at %d", tc.src, err, tc.cure, tc.offset)
			}
		})
	}
}
