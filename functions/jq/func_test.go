package jq_test

import (
	"context"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

func newFunc(t testing.TB, src string) *jq.Func {
	t.Helper()
	f, err := jq.NewFunc(src)
	if err != nil {
		t.Fatalf("compiling %q: %v", src, err)
	}
	return f
}

func TestFuncEditsBytes(t *testing.T) {
	const value = `{"z" : 1.0,  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400}`
	for _, test := range []struct{ name, src, want string }{
		{
			"an assignment leaves all else", `.a.u = "new"`,
			`{"z" : 1.0,  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"new"} ,"big":1e400}`,
		},
		{
			"a path assigned from a path keeps its spelling", `.z = .id | .id = .big`,
			`{"z" : 9007199254740993,  "id":1e400, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400}`,
		},
		{
			"a missing object is made", `.n.m = null`,
			`{"z" : 1.0,  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400,"n":{"m":null}}`,
		},
		{
			"a written number keeps its spelling", `.z = 2.50`,
			`{"z" : 2.50,  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400}`,
		},
		{
			"a written object keeps its order", `.z = {b: 1, a: .id}`,
			`{"z" : {"b":1,"a":9007199254740993},  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400}`,
		},
		{"a delete", `del(.z) | del(.a, .big)`, `{"id":9007199254740993}`},
		{
			"deletes of a list mean the list as it was", `del(.a.x[0], .a.x[1])`,
			`{"z" : 1.0,  "id":9007199254740993, "a": {"x":[3], "u":"\u0041"} ,"big":1e400}`,
		},
		{
			"an update of what is there", `.a.u |= ascii_downcase`,
			`{"z" : 1.0,  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"a"} ,"big":1e400}`,
		},
		{
			"arithmetic on a 64-bit integer", `.id += 1`,
			`{"z" : 1.0,  "id":9007199254740994, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400}`,
		},
		{
			"a default", `.id //= 1 | .none //= 2`,
			`{"z" : 1.0,  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400,"none":2}`,
		},
		{
			"variables", `.z = $topic`,
			`{"z" : "pages",  "id":9007199254740993, "a": {"x":[1, 2,3], "u":"\u0041"} ,"big":1e400}`,
		},
		{"select keeps the bytes", `select(.id == 9007199254740993)`, value},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFunc(t, test.src)
			if f.Rewrites() {
				t.Errorf("%s is said to rewrite the value", test.src)
			}
			in := newEvent(value)
			got, err := f.Process(context.Background(), in)
			if err != nil || len(got) != 1 || got[0] != in || string(got[0].Value()) != test.want {
				t.Fatalf("%s: got %v, %v, value %s; want the event with\n%s", test.src, got, err, in.Value(), test.want)
			}
		})
	}
}

func TestFuncThatRewrites(t *testing.T) {
	const value = `{"z": 1.0, "a": [{"id": 9007199254740993}, {"id": 1e400}]}`
	for _, test := range []struct {
		name, src string
		want      []string
	}{
		{"numbers keep their spelling", `.a |= map(.id)`, []string{`{"z": 1.0, "a": [9007199254740993,1e400]}`}},
		{"any number of paths", `.a[].id = 0`, []string{`{"a":[{"id":0},{"id":0}],"z":1.0}`}},
		{"an object in the order written", `{z, b: .a[0].id}`, []string{`{"z":1.0,"b":9007199254740993}`}},
		{"several results derive events", `.a[]`, []string{`{"id":9007199254740993}`, `{"id":1e400}`}},
		{"no result drops the event", `.a[] | select(.id == 5)`, nil},
		{"what is left as it is keeps its bytes", `if .z == 1 then . else {} end`, []string{value}},
		{"also beside another result", `., {}`, []string{value, `{}`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := newFunc(t, test.src).Process(context.Background(), newEvent(value))
			if err != nil {
				t.Fatal(err)
			}
			var values []string
			for _, ev := range got {
				values = append(values, string(ev.Value()))
				if string(ev.Key()) != "the key" || len(ev.Headers()) != 3 || ev.Position().Topic != "pages" {
					t.Errorf("key, headers or position changed: %s, %v, %v", ev.Key(), ev.Headers(), ev.Position())
				}
			}
			if strings.Join(values, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("%s: got %q, want %q", test.src, values, test.want)
			}
		})
	}
}

func TestFuncRewrites(t *testing.T) {
	for src, want := range map[string]bool{
		`.a = 1`: false, `.a = (.b | length) | del(.c)`: false, `.`: false, `(.a = 1 | .b = 2) | .c = 3`: false,
		`.a[0] |= . + 1`: false, `select(.a) | .b = 1`: false,
		`.a[] = 1`: true, `del(.a[])`: true, `{a}`: true, `map(. + 1)`: true, `.a[-1] = 1`: true, `def f: 1; .a = f`: true,
		`.a = 1, .b = 2`: true, `.a as $x | .b = $x`: true, `del(.)`: true,
	} {
		if got := newFunc(t, src).Rewrites(); got != want {
			t.Errorf("%s: got %v, want %v", src, got, want)
		}
	}
}

func TestFuncErrors(t *testing.T) {
	for _, test := range []struct {
		name, src, value string
		want             event.Type
	}{
		{"a scalar in the way", `.a.b = 1`, `{"a":"text"}`, event.Expression},
		{"an error in the program", `.a = error("no")`, `{}`, event.Expression},
		{"an error in a program that rewrites", `map(error("no"))`, `[1]`, event.Expression},
		{"no JSON", `.a = 1`, `{"a"`, event.InvalidEvent},
		{"no JSON for a program that rewrites", `[..]`, `{"a"`, event.InvalidEvent},
		{"a member given twice that is set", `.a = 1`, `{"a":1,"a":2}`, event.InvalidEvent},
		{"too many results", `range(100000)`, `{}`, event.Expression},
		{"too many results of several steps", `.a = range(5000) | .b = range(5000)`, `{}`, event.Expression},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := newFunc(t, test.src).Process(context.Background(), newEvent(test.value))
			if typeOf(err) != test.want || got != nil {
				t.Errorf("got %d events, %v; want an error of type %q", len(got), err, test.want)
			}
		})
	}
}

func TestFuncDerivedEventsDoNotShareChanges(t *testing.T) {
	got, err := newFunc(t, `.a = (1, 2, 3) | .b = .a`).Process(context.Background(), newEvent(`{"a":0}`))
	if err != nil || len(got) != 3 {
		t.Fatalf("got %d events, %v", len(got), err)
	}
	for i, want := range []string{`{"a":1,"b":1}`, `{"a":2,"b":2}`, `{"a":3,"b":3}`} {
		if string(got[i].Value()) != want {
			t.Errorf("event %d: got %s, want %s", i, got[i].Value(), want)
		}
	}
}

func TestFuncLeavesTheBytesItWasGiven(t *testing.T) {
	const value = `{"a":[1,2,3],"b":{"c":1}}`
	for _, src := range []string{`.a[1] = 9`, `.a |= map(. + 1)`, `.a[] += 1`, `del(.b)`, `{b}`, `.b.c |= empty`} {
		given := []byte(value)
		ev := event.New(event.Position{}, nil, given, nil, newEvent("").Timestamp())
		if _, err := newFunc(t, src).Process(context.Background(), ev); err != nil {
			t.Fatal(err)
		}
		if string(given) != value {
			t.Errorf("%s wrote into its input: %s", src, given)
		}
	}
}

func TestFuncNamesThePathsItReadsAndSets(t *testing.T) {
	var got []string
	for _, p := range newFunc(t, `.a = .b.c | del(.d) | select(.e == 1)`).Paths() {
		got = append(got, p.String())
	}
	if strings.Join(got, " ") != ".a .b.c .d .e" {
		t.Errorf("got %v", got)
	}
}
