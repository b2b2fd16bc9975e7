package jq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

func TestWhatIsLookedAtOfElementsIsKnownWhereItIsByPaths(t *testing.T) {
	for src, want := range map[string]string{
		`map(.user) | join(",")`: ".user",
		`[.[].a.b]`:              ".a.b",
		`.[].a`:                  ".a",
		`map({id: .a.b, c, "d": [.e, 1], (.f): .g[0]})`: ".a.b .c .e .f .g",
		`.[0].meta.domain`: ".meta.domain",
		`first.wiki + last.wiki + (length | tostring)`: ".wiki",
		`length`:                             "",
		`"all"`:                              "",
		`{ids: map(.id), source: .[0].meta}`: ".id .meta",
		`map(.meta.domain, .meta) | length`:  ".meta.domain",
		`map(select(.kind == "edit") | .rev."an id")`:    `.kind .rev["an id"]`,
		`[.[] | .a | select(.b)] | map(.c) | unique`:     ".a.b .a.c",
		`[.[:2][] | if .x then .y.z else .y.w end]`:      ".x .y.w .y.z",
		`[.[] | .a] | length`:                            ".a",
		`[.[] | .a.b] | length`:                          ".a.b",
		`[.[].a?, (.[] | try .b catch "none")] | tojson`: ".a .b",
		`reduce .[].n as $n (0; . + $n)`:                 ".n",
		`map(.ids[]) | unique | map("\(.)") | join("|")`: ".ids",
		`"\(map(.a) | join(","))-\(.[1].b)"`:             ".a .b",
		`[limit(3; .[].a)] + [first(.[].b)]`:             ".a .b",
		`map(.a as $x | [$x, .b])`:                       ".a .b",
		`.`:                                              ".",
		`.[0]`:                                           ".",
		`map(.)`:                                         ".",
		`map(select(.a))`:                                ".",
		`map(.a = 1)`:                                    ".",
		`map(del(.a))`:                                   ".",
		`.a`:                                             ".",
		`map(keys)`:                                      ".",
		`map(.[.name])`:                                  ".",
		`map(length)`:                                    ".",
		`tojson`:                                         ".",
		`.. | .a?`:                                       ".",
		`[paths]`:                                        ".",
		`.[] as $e | $e.a`:                               ".",
		`def f: .; map(f)`:                               ".",
		`map(. + {a: 1})`:                                ".",
		`map({(.a): .})`:                                 ".",
		`map("\(.)")`:                                    ".",
		`sort_by(.a) | map(.b)`:                          ".",
		`.[] | .a // .`:                                  ".",
		`map(if .a then . else .b end)`:                  ".",
		`group_by(.a)`:                                   ".",
		`map(.[0])`:                                      ".",
		`.[].a, error`:                                   ".",
		`[.[] | .a, .b, .c, .d, .e, .f, .g, .h, .i, .j, .k, .l, .m, .n, .o, .p, .q]`: ".",
	} {
		var got []string
		for _, p := range compile(t, src).Elements().Paths() {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
	}
}

// drawOfArray draws an expression of an array. Within map and the like "." is an element.
func drawOfArray(t *rapid.T, depth int) string {
	paths := []string{".a", ".b", ".a.b", ".c", ".c.a.b", `.["a"]`, ".a[0]", ".b?", ".a.c?", ".b[]?", ".c[]", ".b[1:]"}
	ofElement := func(depth int) string { return drawOfElement(t, depth, paths) }
	if depth == 0 {
		return rapid.SampledFrom([]string{
			".[0].a", ".[1].c.a", "first.b", "last.a", "length", ".[].a", "[.[].b]", ".[7].a", "(.[:1] | .[].a)", "map(.a)", `"x"`, "$topic", ".[0]", ".", ".a", ".[0]?.b", "(.[0] | .a)",
		}).Draw(t, "leaf")
	}
	sub := func() string { return drawOfArray(t, depth-1) }
	switch rapid.IntRange(0, 16).Draw(t, "of an array") {
	case 0, 1:
		return "map(" + ofElement(depth-1) + ")"
	case 2:
		return "[.[] | " + ofElement(depth-1) + "]"
	case 3:
		return "(map(" + ofElement(0) + ") | " + sub() + ")"
	case 4:
		return "([" + sub() + "] | map(" + ofElement(0) + "))"
	case 5:
		return "{z: " + sub() + `, "a": ` + sub() + "}"
	case 6:
		return "[" + sub() + ", " + sub() + "]"
	case 7:
		return "(if " + sub() + " then " + sub() + " else " + sub() + " end)"
	case 8:
		return `(try (` + sub() + `) catch .)`
	case 9:
		return "(" + sub() + rapid.SampledFrom([]string{" + ", " == ", " and ", " // ", " , "}).Draw(t, "op") + sub() + ")"
	case 10:
		return "(reduce .[]." + rapid.SampledFrom([]string{"a", "b", "c.a"}).Draw(t, "path") + " as $x (" + sub() + "; [., $x, .a?]))"
	case 11:
		return "(" + sub() + ` | tostring | length)`
	case 12:
		return "[limit(2; " + sub() + ")]"
	case 13:
		return "map(select(" + ofElement(depth-1) + ") | " + ofElement(depth-1) + ")"
	case 14:
		return "(" + sub() + " as $x | [$x, " + sub() + "])"
	case 15:
		return "(.[:2] | " + sub() + ")"
	default:
		return `"<\(` + sub() + `)>"`
	}
}

func drawOfElement(t *rapid.T, depth int, paths []string) string {
	path := rapid.SampledFrom(paths)
	if depth <= 0 {
		return path.Draw(t, "path")
	}
	sub := func() string { return drawOfElement(t, depth-1, paths) }
	switch rapid.IntRange(0, 9).Draw(t, "of an element") {
	case 0:
		return "{k: " + sub() + ", a}"
	case 1:
		return "(" + sub() + " | " + sub() + ")"
	case 2:
		return "(" + sub() + " // " + sub() + ")"
	case 3:
		return "(select(" + sub() + ") | " + sub() + ")"
	case 4:
		return "(try (" + sub() + ") catch .)"
	case 5:
		return "[" + sub() + ", " + sub() + "]"
	case 6:
		return "(if " + sub() + " then 1 else " + sub() + " end)"
	case 7:
		return "(" + sub() + ", " + sub() + ")"
	case 8:
		return "(" + sub() + " | 1)"
	default:
		return path.Draw(t, "path")
	}
}

// arrays returns an array of values, and one of what e looks at of them.
func arrays(e *jq.Expr, values []string) (whole, less *event.Event) {
	text := []byte{'['}
	for i, v := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = e.Elements().Append(text, newEvent(v))
	}
	return newEvent("[" + strings.Join(values, ",") + "]"), newEvent(string(append(text, ']')))
}

// same evaluates e on both arrays and says how they differ.
func sameOfBoth(t interface{ Fatalf(string, ...any) }, e *jq.Expr, values []string) {
	whole, less := arrays(e, values)
	want, wantErr := e.JSON(context.Background(), whole)
	got, err := e.JSON(context.Background(), less)
	if string(got) != string(want) || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%s on %s: got %s, %v\nwhere of all of %s it is %s, %v", e, less.Value(), got, err, whole.Value(), want, wantErr)
	}
}

// An array of what an expression looks at is as good to it as one of all that elements have, also where it fails.
func TestAnArrayOfWhatIsLookedAtGivesTheSame(t *testing.T) {
	cut, all, failed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		e, err := jq.Compile(drawOfArray(t, 2))
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			values = append(values, drawJSON(t, 3))
		}
		sameOfBoth(t, e, values)
		all++
		whole, less := arrays(e, values)
		if len(less.Value()) < len(whole.Value()) {
			cut++
			if _, err := e.JSON(context.Background(), less); err != nil {
				failed++
			}
		}
	})
	if cut < all/20 || failed < all/200 {
		t.Errorf("of %d arrays %d were cut down, with which %d expressions failed: these say little", all, cut, failed)
	}
}

func TestAnArrayOfWhatIsLookedAtOfRealEventsGivesTheSameAndIsSmall(t *testing.T) {
	files, err := filepath.Glob("../../cli/demo/data/*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d real events, %v", len(files), err)
	}
	var values []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, text); err != nil {
			t.Fatal(err)
		}
		values = append(values, line.String())
	}
	for _, src := range []string{
		`map(.revision.rev_id) | join("|")`,
		`[.[].page.page_title]`,
		`map({id: .revision.rev_id, wiki: .wiki_id, by: .performer.user_text})`,
		`.[0].meta.domain`,
		`map(select(.page_change_kind == "edit") | .page.page_id | tostring) | unique | join(",")`,
		`{kinds: (map(.page_change_kind) | unique), ids: map(.page.page_id), n: length}`,
		`map(.revision.content_slots.main.content_size // 0) | add`,
		`map(.changelog_kind.x)`,
	} {
		e := compile(t, src)
		sameOfBoth(t, e, values)
		whole, less := arrays(e, values)
		if !strings.HasSuffix(src, ".x)") && len(less.Value()) > len(whole.Value())/4 {
			t.Errorf("%s: %d bytes of %d are left, want a quarter at most", src, len(less.Value()), len(whole.Value()))
		}
	}
}

func TestWhatTemplatesLookAtAddsUp(t *testing.T) {
	tpl, err := jq.CompileTemplate(`https://\(.[0].meta.domain)/?ids=\(map(.id) | join("|"))&n=\(length)`)
	if err != nil {
		t.Fatal(err)
	}
	e := tpl.Elements().And(compile(t, `map({(.meta.stream): .id})`).Elements())
	ev := newEvent(`{"id":1.0,"more":[1],"meta":{"domain":"h","dt":"now","stream":"s"}}`)
	if got := string(e.Append(nil, ev)); got != `{"id":1.0,"meta":{"domain":"h","stream":"s"}}` {
		t.Errorf("got %s", got)
	}
	if got := string(e.Append(nil, newEvent(`{"meta":"h","id":2}`))); got != `{"meta":"h","id":2}` {
		t.Errorf("an element in which a path is broken is %s, want it whole", got)
	}
	if got := string(e.And(compile(t, `map(.meta)`).Elements()).Append(nil, ev)); got != `{"id":1.0,"meta":{"domain":"h","dt":"now","stream":"s"}}` {
		t.Errorf("got %s", got)
	}
	if got := string(e.And(compile(t, `.`).Elements()).Append(nil, ev)); got != string(ev.Value()) {
		t.Errorf("got %s", got)
	}
}
