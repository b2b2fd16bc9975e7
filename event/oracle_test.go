package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/a0c75104/enricher/event"
)

// The functions below say what a path means on a decoded value, as jq has it. A route is a path whose
// steps are strings and ints.

var errIndex = errors.New("cannot index")

// decode is encoding/json without loss of numbers.
func decode(t tb, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", raw, err)
	}
	return v
}

func routePath(t tb, route []any) event.Path {
	t.Helper()
	text := "."
	for _, s := range route {
		switch s := s.(type) {
		case string:
			quoted, _ := json.Marshal(s)
			text += "[" + string(quoted) + "]"
		case int:
			text += "[" + strconv.Itoa(s) + "]"
		}
	}
	return path(t, text)
}

// routeOf makes a short route from fuzzed bytes.
func routeOf(b []byte) []any {
	names := []string{"a", "b", "", "x y", "é", "\"", "\\", "😀", "\ufffd"}
	var route []any
	for _, c := range b[:min(len(b), 12)] {
		if c%3 == 0 {
			route = append(route, int(c/3)%5)
		} else {
			route = append(route, names[int(c/3)%len(names)])
		}
	}
	return route
}

func walk(v any, route []any) (got any, found bool, err error) {
	found = true
	for _, s := range route {
		name, isName := s.(string)
		switch x := v.(type) {
		case nil:
			found = false
		case map[string]any:
			if !isName {
				return nil, false, errIndex
			}
			v, found = x[name]
		case []any:
			if isName {
				return nil, false, errIndex
			}
			if found = s.(int) < len(x); found {
				v = x[s.(int)]
			} else {
				v = nil
			}
		default:
			return nil, false, errIndex
		}
	}
	return v, found, nil
}

func set(v any, route []any, raw any) (any, error) {
	if len(route) == 0 {
		return raw, nil
	}
	switch s := route[0].(type) {
	case string:
		m, ok := v.(map[string]any)
		if !ok && v != nil {
			return nil, errIndex
		}
		kid, err := set(m[s], route[1:], raw)
		if m = maps.Clone(m); m == nil {
			m = map[string]any{}
		}
		m[s] = kid
		return m, err
	case int:
		a, ok := v.([]any)
		if !ok && v != nil {
			return nil, errIndex
		}
		a = slices.Clone(a)
		for len(a) <= s {
			a = append(a, nil)
		}
		kid, err := set(a[s], route[1:], raw)
		a[s] = kid
		return a, err
	}
	panic("a route holds strings and ints")
}

func del(v any, route []any) (any, error) {
	if len(route) == 0 {
		return nil, nil
	}
	above, last := route[:len(route)-1], route[len(route)-1]
	if _, found, err := walk(v, route); err != nil || !found {
		return v, err
	}
	parent, _, _ := walk(v, above)
	switch x := parent.(type) {
	case map[string]any:
		x = maps.Clone(x)
		delete(x, last.(string))
		return set(v, above, x)
	case []any:
		return set(v, above, slices.Delete(slices.Clone(x), last.(int), last.(int)+1))
	}
	panic("only objects and arrays have entries")
}

// repeats reports whether a member along one of the routes stands twice.
func repeats(raw []byte, routes ...[]any) bool {
	for _, route := range routes {
		if repeatsAlong(json.RawMessage(raw), route) {
			return true
		}
	}
	return false
}

func repeatsAlong(raw json.RawMessage, route []any) bool {
	raw = bytes.TrimSpace(raw)
	if len(route) == 0 || len(raw) == 0 {
		return false
	}
	switch s := route[0].(type) {
	case int:
		var list []json.RawMessage
		return raw[0] == '[' && json.Unmarshal(raw, &list) == nil && s < len(list) && repeatsAlong(list[s], route[1:])
	case string:
		if raw[0] != '{' {
			return false
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		_, _ = d.Token()
		met := 0
		for d.More() {
			name, _ := d.Token()
			var kid json.RawMessage
			if d.Decode(&kid) != nil {
				return false
			}
			if name == s {
				if met++; met > 1 || repeatsAlong(kid, route[1:]) {
					return true
				}
			}
		}
	}
	return false
}

// accepts says which values Check has to accept, given the routes of its paths.
func accepts(raw []byte, routes ...[]any) bool {
	return json.Valid(raw) && utf8.Valid(raw) && !repeats(raw, routes...)
}

// wantGet compares Get with the walk over the decoded value.
func wantGet(t tb, e *event.Event, model any, route []any) {
	t.Helper()
	p := routePath(t, route)
	got, err := e.Get(p)
	want, found, wantErr := walk(model, route)
	what := fmt.Sprintf("Get(%s) of %q", p, e.Value())
	switch {
	case wantErr != nil:
		wantType(t, what, err, event.Expression)
	case err != nil:
		t.Fatalf("%s: %v", what, err)
	case !found && got != nil:
		t.Fatalf("%s = %q, want nil", what, got)
	case found && got == nil:
		t.Fatalf("%s is nil, want %v", what, want)
	case found && !equal(decode(t, got), want):
		t.Fatalf("%s = %q, want %v", what, got, want)
	}
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// wantKept fails unless after came from before by taking out at most cut bytes and putting in at most
// put bytes at one place.
func wantKept(t tb, before, after []byte, cut, put int) {
	t.Helper()
	head, most := 0, min(len(before), len(after))
	for head < most && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < most-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	if len(before)-head-tail > cut || len(after)-head-tail > put {
		t.Fatalf("the edit changed more than its own bytes:\nbefore %q\nafter  %q", before, after)
	}
}
