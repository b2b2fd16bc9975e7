package event_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

// tb is what tests, fuzz targets and properties have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

func value(v string) *event.Event {
	return event.New(event.Position{}, nil, []byte(v), nil, time.Time{})
}

func paths(t tb, texts ...string) *event.Paths {
	t.Helper()
	var ps []event.Path
	for _, text := range texts {
		ps = append(ps, path(t, text))
	}
	return event.NewPaths(ps...)
}

// wantType fails the test unless err is a Reject of type want, or nil where want is "".
func wantType(t tb, what string, err error, want event.Type) {
	t.Helper()
	var r *event.RejectError
	switch {
	case want == "" && err == nil:
	case want != "" && errors.As(err, &r) && r.Type == want:
	default:
		t.Errorf("%s: error %v, want type %q", what, err, want)
	}
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func objects(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }

var strictness = []struct {
	name, value string
	bad         bool
}{
	{name: "a scalar is a text", value: "1"},
	{name: "white space around a value is allowed", value: " \t\r\n{ } \n"},
	{name: "numbers beyond any machine type pass", value: "[1e400,-0,1.0,123456789012345678901234567890,1E+2]"},
	{name: "every escape of the standard passes", value: `"\"\\\/\b\f\n\r\t\u00Af"`},
	{name: "half of a surrogate pair passes", value: `["\ud800","\udc00x","\ud800\ud800"]`},
	{name: "a duplicate elsewhere passes", value: `{"x":1,"x":2,"a":{"y":1,"y":2}}`},
	{name: "depth 10,000 passes", value: nested(10000)},
	{name: "depth 10,000 of objects passes", value: objects(10000)},
	{name: "DEL passes", value: "\"\x7f\""},
	{name: "nothing", value: "", bad: true},
	{name: "white space only", value: " \n", bad: true},
	{name: "a byte order mark", value: "\ufeff{}", bad: true},
	{name: "depth 10,001", value: nested(10001), bad: true},
	{name: "depth 10,001 of objects", value: objects(10001), bad: true},
	{name: "a second value", value: "{} {}", bad: true},
	{name: "trailing bytes", value: "1x", bad: true},
	{name: "a trailing NUL", value: "1\x00", bad: true},
	{name: "leading zero", value: "01", bad: true},
	{name: "lone minus", value: "-", bad: true},
	{name: "plus", value: "+1", bad: true},
	{name: "no digit after the point", value: "1.", bad: true},
	{name: "no digit before the point", value: ".1", bad: true},
	{name: "no digit in the exponent", value: "1e", bad: true},
	{name: "no digit after the exponent's sign", value: "1e+", bad: true},
	{name: "NaN", value: "NaN", bad: true},
	{name: "wrong case", value: "True", bad: true},
	{name: "cut literal", value: "nul", bad: true},
	{name: "long literal", value: "nulll", bad: true},
	{name: "comma at the end of an array", value: "[1,]", bad: true},
	{name: "comma at the end of an object", value: `{"a":1,}`, bad: true},
	{name: "comma at the start", value: "[,1]", bad: true},
	{name: "missing comma", value: "[1 2]", bad: true},
	{name: "missing colon", value: `{"a" 1}`, bad: true},
	{name: "missing value", value: `{"a":}`, bad: true},
	{name: "name without quotes", value: `{a:1}`, bad: true},
	{name: "single quotes", value: `{'a':1}`, bad: true},
	{name: "open object", value: `{"a":1`, bad: true},
	{name: "open array", value: "[1", bad: true},
	{name: "wrong closer", value: "[1}", bad: true},
	{name: "open string", value: `"abc`, bad: true},
	{name: "string that ends in a backslash", value: `"abc\`, bad: true},
	{name: "unknown escape", value: `"\x41"`, bad: true},
	{name: "short unicode escape", value: `"\u12"`, bad: true},
	{name: "bad hexadecimal digit", value: `"\u12g4"`, bad: true},
	{name: "upper-case U", value: `"\U0041"`, bad: true},
	{name: "line feed in a string", value: "\"a\nb\"", bad: true},
	{name: "NUL in a string", value: "\"0123456789\x00\"", bad: true},
	{name: "comment", value: "/* */1", bad: true},
	{name: "form feed as white space", value: "\f1", bad: true},
	{name: "no-break space as white space", value: "\u00a01", bad: true},
	{name: "stray continuation byte", value: "\"\x80\"", bad: true},
	{name: "overlong slash", value: "\"\xc0\xaf\"", bad: true},
	{name: "overlong in three bytes", value: "\"\xe0\x80\xaf\"", bad: true},
	{name: "encoded surrogate half", value: "\"\xed\xa0\x80\"", bad: true},
	{name: "above U+10FFFF", value: "\"\xf4\x90\x80\x80\"", bad: true},
	{name: "cut character", value: "\"\xe2\x82\"", bad: true},
	{name: "invalid UTF-8 in a name", value: "{\"\xff\":1}", bad: true},
	{name: "Latin-1", value: "\"caf\xe9\"", bad: true},
}

func TestCheckRefusesWhatIsNotStrictJSON(t *testing.T) {
	for _, tt := range strictness {
		for _, at := range []string{"%s", `{"x":{"y":[%s]}}`} { // alone, and where no path leads
			text := fmt.Sprintf(at, tt.value)
			if at != "%s" && (strings.HasPrefix(tt.name, "depth") || strings.HasPrefix(tt.name, "nothing") ||
				strings.HasPrefix(tt.name, "white space only")) {
				continue
			}
			want := event.Type("")
			if tt.bad {
				want = event.InvalidEvent
			}
			for _, ps := range []*event.Paths{nil, paths(t), paths(t, "."), paths(t, ".a", ".b[1].c")} {
				wantType(t, fmt.Sprintf("%s: Check(%d paths) of %.60q", tt.name, lenOf(ps), text), value(text).Check(ps), want)
			}
			if err := event.Valid([]byte(text)); (err != nil) != tt.bad {
				t.Errorf("%s: Valid(%.60q) = %v", tt.name, text, err)
			}
		}
	}
}

func lenOf(ps *event.Paths) int {
	if ps == nil {
		return 0
	}
	return ps.Len()
}

func TestADuplicateIsCalledByItsName(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"plain", `{"a":1,"a":2}`, `the name "a" stands twice in one object, again at byte 7, and is read or set`},
		{"as it is spelled", `{"a":1, "\u0061":2}`, `the name "\u0061" stands twice in one object, again at byte 8, and is read or set`},
	} {
		ps := paths(t, ".a")
		_, got := value(tt.value).Get(path(t, ".a"))
		for _, err := range []error{value(tt.value).Check(ps), got} {
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) || strings.Contains(err.Error(), "not JSON") {
				t.Errorf("%s: got %v, want …%s", tt.name, err, tt.want)
			}
		}
	}
}

func TestOnlyDuplicatesAlongAPathAreRefused(t *testing.T) {
	tests := []struct {
		name, value string
		paths       []string
		bad         bool
	}{
		{"the member itself", `{"a":1,"a":1}`, []string{".a"}, true},
		{"a parent", `{"a":1,"a":{"b":2}}`, []string{".a.b"}, true},
		{"within a parent", `{"a":{"b":1,"b":2}}`, []string{".a.b"}, true},
		{"spelled with an escape", `{"a":1,"\u0061":2}`, []string{".a"}, true},
		{"spelled with an escape first", `{"\u0061":2,"a":1}`, []string{".a"}, true},
		{"a pair of escapes", `{"😀":1,"\ud83d\uDE00":2}`, []string{`.["😀"]`}, true},
		{"in an element", `{"a":[0,{"b":1,"b":2}]}`, []string{".a[1].b"}, true},
		{"where one of the two is missing below", `{"a":{},"a":{}}`, []string{".a.b"}, true},
		{"below the path", `{"a":{"b":1,"b":2}}`, []string{".a"}, false},
		{"beside the path", `{"a":1,"x":1,"x":2}`, []string{".a"}, false},
		{"in another element", `[{"b":1,"b":2},{"b":1}]`, []string{".[1].b"}, false},
		{"the same name at two levels", `{"a":{"a":1}}`, []string{".a.a"}, false},
		{"the same name in two elements", `[{"b":1},{"b":2}]`, []string{".[0].b", ".[1].b"}, false},
		{"names that begin alike", `{"a":1,"ab":2,"a\u0062c":3}`, []string{".a", ".ab"}, false},
		{"below the root only", `{"x":1,"x":2}`, []string{"."}, false},
	}
	for _, tt := range tests {
		want := event.Type("")
		if tt.bad {
			want = event.InvalidEvent
		}
		wantType(t, tt.name+": Check", value(tt.value).Check(paths(t, tt.paths...)), want)
		bad := event.Type("")
		for _, p := range tt.paths {
			if _, err := value(tt.value).Get(path(t, p)); err != nil {
				bad = event.AsReject(err).Type
			}
		}
		if bad != want {
			t.Errorf("%s: Get without Check: type %q, want %q", tt.name, bad, want)
		}
		if tt.bad {
			for _, p := range tt.paths {
				wantType(t, tt.name+": Set", value(tt.value).Set(path(t, p), []byte("1")), want)
				wantType(t, tt.name+": Delete", value(tt.value).Delete(path(t, p)), want)
			}
		}
	}
}

const jqDoc = ` {"a": {"b": [10, {"c": "x"}, null], "n": null}, "s": "text", "t": true, "f": false, "i": 9007199254740993,
		"\u0065": 1.0, "x y": 1e400, "": {"": 0}, "o": {}} `

var jqReads = []struct {
	path, want, err string
}{
	{path: ".", want: strings.TrimSpace(jqDoc)},
	{path: ".a.b", want: `[10, {"c": "x"}, null]`},
	{path: ".a.b[0]", want: "10"},
	{path: ".a.b[1].c", want: `"x"`},
	{path: ".a.b[2]", want: "null"},
	{path: ".a.b[3]"},
	{path: ".a.b[2].x.y[0]"},
	{path: ".a.n", want: "null"},
	{path: ".a.n.x"},
	{path: ".a.n[0]"},
	{path: ".nope"},
	{path: ".nope.x[0].y"},
	{path: ".o.x"},
	{path: ".e", want: "1.0"},
	{path: ".i", want: "9007199254740993"},
	{path: `.["x y"]`, want: "1e400"},
	{path: `.[""][""]`, want: "0"},
	{path: ".s.x", err: `cannot index string with "x"`},
	{path: ".s[0]", err: `cannot index string with number`},
	{path: ".t.x.y", err: `cannot index boolean with "x"`},
	{path: ".f[1]", err: `cannot index boolean with number`},
	{path: ".i.x", err: `cannot index number with "x"`},
	{path: ".a[0]", err: `cannot index object with number`},
	{path: ".[0]", err: `cannot index object with number`},
	{path: ".a.b.c", err: `cannot index array with "c"`},
	{path: ".a.b[1].c.d", err: `cannot index string with "d"`},
}

func TestGetFollowsJQ(t *testing.T) {
	var all []string
	for _, tt := range jqReads {
		all = append(all, tt.path)
	}
	checked := value(jqDoc)
	if err := checked.Check(paths(t, all...)); err != nil {
		t.Fatal(err)
	}
	few := value(jqDoc)
	if err := few.Check(paths(t, ".a.b", ".s.x")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range jqReads {
		for _, how := range []struct {
			name string
			e    *event.Event
		}{{"checked", checked}, {"checked for others", few}, {"not checked", value(jqDoc)}} {
			got, err := how.e.Get(path(t, tt.path))
			if string(got) != tt.want || (got == nil) != (tt.want == "") {
				t.Errorf("%s: Get(%s) = %q, want %q", how.name, tt.path, got, tt.want)
			}
			if tt.err == "" {
				wantType(t, "Get "+tt.path, err, "")
				continue
			}
			wantType(t, "Get "+tt.path, err, event.Expression)
			if err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: Get(%s): error %q, want %q in it", how.name, tt.path, err, tt.err)
			}
		}
	}
}

func TestPathsAreFoundWhateverTheirOrderAndLength(t *testing.T) {
	long, longer := strings.Repeat("n", 63), strings.Repeat("n", 100)
	doc := `{"l":[0,1,2,3,4,5],"` + long + `":"63","` + longer + `":"100","\ud800":"half"}`
	for _, ps := range [][]string{
		{".l[4]", ".l[1]", ".l[5]", ".l[0]", "." + longer, "." + long, `.["\ufffd"]`},
		{".l[0]", ".l[1]", ".l[4]", ".l[5]", "." + long, `.["\ufffd"]`, "." + longer},
		{"." + longer},
	} {
		e := value(doc)
		if err := e.Check(paths(t, ps...)); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{
			".l[0]": "0", ".l[1]": "1", ".l[4]": "4", ".l[5]": "5",
			"." + long: `"63"`, "." + longer: `"100"`, `.["\ufffd"]`: `"half"`,
		} {
			if got, err := e.Get(path(t, text)); string(got) != want || err != nil {
				t.Errorf("Get(%s) = %q, %v; want %s", text, got, err, want)
			}
		}
	}
}

func TestRefusedCheckLeavesNothingKnown(t *testing.T) {
	e := value(`{"x":1,"a":2,"x":3}`)
	if err := e.Check(paths(t, ".a")); err != nil {
		t.Fatal(err)
	}
	wantType(t, "Check for a repeated name", e.Check(paths(t, ".x", ".y", ".a")), event.InvalidEvent)
	if got, err := e.Get(path(t, ".a")); string(got) != "2" || err != nil {
		t.Errorf("Get(.a) = %q, %v; want 2", got, err)
	}
}

func TestInvalidValueIsRefusedByEveryMethod(t *testing.T) {
	for _, e := range []*event.Event{value(`{"a":1}}`), value(""), event.New(event.Position{}, nil, nil, nil, time.Time{})} {
		p := path(t, ".a")
		before := string(e.Value())
		_, err := e.Get(p)
		wantType(t, "Get", err, event.InvalidEvent)
		wantType(t, "Check", e.Check(paths(t, ".a")), event.InvalidEvent)
		wantType(t, "Check of nothing", e.Check(nil), event.InvalidEvent)
		_, err = e.Get(p)
		wantType(t, "Get after Check", err, event.InvalidEvent)
		wantType(t, "Set", e.Set(p, []byte("2")), event.InvalidEvent)
		wantType(t, "Delete", e.Delete(p), event.InvalidEvent)
		if string(e.Value()) != before {
			t.Errorf("value became %q, was %q", e.Value(), before)
		}
	}
}

func TestCheckCostsNoAllocation(t *testing.T) {
	ps := paths(t, ".wiki_id", ".page.page_id", ".meta.domain")
	raw := sample(t, "schema-1.3.0-example.json")
	e := event.New(event.Position{}, nil, raw, nil, time.Time{})
	p := path(t, ".page.page_id")
	if n := testing.AllocsPerRun(100, func() {
		e.SetValue(raw)
		if e.Check(ps) != nil {
			t.Fatal("real event refused")
		}
		if v, err := e.Get(p); v == nil || err != nil {
			t.Fatal(v, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	unchecked := path(t, ".page.page_title")
	if n := testing.AllocsPerRun(100, func() {
		e.SetValue(raw)
		if v, err := e.Get(unchecked); v == nil || err != nil {
			t.Fatal(v, err)
		}
	}); n != 0 {
		t.Errorf("Get without Check: %v allocations, want 0", n)
	}
}

func TestLargeSetsOfPathsAreFound(t *testing.T) {
	for _, n := range []int{1, 8, 9, 63, 64, 65, 200} {
		var texts []string
		doc := "{"
		for i := range n {
			texts = append(texts, fmt.Sprintf(".k%d.x", i))
			doc += fmt.Sprintf(`"k%d":{"x":%d},`, i, i)
		}
		e := value(doc + `"end":0}`)
		ps := paths(t, texts...)
		if err := e.Check(ps); err != nil {
			t.Fatal(err)
		}
		other := e.Share()
		if err := other.Set(path(t, ".k0.x"), []byte(`"much longer than before"`)); err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			want := fmt.Sprint(i)
			if got, err := e.Get(path(t, text)); string(got) != want || err != nil {
				t.Errorf("%d paths: Get(%s) = %q, %v", n, text, got, err)
			}
			if i == 0 {
				want = `"much longer than before"`
			}
			if got, err := other.Get(path(t, text)); string(got) != want || err != nil {
				t.Errorf("%d paths: Get(%s) = %q, %v after Set on the shared event", n, text, got, err)
			}
		}
		wantType(t, fmt.Sprintf("%d paths: a duplicate of the last", n),
			value(strings.TrimSuffix(doc, ",")+fmt.Sprintf(`,"k%d":1}`, n-1)).Check(ps), event.InvalidEvent)
	}
}
