package event_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/a0c75104/enricher/event"
)

var (
	spaces = rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "})
	words  = rapid.SampledFrom([]string{
		`a`, `b`, `c`, `\u0061`, `x y`, `é`, `\ud83d\ude00`, `\\`, `\"`, ``, `longer than eight bytes`, `tab\t`, `\/`,
	})
	scalars = rapid.SampledFrom([]string{
		"null", "null", "true", "false", "0", "-1.0", "1e400", "9007199254740993", `""`, `"text with \"quotes\", {braces} and [brackets]"`,
	})
	stepNames = rapid.SampledFrom([]string{"a", "b", "c", "x y", "é", "😀", `\`, `"`, ""})
)

// drawValue writes a random value with white space, escapes and, below the first names, repetitions.
func drawValue(t *rapid.T, b *strings.Builder, depth int) {
	space := func() { b.WriteString(spaces.Draw(t, "space")) }
	space()
	defer space()
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 || kind < 2 {
		b.WriteString(scalars.Draw(t, "scalar"))
		return
	}
	n := rapid.IntRange(0, 4).Draw(t, "entries")
	if kind == 2 {
		b.WriteByte('[')
		space()
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			drawValue(t, b, depth-1)
		}
		b.WriteByte(']')
		return
	}
	b.WriteByte('{')
	space()
	met := map[string]bool{}
	for range n {
		word := words.Draw(t, "word")
		var name string
		_ = json.Unmarshal([]byte(`"`+word+`"`), &name)
		if met[name] {
			continue
		}
		if len(met) > 0 {
			b.WriteByte(',')
		}
		met[name] = true
		space()
		b.WriteString(`"` + word + `"`)
		space()
		b.WriteByte(':')
		drawValue(t, b, depth-1)
	}
	b.WriteByte('}')
}

func drawText(t *rapid.T, depth int) string {
	var b strings.Builder
	drawValue(t, &b, depth)
	return b.String()
}

func drawRoute(t *rapid.T) []any {
	n := rapid.IntRange(0, 4).Draw(t, "steps")
	var route []any
	for range n {
		if rapid.IntRange(0, 2).Draw(t, "by") == 0 {
			route = append(route, rapid.IntRange(0, 4).Draw(t, "index"))
		} else {
			route = append(route, stepNames.Draw(t, "name"))
		}
	}
	return route
}

// TestEveryPathReadsAsDecoded edits an event and its copies at random and compares all that is read
// from them with the same done to decoded values.
func TestEveryPathReadsAsDecoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			e     *event.Event
			model any
		}
		text := drawText(t, 4)
		versions := []version{{value(text), decode(t, []byte(text))}}
		var routes [][]any
		var ps []event.Path
		for range rapid.IntRange(0, 12).Draw(t, "paths") {
			routes = append(routes, drawRoute(t))
			ps = append(ps, routePath(t, routes[len(routes)-1]))
		}
		set1, set2 := event.NewPaths(ps...), event.NewPaths(ps[len(ps)/2:]...)
		for range rapid.IntRange(1, 12).Draw(t, "acts") {
			i := rapid.IntRange(0, len(versions)-1).Draw(t, "version")
			v := &versions[i]
			act := rapid.SampledFrom([]string{"check", "check half", "set", "set", "delete", "share", "clone"}).Draw(t, "act")
			route := drawRoute(t)
			if len(routes) > 0 && rapid.Bool().Draw(t, "known") {
				route = rapid.SampledFrom(routes).Draw(t, "route")
			}
			switch act {
			case "check":
				wantType(t, "Check", v.e.Check(set1), "")
			case "check half":
				wantType(t, "Check", v.e.Check(set2), "")
			case "share":
				versions = append(versions, version{v.e.Share(), v.model})
			case "clone":
				versions = append(versions, version{v.e.Clone(), v.model})
			default:
				raw := drawText(t, 2)
				if edited, ok := edit(t, v.e, act, route, raw, v.model); ok {
					v.model = edited
				}
			}
			for _, v := range versions {
				if !equal(decode(t, v.e.Value()), v.model) {
					t.Fatalf("after %s at %v: value %s, want %v", act, route, v.e.Value(), v.model)
				}
				for _, r := range routes {
					wantGet(t, v.e, v.model, r)
				}
				wantGet(t, v.e, v.model, route)
			}
		}
	})
}

func edit(t tb, e *event.Event, act string, route []any, raw string, model any) (any, bool) {
	t.Helper()
	var want any
	var wantErr, err error
	if act == "set" {
		want, wantErr = set(model, route, decode(t, []byte(raw)))
		err = e.Set(routePath(t, route), []byte(raw))
	} else {
		want, wantErr = del(model, route)
		err = e.Delete(routePath(t, route))
	}
	if wantErr != nil {
		wantType(t, fmt.Sprintf("%s at %v", act, route), err, event.Expression)
		return nil, false
	}
	wantType(t, fmt.Sprintf("%s at %v", act, route), err, "")
	return want, true
}
