package event_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

func sample(t tb, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "page_change", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestSetChangesNothingElse(t *testing.T) {
	nulls := strings.Repeat("null,", 10000)
	tests := []struct {
		name, value, path, raw, want string
	}{
		{"replaces a member", `{"a": 1 ,"b":2}`, ".a", `"x"`, `{"a": "x" ,"b":2}`},
		{"replaces with white space around cut", `{"a":1}`, ".a", " [ 1 ] \n", `{"a":[ 1 ]}`},
		{"appends a member", `{"a":1}`, ".b", "2", `{"a":1,"b":2}`},
		{"appends before closing white space", "{\n  \"a\": 1\n}\n", ".b", "2", "{\n  \"a\": 1,\"b\":2\n}\n"},
		{"fills an empty object", `{}`, ".b", "2", `{"b":2}`},
		{"fills an empty object with a space", `{ }`, ".b", "2", `{"b":2 }`},
		{"makes parents", `{"a":1}`, ".b.c.d", "2", `{"a":1,"b":{"c":{"d":2}}}`},
		{"makes parents with names to escape", `{}`, `.["x\"y"]["\n"]`, "2", `{"x\"y":{"\n":2}}`},
		{"makes arrays as jq does", `{}`, ".a[2].b", "1", `{"a":[null,null,{"b":1}]}`},
		{"null parent becomes an object", `{"a": null }`, ".a.b", "1", `{"a": {"b":1} }`},
		{"null parent becomes an array", `{"a":null}`, ".a[1]", "1", `{"a":[null,1]}`},
		{"null root becomes an object", ` null `, ".a", "1", ` {"a":1} `},
		{"replaces an element", `[1, 2 ,3]`, ".[1]", "{}", `[1, {} ,3]`},
		{"appends an element", `[1, 2 ]`, ".[2]", "3", `[1, 2,3 ]`},
		{"appends a padded element", `[1]`, ".[3]", "3", `[1,null,null,3]`},
		{"appends to an empty array", `[ ]`, ".[0]", "3", `[3 ]`},
		{"pads an empty array", `[]`, ".[1]", "3", `[null,3]`},
		{"makes an object in an element", `[{"x":[]},[{}]]`, ".[1][0].a", "3", `[{"x":[]},[{"a":3}]]`},
		{"counts elements that hold commas", `[[1,2],{"a":[3,4]},"5,6"]`, ".[3]", "7", `[[1,2],{"a":[3,4]},"5,6",7]`},
		{"pads up to 10,000 elements", `[]`, ".[10000]", "1", "[" + nulls + "1]"},
		{"replaces a null", `{"a":null}`, ".a", "1", `{"a":1}`},
		{"finds a name spelled with an escape", `{"\u0061":1}`, ".a", "2", `{"\u0061":2}`},
		{"replaces the root", ` {"a":1} `, ".", " [1] ", `[1]`},
		{"replaces an invalid root", `oops`, ".", "{}", `{}`},
		{
			"keeps spelling and order", `{"z":1e400,"a":1.0,"id":9007199254740993,"a/b":"\/\u0041<>","z2":[ 1 ]}`, ".id", "0",
			`{"z":1e400,"a":1.0,"id":0,"a/b":"\/\u0041<>","z2":[ 1 ]}`,
		},
	}
	for _, tt := range tests {
		for _, ps := range []*event.Paths{nil, paths(t), paths(t, tt.path), paths(t, ".", tt.path, ".z", ".z2[0]", ".zz")} {
			e := value(tt.value)
			if ps != nil && tt.value != "oops" {
				if err := e.Check(ps); err != nil {
					t.Fatal(err)
				}
			}
			before := e.Share()
			if err := e.Set(path(t, tt.path), []byte(tt.raw)); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			if got := string(e.Value()); got != tt.want {
				t.Errorf("%s: got %.200s, want %.200s", tt.name, got, tt.want)
			}
			if string(before.Value()) != tt.value {
				t.Errorf("%s: wrote into the shared bytes: %s", tt.name, before.Value())
			}
			if got, err := e.Get(path(t, tt.path)); string(got) != strings.TrimSpace(tt.raw) || err != nil {
				t.Errorf("%s: Get afterwards: %s, %v", tt.name, got, err)
			}
		}
	}
}

func TestSetKeepsNothingOfItsArgument(t *testing.T) {
	for _, p := range []string{".", ".a"} {
		e := value(`{"a":1}`)
		raw := []byte("12345")
		if err := e.Set(path(t, p), raw); err != nil {
			t.Fatal(err)
		}
		want := string(e.Value())
		copy(raw, "99999")
		if string(e.Value()) != want {
			t.Errorf("Set(%s): the value changed with the argument: %s", p, e.Value())
		}
	}
}

func TestDeleteTakesNameAndOneComma(t *testing.T) {
	tests := []struct {
		name, value, path, want string
	}{
		{"only member", `{ "a" : 1 }`, ".a", `{  }`},
		{"first member", `{ "a":1, "b":2 }`, ".a", `{ "b":2 }`},
		{"middle member", `{"a":1, "b" : 2 , "c":3}`, ".b", `{"a":1, "c":3}`},
		{"last member", "{\"a\":1 ,\n \"b\":2\n}", ".b", "{\"a\":1\n}"},
		{"name with quotes and backslashes", `{"x":1,"\\\"\\":2,"y":3}`, `.["\\\"\\"]`, `{"x":1,"y":3}`},
		{"name that ends in a backslash", `{"x":1,"a\\":2}`, `.["a\\"]`, `{"x":1}`},
		{"empty name", `{"":1,"y":3}`, `.[""]`, `{"y":3}`},
		{"name like the text before it", `{"a":"\"a\":","b":1}`, `.b`, `{"a":"\"a\":"}`},
		{"missing member", `{"a":1}`, ".b", `{"a":1}`},
		{"below a missing member", `{"a":1}`, ".b.c[0]", `{"a":1}`},
		{"below null", `{"a":null}`, ".a.b", `{"a":null}`},
		{"first element", `[1, 2]`, ".[0]", `[2]`},
		{"last element", `[1 , 2 ]`, ".[1]", `[1 ]`},
		{"only element", `[1]`, ".[0]", `[]`},
		{"element past the end", `[1]`, ".[1]", `[1]`},
		{"nested", `{"a":{"b":[1,{"c":1,"d":[2]}]},"e":1}`, ".a.b[1].d", `{"a":{"b":[1,{"c":1}]},"e":1}`},
		{"root", `{"a":1}`, ".", `null`},
	}
	for _, tt := range tests {
		for _, ps := range []*event.Paths{nil, paths(t), paths(t, tt.path)} {
			e := value(tt.value)
			if ps != nil {
				if err := e.Check(ps); err != nil {
					t.Fatal(err)
				}
			}
			before := e.Share()
			if err := e.Delete(path(t, tt.path)); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			if got := string(e.Value()); got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
			}
			if string(before.Value()) != tt.value {
				t.Errorf("%s: wrote into the shared bytes: %s", tt.name, before.Value())
			}
		}
	}
}

func TestEditsThroughScalarsAreRefused(t *testing.T) {
	deep := strings.Repeat("[", 9999) + strings.Repeat("]", 9999)
	tests := []struct {
		name, value, path, raw string
		want                   event.Type
	}{
		{"through a string", `{"a":"x"}`, ".a.b", "1", event.Expression},
		{"through a number", `{"a":1}`, ".a.b.c", "1", event.Expression},
		{"through false", `{"a":false}`, ".a[0]", "1", event.Expression},
		{"object by index", `{"a":{}}`, ".a[0]", "1", event.Expression},
		{"array by name", `{"a":[]}`, ".a.b", "1", event.Expression},
		{"scalar root", `1`, ".a", "1", event.Expression},
		{"far beyond the end", `[1]`, ".[10002]", "1", event.Expression},
		{"far beyond the end of a new array", `{}`, ".a[10001]", "1", event.Expression},
		{"raw is not JSON", `{}`, ".a", "x", event.Function},
		{"raw is two texts", `{}`, ".a", "1,2", event.Function},
		{"raw is empty", `{}`, ".a", "", event.Function},
		{"raw is not JSON at the root", `{}`, ".", "{", event.Function},
		{"the result would be nested too deeply", `{}`, ".a.b", deep, event.Function},
	}
	for _, tt := range tests {
		for _, ps := range []*event.Paths{nil, paths(t, tt.path)} {
			e := value(tt.value)
			if ps != nil {
				if err := e.Check(ps); err != nil {
					t.Fatal(err)
				}
			}
			err := e.Set(path(t, tt.path), []byte(tt.raw))
			if err == nil || event.AsReject(err).Type != tt.want {
				t.Errorf("%s: Set: error %v, want type %s", tt.name, err, tt.want)
			}
			if tt.want == event.Expression && !strings.HasPrefix(tt.name, "far") {
				wantType(t, tt.name+": Delete", e.Delete(path(t, tt.path)), event.Expression)
			}
			if got := string(e.Value()); got != tt.value {
				t.Errorf("%s: value became %s", tt.name, got)
			}
		}
	}
	if err := value(`{}`).Set(path(t, ".a"), []byte(deep)); err != nil {
		t.Errorf("depth 10,000 in all: %v", err)
	}
}

func TestPathsStayKnownThroughEdits(t *testing.T) {
	e := value(`{"first":1,"a":{"b":[0,1,2],"c":"x"},"n":null,"last":{"z":[9]}}`)
	ps := []string{".", ".first", ".a", ".a.b", ".a.b[1]", ".a.b[2]", ".a.c", ".a.d", ".n", ".n.x", ".n[0]", ".last", ".last.z[0]"}
	edits := []func(e *event.Event) error{
		func(e *event.Event) error { return e.Set(path(t, ".a.c"), []byte(`"longer than it was"`)) },
		func(e *event.Event) error { return e.Delete(path(t, ".a.b[0]")) },
		func(e *event.Event) error { return e.Set(path(t, ".a.d"), []byte(`{"x":1}`)) },
		func(e *event.Event) error { return e.Set(path(t, ".n.x"), []byte(`[1]`)) },
		func(e *event.Event) error { return e.Set(path(t, ".a.b[4]"), []byte(`4`)) },
		func(e *event.Event) error { return e.Delete(path(t, ".first")) },
		func(e *event.Event) error { return e.Delete(path(t, ".n")) },
		func(e *event.Event) error { return e.Set(path(t, ".n[0]"), []byte(`{}`)) },
		func(e *event.Event) error { return e.Set(path(t, ".first.x.y"), []byte(`true`)) },
		func(e *event.Event) error { return e.Set(path(t, ".a"), []byte(`"scalar"`)) },
		func(e *event.Event) error { return e.Delete(path(t, ".last.z[0]")) },
		func(e *event.Event) error { return e.Set(path(t, "."), []byte(`{"a":{"c":3}}`)) },
		func(e *event.Event) error { e.SetValue([]byte(`{"first":5}`)); return nil },
	}
	if err := e.Check(paths(t, ps...)); err != nil {
		t.Fatal(err)
	}
	for i, edit := range edits {
		kept := e.Share()
		was := string(e.Value())
		if err := edit(e); err != nil {
			t.Fatalf("edit %d: %v", i, err)
		}
		sameAsFresh(t, e, ps)
		sameAsFresh(t, kept, ps)
		sameAsFresh(t, e.Clone(), ps)
		if string(kept.Value()) != was {
			t.Errorf("edit %d changed the bytes of a shared event", i)
		}
	}
}

// sameAsFresh compares what e knows of its value with what a new event finds.
func sameAsFresh(t tb, e *event.Event, ps []string) {
	t.Helper()
	fresh := event.New(event.Position{}, nil, e.Value(), nil, time.Time{})
	for range 2 { // the second time from what the first noted
		for _, p := range ps {
			got, err := e.Get(path(t, p))
			want, wantErr := fresh.Get(path(t, p))
			if string(got) != string(want) || (got == nil) != (want == nil) || (err == nil) != (wantErr == nil) {
				t.Fatalf("Get(%s) of %s = %q, %v; want %q, %v", p, e.Value(), got, err, want, wantErr)
			}
		}
	}
}
