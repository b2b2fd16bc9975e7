package event_test

import (
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
)

func path(t tb, text string) event.Path {
	t.Helper()
	p, err := event.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlainPathsAreSpelledOneWay(t *testing.T) {
	for text, want := range map[string]string{
		".":                    ".",
		"  . ":                 ".",
		".a":                   ".a",
		" .a.b_2._c ":          ".a.b_2._c",
		`."a"`:                 ".a",
		`.["a"]`:               ".a",
		`.a."b".c`:             ".a.b.c",
		`.a."x y"`:             `.a["x y"]`,
		`."x y"`:               `.["x y"]`,
		`.a["b-c"].d`:          `.a["b-c"].d`,
		`.a.["b-c"]`:           `.a["b-c"]`,
		`.a[0]`:                ".a[0]",
		`.a.[0]`:               ".a[0]",
		`.[12][3].x`:           ".[12][3].x",
		`."\u0061"`:            ".a",
		`.["\""]`:              `.["\""]`,
		`.[""]`:                `.[""]`,
		`."é"`:                 `.["é"]`,
		`."\n"`:                `.["\n"]`,
		`."9a"`:                `.["9a"]`,
		".and.if":              ".and.if",
		".a[2147483647]":       ".a[2147483647]",
		`.["\ud83d\ude00"][0]`: `.["😀"][0]`,
	} {
		got := path(t, text)
		if got.String() != want {
			t.Errorf("ParsePath(%q) = %s, want %s", text, got, want)
		}
		if again := path(t, got.String()); again.String() != want {
			t.Errorf("ParsePath(%q) = %s, want it unchanged", got, again)
		}
		if got.Root() != (want == ".") {
			t.Errorf("ParsePath(%q).Root() = %v", text, got.Root())
		}
	}
}

func TestWhatIsNoPlainPathIsRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "a", "..", ".a.", ".a..b", ". a", ".a .b", ".a | .b", ".a?", ".[]", ".a[]", ".[-1]", ".a[-1]",
		".a[1:2]", ".a[01]", ".a[1.0]", ".a[1e2]", ".a[2147483648]", ".a[99999999999999999999]", ".a[", ".a[0",
		`.a["b"`, `.a["b]`, `."\(.b)"`, `."\x"`, ".\"\xff\"", ".a-b", ".é", ".1", "$a", ".a.$b", "[0]", `"a"`, ".a[.b]",
		strings.Repeat(".a", 10001),
	} {
		p, err := event.ParsePath(text)
		if err == nil {
			t.Errorf("ParsePath(%q) = %s, want an error", text, p)
		} else if !strings.Contains(err.Error(), "not a plain path") {
			t.Errorf("ParsePath(%q): %q does not say that it is not a plain path", text, err)
		}
	}
}

func TestZeroPathIsTheRoot(t *testing.T) {
	var p event.Path
	e := value(`{"a":1}`)
	got, err := e.Get(p)
	if err != nil || string(got) != `{"a":1}` || p.String() != "." || !p.Root() {
		t.Errorf("zero path %s: %s, %v", p, got, err)
	}
}

func TestEqualPathsCountOnce(t *testing.T) {
	ps := event.NewPaths(path(t, ".a"), path(t, `.["a"]`), path(t, ".b"), event.Path{}, path(t, "."))
	if ps.Len() != 3 {
		t.Errorf("Len() = %d, want 3", ps.Len())
	}
}
