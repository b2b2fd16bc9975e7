package jq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

// newEvent returns an event with the given value and all that variables name.
func newEvent(value string) *event.Event {
	pos := event.Position{Topic: "pages", Partition: 3, Offset: 9007199254740993}
	headers := []event.Header{{Key: "h", Value: []byte("first")}, {Key: "h", Value: []byte("last")}, {Key: "none"}}
	return event.New(pos, []byte("the key"), []byte(value), headers, time.UnixMilli(1700000000123))
}

func compile(t testing.TB, src string) *jq.Expr {
	t.Helper()
	e, err := jq.Compile(src)
	if err != nil {
		t.Fatalf("compiling %q: %v", src, err)
	}
	return e
}

// typeOf returns the type of the error event that err makes, "" for none.
func typeOf(err error) event.Type {
	if r, ok := errors.AsType[*event.RejectError](err); ok {
		return r.Type
	}
	if err != nil {
		return "no reject: " + event.Type(err.Error())
	}
	return ""
}

const document = `{"a": {"b": 1.0, "id": 9007199254740993, "big": 1e400, "neg": -0.0}, "s": "x\u0041\n",` +
	` "list": [1, 2.50, 1E2], "t": true, "n": null, "z": {"y": 1, "x": 2}, "plain": "A", "escaped": "\u0041"}`

func TestJSON(t *testing.T) {
	ctx := event.WithPipeline(context.Background(), "job")
	for _, test := range []struct{ name, src, want string }{
		{"a path is its bytes", `.a`, `{"b": 1.0, "id": 9007199254740993, "big": 1e400, "neg": -0.0}`},
		{"a missing path is null", `.a.nope.deeper`, `null`},
		{"an index", `.list[1]`, `2.50`},
		{"a quoted name", `.["a"]["id"]`, `9007199254740993`},
		{"a 64-bit integer through a decoded value", `[.a.id | .]`, `[9007199254740993]`},
		{"1.0 through a decoded value", `[.a | .b]`, `[1.0]`},
		{"a number too large for a float through a decoded value", `[.a | .big]`, `[1e400]`},
		{"a negative zero through a decoded value", `[.a | .neg]`, `[-0.0]`},
		{"numbers of a list through a decoded value", `.list[:2]`, `[1,2.50]`},
		{"an integer calculated with is exact", `.a.id + 1`, `9007199254740994`},
		{"an integer beyond 64 bits is exact", `.a.id * .a.id`, `81129638414606699710187514626049`},
		{"a written number keeps its spelling", `1.0`, `1.0`},
		{"a written integer beyond 64 bits", `123456789012345678901234567890`, `123456789012345678901234567890`},
		{
			"an object in the order written", `{z: .a.id, "a": .t, m: (.list | length), t}`,
			`{"z":9007199254740993,"a":true,"m":3,"t":true}`,
		},
		{"an object within an object in the order written", `{b: {z: 1, a: 2}, a: [{d: 1, c: 2}]}`, `{"b":{"z":1,"a":2},"a":[{"d":1,"c":2}]}`},
		{"a list", `[.a.id, .t, "x"]`, `[9007199254740993,true,"x"]`},
		{"the members of a changed object are sorted", `.z | .w = 0`, `{"w":0,"x":2,"y":1}`},
		{"the escapes of a string path stay", `.s`, `"x\u0041\n"`},
		{"if", `if .t then .a.b else .s end`, `1.0`},
		{"elif", `if .n then 1 elif .t then 2 else 3 end`, `2`},
		{"an alternative", `.n // .nope // "d"`, `"d"`},
		{"an alternative that is not needed", `.a.b // (1|error)`, `1.0`},
		{"an alternative for no result", `(.list[] | select(. == 7)) // "none"`, `"none"`},
		{"comparing", `[.a.b == 1, .s == "xA\n", .a.id != 9007199254740992, .list < .z, .n == null]`, `[true,true,true,true,true]`},
		{
			"comparing a string with its escaped spelling", `["xA\n" == .s, .s == "xA\n", .plain == .escaped, .escaped == .plain, .escaped < .plain]`,
			`[true,true,true,true,false]`,
		},
		{"comparing false and true", `[false == true, false < true, true != false, null < false]`, `[false,true,true,true]`},
		{"comparing what JSON cannot spell", `[[nan] == [null], [infinite] == [1.7976931348623157e308], {a: nan} == {a: null}]`, `[false,false,false]`},
		{"a condition on what another expression gives", `any((.list[] | {t: .}); .t == true)`, `false`},
		{"not", `.n | not`, `true`},
		{"not twice", `.n | not | not`, `false`},
		{"the key", `$key`, `"the key"`},
		{"the headers, the last of a name", `$headers`, `{"h":"last","none":null}`},
		{"one header", `$headers.h`, `"last"`},
		{
			"position and name", `[$topic, $partition, $offset, $timestamp, $pipeline]`,
			`["pages",3,9007199254740993,1700000000123,"job"]`,
		},
		{"variables as members", `{$topic, $key}`, `{"topic":"pages","key":"the key"}`},
		{"a function of one's own", `def f(x): x + 1; f(.list[0])`, `2`},
		{"a regular expression", `.s | test("^xa"; "i")`, `true`},
		{"reduce", `reduce .list[] as $x (0; . + $x)`, `103.5`},
		{"NaN is null", `nan`, `null`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := compile(t, test.src).JSON(ctx, newEvent(document))
			if err != nil || string(got) != test.want {
				t.Errorf("%s: got %s, %v; want %s", test.src, got, err, test.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name, src, value string
		want             event.Type
	}{
		{"no result", `empty`, document, event.Expression},
		{"two results", `.t, .n`, document, event.Expression},
		{"two results of one side", `.t == (true, false)`, document, event.Expression},
		{"a path through a scalar", `.t.x`, document, event.Expression},
		{"a comparison through a scalar", `.t.x == 1`, document, event.Expression},
		{"an error of its own", `error("no")`, document, event.Expression},
		{"a type error", `.a + .s`, document, event.Expression},
		{"a path into no JSON", `.a`, `{"a":`, event.InvalidEvent},
		{"a path into JSON with trailing data", `.a`, `{"a":1} x`, event.InvalidEvent},
		{"a program on no JSON", `[..]`, `{"a":`, event.InvalidEvent},
		{"a program on invalid UTF-8", `[..]`, "{\"a\":\"\xff\"}", event.InvalidEvent},
		{"a program on a member given twice", `[..]`, `{"a":1,"b":{"c":1,"\u0063":2}}`, event.InvalidEvent},
		{"a path given twice", `.a == 1`, `{"a":1,"a":2}`, event.InvalidEvent},
		{"a list as deep as 10,001", `[..]`, strings.Repeat("[", 10001) + strings.Repeat("]", 10001), event.InvalidEvent},
		{"a path of a function given twice", `.a | length`, `{"a":"x","a":"y"}`, event.InvalidEvent},
		{"a member given twice within what a function gets", `.a | length`, `{"a":{"b":1,"b":2}}`, event.InvalidEvent},
		{"a member given twice beside what a function gets", `.a | length`, `{"a":"x","b":1,"b":2}`, ""},
		{"a member given twice beside the path", `.a == 1`, `{"a":1,"b":1,"b":2}`, ""},
		{"no JSON, not looked at", `$key | ascii_upcase`, "\xff\xfe", ""},
		{"no JSON, not looked at by an object", `{$topic, a: 1, b: "x\(1+$offset)"}`, "\xff\xfe", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := compile(t, test.src).JSON(context.Background(), newEvent(test.value))
			if typeOf(err) != test.want {
				t.Errorf("%s: got %s, %v; want an error of type %q", test.src, got, err, test.want)
			}
		})
	}
}

func TestBool(t *testing.T) {
	for _, test := range []struct {
		src  string
		want bool
		err  event.Type
	}{
		{`.t`, true, ""},
		{`.n`, false, ""},
		{`.nope`, false, ""},
		{`0`, true, ""},
		{`""`, true, ""},
		{`empty`, false, ""},
		{`.list[] | select(. > 1000)`, false, ""},
		{`.list[]`, false, event.Expression},
		{`.t.x`, false, event.Expression},
		{`.t.x?`, false, ""},
		{`.n and .t.x`, false, ""},
		{`.t or .t.x`, true, ""},
		{`.t and .t.x`, false, event.Expression},
		{`.s != "canary" and (.a.id | not | not) and .list[2] == 100`, true, ""},
		{`.a.id >= 9007199254740993 and .a.id < 9007199254740994`, true, ""},
		{`$headers.h == "last" and $partition == 3`, true, ""},
		{`.list | contains([2.5])`, true, ""},
	} {
		got, err := compile(t, test.src).Bool(context.Background(), newEvent(document))
		if got != test.want || typeOf(err) != test.err {
			t.Errorf("%s: got %v, %v; want %v and an error of type %q", test.src, got, err, test.want, test.err)
		}
	}
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		src, want string
		missing   bool
	}{
		{`.s`, "xA\n", false},
		{`.a.b`, "1.0", false},
		{`.t`, "true", false},
		{`.list`, "[1,2.50,1E2]", false},
		{`.z | .`, `{"x":2,"y":1}`, false},
		{`.nope`, "", true},
		{`.n`, "", true},
		{`.s | ascii_upcase`, "XA\n", false},
		{`""`, "", false},
		{`$offset`, "9007199254740993", false},
	} {
		got, missing, err := compile(t, test.src).Text(context.Background(), newEvent(document))
		if got != test.want || missing != test.missing || err != nil {
			t.Errorf("%s: got %q, missing %v, %v; want %q, missing %v", test.src, got, missing, err, test.want, test.missing)
		}
	}
}

func TestOnJSON(t *testing.T) {
	answer := []byte(`{"query": {"pages": [{"id": 9007199254740993, "none": null, "c": "x\u0041"}]}}`)
	for _, test := range []struct {
		src, want string
		err       event.Type
	}{
		{`.query.pages[0].c`, `"x\u0041"`, ""},
		{`.query.pages[0]`, `{"id": 9007199254740993, "none": null, "c": "x\u0041"}`, ""},
		{`.query.pages[0].none`, "", ""},
		{`.query.pages[7].id`, "", ""},
		{`.query.pages[] | select(.id == 1)`, "", ""},
		{`.query.pages[] | .id`, `9007199254740993`, ""},
		{`[$topic, .query.pages[0].id]`, `["pages",9007199254740993]`, ""},
		{`.query.pages.id`, "", event.Expression},
	} {
		got, err := compile(t, test.src).OnJSON(context.Background(), answer, newEvent(document))
		if string(got) != test.want || (test.want == "") != (got == nil) || typeOf(err) != test.err {
			t.Errorf("%s: got %s, %v; want %s and an error of type %q", test.src, got, err, test.want, test.err)
		}
	}
	if got, err := compile(t, `[.a, $key]`).OnJSON(context.Background(), []byte(`{"a": 1}`), nil); string(got) != `[1,null]` {
		t.Errorf("without an event: got %s, %v", got, err)
	}
	_, err := compile(t, `.a`).OnJSON(context.Background(), []byte(`<html>`), nil)
	if typeOf(err) != event.InvalidEvent {
		t.Errorf("an answer that is not JSON: got %v", err)
	}
}

func TestTombstoneReadsAsNull(t *testing.T) {
	ev := event.New(event.Position{}, nil, nil, nil, time.Time{})
	got, err := compile(t, `[.a, (. | type), $key, $timestamp]`).JSON(context.Background(), ev)
	if string(got) != `[null,"null",null,null]` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestPathsAndReadsValue(t *testing.T) {
	for _, test := range []struct {
		src   string
		paths []string
		reads bool
		bare  bool
	}{
		{`.a.b`, []string{".a.b"}, true, true},
		{` .["a"].b `, []string{".a.b"}, true, true},
		{`.a != "x" and .b and (.a | not)`, []string{".a", ".b"}, true, false},
		{`.`, []string{"."}, true, true},
		{`[.a[] | .x]`, []string{".a"}, true, false},
		{`[.[] | .x]`, []string{"."}, true, false},
		{`(.a.b | ascii_upcase) + .c[.d]`, []string{".a.b", ".c", ".d"}, true, false},
		{`"\(.a) \(.b | length)"`, []string{".a", ".b"}, true, false},
		{`if .a then .b end`, []string{"."}, true, false},
		{`try .a.b catch .c`, []string{".a.b"}, true, false},
		{`reduce .a[] as $x (.b; . + .c)`, []string{".a", ".b"}, true, false},
		{`.a as [$x] | $x`, []string{"."}, true, false},
		{`path(.a)`, []string{"."}, true, false},
		{`$key`, nil, false, false},
		{`$topic == "x" or ($key | test("^a"))`, nil, false, false},
		{`"fixed"`, nil, false, false},
		{`now`, nil, false, false},
		{`$key | . as $x | length`, nil, false, false},
		{`.a as $x | $x`, []string{".a"}, true, false},
		{`length`, []string{"."}, true, false},
	} {
		e := compile(t, test.src)
		var got []string
		for _, p := range e.Paths() {
			got = append(got, p.String())
		}
		_, bare := e.Path()
		if !slices.Equal(got, test.paths) || e.ReadsValue() != test.reads || bare != test.bare {
			t.Errorf("%s: got %v, reads %v, bare %v; want %v, %v, %v", test.src, got, e.ReadsValue(), bare, test.paths, test.reads, test.bare)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, test := range []struct {
		name, src string
		offset    int
		message   string
	}{
		{"nothing", "  ", 0, "empty"},
		{"the environment", `.a == env.HOME`, 6, "environment"},
		{"the environment as a variable", `.a | $ENV.HOME`, 5, "environment"},
		{"other inputs", `[inputs]`, 1, "one event"},
		{"the next input", `.a, input`, 4, "one event"},
		{"printing", `.a | debug`, 5, "print"},
		{"printing a message", `.a | debug("x")`, 5, "print"},
		{"stopping the program", `if .a then halt else . end`, 11, "stop"},
		{"stopping with a status", `"bye" | halt_error(1)`, 8, "stop"},
		{"modules", `import "m" as m; m::f`, 0, "modules"},
		{"included modules", `include "m"; f`, 0, "modules"},
		{"an unknown function", `.a | lenght`, 5, "function not defined: lenght/0"},
		{"an unknown function deep inside", `{a: [.b | foo(1)]}`, 10, "function not defined: foo/1"},
		{"an unknown variable", `.a == $kye`, 6, "$key"},
		{"an end too early", `.a ==`, 5, "ends too early"},
		{"single quotes", `.a != 'x'`, 6, `a jq string takes double quotes`},
		{"and of another language", `.a && .b`, 3, "jq writes and"},
		{"or of another language", `.a || .b`, 4, "jq writes or"},
		{"not of another language", `!.a`, 0, ".a | not"},
		{"a third equals sign", `.a === 1`, 5, "jq compares by =="},
		{"a field without its dot", `a == 1`, 0, "begins with a dot: .a"},
		{"a token out of place", `.a }`, 3, "unexpected token"},
		{"a token on the second line", ".a\n| | .b", 5, "unexpected token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := jq.Compile(test.src)
			s, ok := errors.AsType[*jq.SyntaxError](err)
			if !ok || s.Offset != test.offset || !strings.Contains(s.Message, test.message) {
				t.Errorf("%q: got %#v, want offset %d and a message with %q", test.src, err, test.offset, test.message)
			}
		})
	}
}

func TestTimeLimitStopsALoop(t *testing.T) {
	start := time.Now()
	_, err := compile(t, `.a.b + (0 | until(. < 0; . + 1))`).JSON(context.Background(), newEvent(document))
	if typeOf(err) != event.Expression || !strings.Contains(err.Error(), "longer than 1s") {
		t.Errorf("got %v, want an error of type expression that names the limit", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("the loop ran for %v", d)
	}
}

func TestEndOfTheCallersContextIsNoErrorEvent(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := compile(t, `[range(100)]`).JSON(ctx, newEvent(document))
	if !errors.Is(err, context.Canceled) || typeOf(err) == event.Expression {
		t.Errorf("got %v, want the context's error as it is", err)
	}
}

func TestOneExpressionServesManyGoroutines(t *testing.T) {
	e := compile(t, `[.list[] | . + 1] == [2, 3.5, 101] and (.s | test("^x")) and .a.b == 1`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if ok, err := e.Bool(context.Background(), newEvent(document)); !ok || err != nil {
					t.Errorf("got %v, %v", ok, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestLongErrorMessageIsCut(t *testing.T) {
	_, err := compile(t, `error("é" * 100000)`).JSON(context.Background(), newEvent(document))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("got a message of %d bytes", len(err.Error()))
	}
}

func TestFurtherVariablesAreKnownWhereTheyAreNamed(t *testing.T) {
	more := func(name string) any {
		return map[string]any{"status": 404, "response_headers": map[string]any{"etag": "\"v\"", "n": "1"}}[name]
	}
	for _, tc := range []struct{ src, want string }{
		{`$status`, `404`},
		{`$status == 404 and .a == 1`, `true`},
		{`{$status, a, t: $topic}`, `{"status":404,"a":1,"t":"pages"}`},
		{`$response_headers.etag`, `"\"v\""`},
		{`$response_headers["n"] | tonumber`, `1`},
		{`"\($status) \(.a)"`, `"404 1"`},
		{`[.list[] | select(. < $status)]`, `[1]`},
		{`.a as $status | $status`, `1`},
		{`. as {a: $b} | [$b, $status]`, `[1,404]`},
	} {
		e, err := jq.Compile(tc.src, "status", "response_headers")
		if err != nil {
			t.Errorf("compiling %s: %v", tc.src, err)
			continue
		}
		got, err := e.OnAnswer(t.Context(), []byte(`{"a":1,"list":[1,500]}`), newEvent(`{}`), more)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: got %s, %v; want %s", tc.src, got, err, tc.want)
		}
	}
	if _, err := jq.Compile(`$status`); err == nil || !strings.Contains(err.Error(), "variable not defined: $status; expressions know $headers") {
		t.Errorf("without them: got %v, want that it is not defined", err)
	}
	if _, err := jq.Compile(`$stats`, "status"); err == nil || !strings.Contains(err.Error(), "$topic, $status") {
		t.Errorf("a name that is none: got %v, want the names that are known", err)
	}
}
