package jq_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

// FuzzTemplate promises that no text makes a template panic, that no value changes a host that is
// written out, and that values come back from a URL as they went in.
func FuzzTemplate(f *testing.F) {
	for _, src := range []string{
		`https://x.org/\(.v)?a=\(.v)#\(.v)`, `https://\(.v).x.org:\(.v)/`, `"\(.v)"`, `@uri "https://x.org/\(.v)"`, `\(.v | "\(")")")`, `\\(`,
		`https://[::1]/%2e\(.v)`, `https://x.org/%\(.v)`, `http://x.org\(.v)`, `http://x.org:\(.v)`, `http:/\(.v)/`, `\(`, `\(.v # `, `x://a/[\(.v)]`,
		`http://x.org/?\(.v)=\(.v)&`, `http://x.org\\(.v)`,
	} {
		for _, v := range []string{"a b", "..", "a/../b", "@evil.org", ":80@evil.org/", "\\evil.org", "%2e%2e", "x?y#z", "é", "\u202e", "80"} {
			f.Add(src, v)
		}
	}
	f.Fuzz(func(t *testing.T, src, v string) {
		if !utf8.ValidString(v) || strings.Contains(src, "range") || strings.Contains(src, "repeat") {
			return
		}
		raw, err := json.Marshal(map[string]string{"v": v})
		if err != nil {
			t.Fatal(err)
		}
		ev := newEvent(string(raw))
		checkTemplate(t, src, ev)
		if v != "" {
			checkPlaces(t, ev, v)
		}
	})
}

func checkTemplate(t *testing.T, src string, ev *event.Event) {
	tpl, err := jq.CompileTemplate(src)
	if err != nil {
		return
	}
	if _, err := tpl.Text(context.Background(), ev); strings.HasPrefix(string(typeOf(err)), "no reject") {
		t.Errorf("%q: text gave %v, which is no error event", src, err)
	}
	u, err := tpl.URL(context.Background(), ev)
	if err != nil {
		return
	}
	if err := tpl.CheckURL(); err != nil {
		t.Errorf("%q: gave the URL %s in spite of %v", src, u, err)
	}
	again, err := url.Parse(u.String())
	if err != nil {
		t.Errorf("%q: gave %q, which is no URL: %v", src, u, err)
		return
	}
	if host, fixed := tpl.HostIsFixed(); fixed && (u.Host != host || again.Host != host) || again.User != nil {
		t.Errorf("%q on %s: the host %q became %q", src, ev.Value(), host, again.Host)
	}
}

func checkPlaces(t *testing.T, ev *event.Event, v string) {
	tpl, err := jq.CompileTemplate(`https://x.org/a b/\(.v)/c/p-\(.v)?q=\(.v)&r=1&\(.v)=2#\(.v)`)
	if err != nil {
		t.Fatal(err)
	}
	u, err := tpl.URL(context.Background(), ev)
	if err != nil {
		if v != "." && v != ".." {
			t.Errorf("%q was refused: %v", v, err)
		}
		return
	}
	again, err := url.Parse(u.String())
	if err != nil {
		t.Fatal(err)
	}
	var segments []string
	for s := range strings.SplitSeq(again.EscapedPath(), "/") {
		plain, err := url.PathUnescape(s)
		if err != nil {
			t.Fatal(err)
		}
		segments = append(segments, plain)
	}
	if got, want := strings.Join(segments, "\x00"), strings.Join([]string{"", "a b", v, "c", "p-" + v}, "\x00"); got != want {
		t.Errorf("segments: got %q, want %q from %s", got, want, u)
	}
	q, err := url.ParseQuery(again.RawQuery)
	if err != nil {
		t.Fatal(err)
	}
	if v != "q" && v != "r" && (len(q) != 3 || q.Get("q") != v || q.Get("r") != "1" || q.Get(v) != "2") {
		t.Errorf("query: got %v from %s", q, u)
	}
	if again.Host != "x.org" || again.Fragment != v {
		t.Errorf("host %q, fragment %q from %s", again.Host, again.Fragment, u)
	}
}

// FuzzFunc promises that no program and no value makes a Func panic, and that what it returns is JSON.
func FuzzFunc(f *testing.F) {
	for _, src := range []string{`.a = 1`, `del(.a[0], .a[1])`, `.a |= empty`, `.a.b += .c`, `.[] | {a}`, `.a = (1, 2) | .b = .a`, `. = .a`} {
		for _, v := range []string{`{"a":[1,2]}`, `[]`, `null`, `{"a":{"b":1}, "c": 1.0}`, `{"a":1,"a":2}`, `{`} {
			f.Add(src, v)
		}
	}
	f.Fuzz(func(t *testing.T, src, value string) {
		if strings.Contains(src, "range") || strings.Contains(src, "repeat") {
			return
		}
		fn, err := jq.NewFunc(src)
		if err != nil {
			return
		}
		out, err := fn.Process(context.Background(), newEvent(value))
		if strings.HasPrefix(string(typeOf(err)), "no reject") {
			t.Errorf("%q on %q: %v is no error event", src, value, err)
		}
		for _, ev := range out {
			if json.Valid([]byte(value)) && !json.Valid(ev.Value()) {
				t.Errorf("%q on %q: got %q, which is no JSON", src, value, ev.Value())
			}
		}
	})
}
