package jq_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/functions/jq"
)

func TestAnAssignmentIsNoCondition(t *testing.T) {
	tests := []struct {
		name, src string
		offset    int // of the operator; -1: a condition
		message   string
	}{
		{"comparison", `.a == "b"`, -1, ""},
		{"equals sign in a string", `.a == "b = c"`, -1, ""},
		{"other comparisons", `.a >= 1 and .b <= 2 or .c != 3`, -1, ""},
		{"a value set before it is compared", `(.a = 1) | .a == .b`, -1, ""},
		{"a value set within an argument", `map(.a = 1) | length > 1`, -1, ""},
		{"an assignment", `.a = "b"`, 3, "= sets a value, and what it gives is true for every event: did you mean ==?"},
		{"without blanks", `.x=true`, 2, "did you mean =="},
		{"behind comparisons", `.a == 1 and .b != "=" and (.c = 1)`, 30, "did you mean =="},
		{"behind a pipe", `.a | .b = 1`, 8, "did you mean =="},
		{"in select", `select(.a = 1)`, 10, "did you mean =="},
		{"in if", `if .a = 1 then true else false end`, 6, "did you mean =="},
		{"in any", `any(.list[]; . = 1)`, 15, "did you mean =="},
		{"behind a comment", "# a = b\n.a = 1", 11, "did you mean =="},
		{"an update", `.a |= 1`, 3, "|= sets a value, and what it gives is true for every event: write a comparison"},
		{"an addition", `.a += 1`, 3, "+= sets a value"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e, err := jq.Compile(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			err = e.CheckCondition()
			if tc.offset < 0 {
				if err != nil {
					t.Errorf("%q: got %v, want a condition", tc.src, err)
				}
				return
			}
			s, ok := errors.AsType[*jq.SyntaxError](err)
			if !ok || s.Offset != tc.offset || !strings.Contains(s.Message, tc.message) {
				t.Errorf("%q: got %+v, want %q at %d", tc.src, err, tc.message, tc.offset)
			}
		})
	}
}
