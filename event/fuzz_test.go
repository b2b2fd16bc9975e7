package event_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

var seeds = []string{
	``, ` `, `{}`, `[]`, `null`, `"a"`, `-0.1e+2`, `{"a":{"b":[1,{"":2},null]},"x y":"\u00e9"}`, `{"a":1,"\u0061":2}`, `[[[[]]]]`,
	`{"a":null,"b":[null]}`, ` [ 1 , "2" , {"é":"😀"} ] `, `{"\\":1,"\"":2}`, `{"a":[0,1,2,3,4,5]}`, `"\ud83d\ude00\ud800"`, "\"\xff\"",
	`{"a":1}x`, `[1,]`, `1e400`, `{"\ufffd":1,"\ud800":2}`, `tru`, `"\`, `{"a":"}],\""}`,
}

func FuzzCheck(f *testing.F) {
	for i, s := range seeds {
		f.Add([]byte(s), []byte{1, 4, 3}, []byte{byte(i)})
	}
	f.Add(sample(f, "schema-1.3.0-example.json"), []byte{1}, []byte{4})
	f.Fuzz(func(t *testing.T, raw, one, two []byte) {
		a, b := routeOf(one), routeOf(two)
		e := event.New(event.Position{}, nil, raw, nil, time.Time{})
		err := e.Check(event.NewPaths(routePath(t, a), routePath(t, b)))
		if want := accepts(raw, a, b) && raw != nil; (err == nil) != want {
			t.Fatalf("Check of %q = %v, want accepted: %v", raw, err, want)
		}
		if (event.Valid(raw) == nil) != accepts(raw) {
			t.Fatalf("Valid(%q) = %v", raw, event.Valid(raw))
		}
		if err != nil {
			wantType(t, "Check", err, event.InvalidEvent)
			return
		}
		model := decode(t, raw)
		wantGet(t, e, model, a)
		wantGet(t, e, model, b)
		wantGet(t, event.New(event.Position{}, nil, raw, nil, time.Time{}), model, a)
	})
}

func FuzzSet(f *testing.F) {
	for i, s := range seeds {
		f.Add([]byte(s), []byte{1, 4, byte(i)}, []byte(seeds[len(seeds)-1-i]), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, before, way, raw []byte, checked bool) {
		route := routeOf(way)
		p := routePath(t, route)
		e := event.New(event.Position{}, nil, bytes.Clone(before), nil, time.Time{})
		known := [][]any{route, {"a"}, {"b"}, {"a", "b"}, {0}, {1, "a"}}
		if checked && e.Check(event.NewPaths(pathsOf(t, known)...)) != nil {
			return
		}
		old, _ := e.Get(p)
		shared := e.Share()
		err := e.Set(p, raw)
		if !bytes.Equal(shared.Value(), before) {
			t.Fatalf("Set wrote into the bytes it was given: %q was %q", shared.Value(), before)
		}
		if len(route) > 0 && !accepts(before, route) || !accepts(raw) {
			if err == nil {
				t.Fatalf("Set(%s) of %q in %q went through", p, raw, before)
			}
			return
		}
		if len(route) == 0 {
			if err != nil || !bytes.Equal(e.Value(), bytes.Trim(raw, " \t\r\n")) {
				t.Fatalf("Set(.) of %q left %q: %v", raw, e.Value(), err)
			}
			return
		}
		model, modelErr := set(decode(t, before), route, decode(t, raw))
		if modelErr != nil {
			wantType(t, "Set", err, event.Expression)
			return
		}
		if err != nil {
			t.Fatalf("Set(%s) of %q in %q: %v", p, raw, before, err)
		}
		if !equal(decode(t, e.Value()), model) {
			t.Fatalf("Set(%s) of %q in %q left %q", p, raw, before, e.Value())
		}
		cut := len(old)
		if old == nil {
			cut = len("null") // a parent that was null
		}
		wantKept(t, before, e.Value(), cut, len(e.Value()))
		for _, r := range known {
			if !repeats(e.Value(), r) {
				wantGet(t, e, model, r)
			}
		}
	})
}

func FuzzDelete(f *testing.F) {
	for i, s := range seeds {
		f.Add([]byte(s), []byte{1, 4, byte(i)}, i%2 == 0)
		f.Add([]byte(s), []byte{byte(i)}, i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, before, way []byte, checked bool) {
		route := routeOf(way)
		p := routePath(t, route)
		e := event.New(event.Position{}, nil, bytes.Clone(before), nil, time.Time{})
		known := [][]any{route, {"a"}, {"b"}, {"a", "b"}, {0}, {1, "a"}}
		if checked && e.Check(event.NewPaths(pathsOf(t, known)...)) != nil || len(route) == 0 {
			return
		}
		err := e.Delete(p)
		if !accepts(before, route) {
			wantType(t, "Delete", err, event.InvalidEvent)
			return
		}
		model, modelErr := del(decode(t, before), route)
		if modelErr != nil {
			wantType(t, "Delete", err, event.Expression)
			return
		}
		if err != nil || !equal(decode(t, e.Value()), model) {
			t.Fatalf("Delete(%s) of %q left %q: %v", p, before, e.Value(), err)
		}
		wantKept(t, before, e.Value(), len(before), 0)
		for _, r := range known {
			if !repeats(e.Value(), r) {
				wantGet(t, e, model, r)
			}
		}
	})
}

func pathsOf(t tb, routes [][]any) []event.Path {
	t.Helper()
	var ps []event.Path
	for _, r := range routes {
		ps = append(ps, routePath(t, r))
	}
	return ps
}

func FuzzUnquote(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := event.Unquote(raw)
		if len(raw) == 0 || raw[0] != '"' || raw[len(raw)-1] != '"' || !accepts(raw) {
			if err == nil {
				t.Fatalf("Unquote(%q) = %q, want an error", raw, got)
			}
			return
		}
		if want := decode(t, raw); err != nil || got != want {
			t.Fatalf("Unquote(%q) = %q, %v; want %q", raw, got, err, want)
		}
		spelled := event.AppendString(nil, got)
		if again, err := event.Unquote(spelled); err != nil || again != got {
			t.Fatalf("AppendString(%q) = %s, which reads %q, %v", got, spelled, again, err)
		}
	})
}

func FuzzAppendCanonical(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := event.AppendCanonical([]byte("x"), raw)
		if err != nil {
			if accepts(raw) && nesting(raw) <= 100 {
				t.Fatalf("AppendCanonical(%q): %v", raw, err)
			}
			return
		}
		if got[0] != 'x' || !json.Valid(got[1:]) || !equal(decode(t, got[1:]), decode(t, raw)) && !repeatsAny(raw) {
			t.Fatalf("AppendCanonical(%q) = %q", raw, got)
		}
		again, err := event.AppendCanonical(nil, got[1:])
		if err != nil || !bytes.Equal(again, got[1:]) {
			t.Fatalf("canonical %q is spelled %q again, %v", got[1:], again, err)
		}
	})
}

// nesting is at least the depth of raw.
func nesting(raw []byte) int { return bytes.Count(raw, []byte("[")) + bytes.Count(raw, []byte("{")) }

// repeatsAny reports whether members may have been lost in decoding, whose last one depends on order.
func repeatsAny(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var count func() bool
	count = func() bool {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		switch tok {
		case json.Delim('['):
			for d.More() {
				if count() {
					return true
				}
			}
			_, _ = d.Token()
		case json.Delim('{'):
			names := map[any]bool{}
			for d.More() {
				name, _ := d.Token()
				if names[name] || count() {
					return true
				}
				names[name] = true
			}
			_, _ = d.Token()
		}
		return false
	}
	return count()
}
