package jq_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

// TestAnExpressionCannotFillTheMemory promises that a number in an event, or a short loop, does not make a
// value that ends the process: it ends as an error event.
func TestAnExpressionCannotFillTheMemory(t *testing.T) {
	for _, src := range []string{
		`.b[.i] = 1`, `.b[.i] |= 1`, `.b[.i] += 1`, `.b[.i] //= 1`, `.c[.i].d = 1`, `.c[300000000] = 1 | .d[.i] = 2`,
		`setpath(["b", .i]; 1)`, `pick(.b[.i])`, `fromstream([[.i], 1], [[.i]])`, `[.b | .[range(0; 300000000; 10001)] = 1]`,
		`[range(1000) | {b: []}] | .[].b[9000] = 1`,
		`"x" * .i`, `.i * "x"`, `.x = ("xy" * .i)`, `.s *= .i`, `.s[.j:] * .i`,
		`reduce range(.i) as $i ("x"; . + .)`, `reduce range(.i) as $i ("x"; . += .)`, `reduce range(.i) as $i ([1]; . + .)`,
		`reduce range(.i) as $i ("x"; "\(.)\(.)")`, `reduce range(.i) as $i ("x"; @json "\(.)\(.)")`, `reduce range(.i) as $i ("x"; {"\(.)\(.)": 1} | keys[0])`,
		`reduce range(.i) as $i ("x"; [., .] | add)`, `reduce range(.i) as $i ("x"; add(., .))`, `reduce range(.i) as $i ("x"; [., .] | join(","))`,
		`reduce range(.i) as $i ("x"; [1, 1, 1] | join("yyyy" * 10000000))`,
		`reduce range(40) as $i ("x"; [., .])`, `reduce range(40) as $i ("x"; [., .]) | tojson`, `reduce range(40) as $i ("x"; [., .]) | flatten`,
		`[[range(10000)], range(10000; 20000)] | map([.]) | .[0] = [range(10000)] | transpose`,
		`reduce range(20000) as $i (0; [.])`, `"x" * 100000 | gsub("x"; "y" * 1000)`,
	} {
		t.Run(src, func(t *testing.T) {
			f := newFunc(t, src)
			out, err := f.Process(context.Background(), newEvent(`{"i": 300000000, "j": 0, "b": [], "s": "abc"}`))
			if typeOf(err) != event.Expression {
				t.Fatalf("got %d events, %v; want an error of type %q", len(out), err, event.Expression)
			}
		})
	}
	waitFor(t, "jq.(*evaluation).run", 0)
}

// TestWhatIsGuardedEqualsGojq promises that what stands in the place of gojq's operators and built-ins gives
// what they give.
func TestWhatIsGuardedEqualsGojq(t *testing.T) {
	forms := []string{
		"A[B] = C", "A[B] |= C", "A[B] += C", "A[] *= B", "A[]? //= B", "(A, .c)[B]? = C", "A[B].a = C", "A[1:B] = [C, 1]", "(.. | select(. == A)) |= B",
		"setpath([A, B]; C)", "setpath(A; B)", "pick(A[B]?)", "fromstream(A | tostream)", "A * B", "A + B", "add(A, B, C)", "[A, B, C] | add", "[A, B] | join(C)",
		"[A, [B, [C]]] | flatten", "[A, [B, [C]]] | flatten(1)", "[[A], [B, C]] | transpose", "A | tojson", "A | tostring", `@json "\(A)-\(B)"`, `@uri "\(A)"`,
		"A | @json", "A | @text", "A | explode", "A | @uri", "A | @base64", "A | utf8bytelength", `{"x\(A)": B}`, "A += B", ".c[B] -= 1", "A *= B",
		"def add: 5; A | add", "def tojson: B; A | tojson", "def f(g): g |= B; f(A[B])", "(A, B) as $x | .c = $x", "[A[B] = (1, 2)]", "path(A | tojson)",
		"[A | tostring | match(R; F)]", "[A | tostring | match(R)]", "A | tostring | test(R; F)", "A | tostring | test([R])", "A | match(R; F)", "A | tostring | test(R)",
		"A | tostring | capture(R; F)", "[A | tostring | scan(R; F)]", "[A | tostring | scan(R)]", "[A | tostring | splits(R)]", "A | tostring | split(R; F)",
		`A | tostring | sub(R; "<\(.)>"; F)`, `A | tostring | sub(R; "-")`, `A | tostring | gsub(R; "<\(.x)>"; F)`, `[A | tostring | gsub(R; "1", "2")]`,
		"A | gsub(R; B)", "A | tostring | gsub(R; empty)", "A | tostring | gsub(R; B)", "A | match(R; B)", "[limit(1; A | tostring | splits(R))]",
	}
	rapid.Check(t, func(t *rapid.T) {
		value := drawJSON(t, 3)
		src := rapid.SampledFrom(forms).Draw(t, "form")
		for _, name := range []string{"A", "B", "C"} {
			operand := rapid.SampledFrom([]string{".a", ".b", ".c", ".a.b", "0", "1", "-1", "2", `"a"`, "null", "[]", "{}", "1.5", "[1, 2]"}).Draw(t, name)
			if name == "A" && strings.Contains(src, "=") && !strings.HasPrefix(operand, ".") {
				operand = ".c"
			}
			src = strings.ReplaceAll(src, name, operand)
		}
		src = strings.ReplaceAll(src, "R", rapid.SampledFrom([]string{
			`""`, `"a"`, `"[a-z]"`, `"(?<x>[0-9])"`, `"(?<x>[a-z])(?<y>[0-9])?"`, `"."`, `"a*"`, `"\\b"`, `"$"`, `"(?<x>)"`, `"("`, `"é|b"`, `"^"`, "null",
		}).Draw(t, "regex"))
		src = strings.ReplaceAll(src, "F", rapid.SampledFrom([]string{`"g"`, `null`, `""`, `"gi"`, `"m"`, `"x"`, "1"}).Draw(t, "flags"))
		want, failed := oracle(src, value, newEvent(value))
		e, err := jq.Compile("[" + src + "]")
		if err != nil {
			t.Fatalf("compiling %s: %v", src, err)
		}
		got, err := e.JSON(context.Background(), newEvent(value))
		switch {
		case failed && typeOf(err) != event.Expression:
			t.Fatalf("%s on %s: got %s, %v; want an error", src, value, got, err)
		case !failed && err != nil, !failed && !nearJSON(t, got, want):
			t.Fatalf("%s on %s: got %s, %v; want %v", src, value, got, err, want)
		}
	})
}

// BenchmarkGsub is of two lengths: the second may take ten times the first, not a hundred times.
func BenchmarkGsub(b *testing.B) {
	for _, letters := range []int{1_000, 10_000} {
		b.Run(strconv.Itoa(letters), func(b *testing.B) {
			ev := newEvent(`{"s": "` + strings.Repeat("é", letters) + `"}`)
			e, err := jq.Compile(`.s | gsub("é"; "bb") | length`)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := e.JSON(context.Background(), ev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestALoneSurrogateStaysWhatItIs promises that half of a surrogate pair passes through a program as the
// escape that it is, that two different ones are not one, and that a program cannot look into it.
func TestALoneSurrogateStaysWhatItIs(t *testing.T) {
	for _, tt := range []struct{ src, value, want string }{
		{`.n = (.n | tostring | length)`, `{"a":"x\ud800y","n":12}`, `{"a":"x\ud800y","n":2}`},
		{`map_values(.)`, `{"\ud800":1,"\udfff":2,"k":["\uDC00"]}`, `{"k":["\udc00"],"\ud800":1,"\udfff":2}`},
		{`to_entries | from_entries`, `{"a":"\ud83d\ude00 \ude00\ud83d \\ud800 \u00e9"}`, `{"a":"😀 \ude00\ud83d \\ud800 é"}`},
		{`[.a + "z", (.a | length), .a == .b, (.a | ascii_upcase), (.a | .[1:])]`, `{"a":"x\ud800","b":"x\ud801"}`, `["x\ud800z",2,false,"X\ud800","\ud800"]`},
		{`{k: .a, l: (.a | length)}`, `{"a":"\ud800"}`, `{"k":"\ud800","l":1}`},
		{`.b = (.a | tojson | fromjson)`, `{"a":"\ud800"}`, `{"a":"\ud800","b":"\ud800"}`},
		{`select((.a | length) == 1)`, `{"z" : 1.0, "a": "\ud800"}`, `{"z" : 1.0, "a": "\ud800"}`},
		{`[.[] | gsub("x"; "y")]`, `["x\ud800x", "\ufffd"]`, `["y\ud800y","` + "\uFFFD" + `"]`},
		{`[.[] | explode]`, `["\ud800"]`, ``},
		{`[.[] | @uri]`, `["\ud800"]`, ``},
		{`@base64 "\(.a)"`, `{"a":"\ud800"}`, ``},
		{`[.[] | utf8bytelength]`, `["\ud800"]`, ``},
		{`[.[] | length]`, `["\ud800", "` + "\U0010F800" + `"]`, ``},
		{`[.[] | explode]`, `["` + "\U0010F800" + `"]`, `[[1112064]]`},
	} {
		out, err := newFunc(t, tt.src).Process(context.Background(), newEvent(tt.value))
		if tt.want == "" {
			if typeOf(err) != event.Expression || !strings.Contains(err.Error(), "half of a surrogate pair") {
				t.Errorf("%s on %s: got %v, want an error that names the half", tt.src, tt.value, err)
			}
			continue
		}
		if err != nil || string(out[0].Value()) != tt.want {
			t.Errorf("%s on %s: got %s, %v; want %s", tt.src, tt.value, values(out), err, tt.want)
		}
	}
}

func values(evs []*event.Event) string {
	var b strings.Builder
	for _, ev := range evs {
		fmt.Fprintf(&b, "%s\n", ev.Value())
	}
	return b.String()
}
