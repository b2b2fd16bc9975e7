package jq_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

func template(t testing.TB, src string) *jq.Template {
	t.Helper()
	tpl, err := jq.CompileTemplate(src)
	if err != nil {
		t.Fatalf("compiling %q: %v", src, err)
	}
	return tpl
}

const page = `{"id": 9007199254740993, "one": 1.0, "title": "AC/DC & \"Ü\"", "empty": "", "none": null, "list": [1, {"a" : 2}],` +
	` "host": "de.wikipedia.org", "port": 8080, "up": "..", "t": true, "slash": "a/../b", "evil": "evil.org/x?", "at": "u:p@evil.org"}`

func TestTemplateText(t *testing.T) {
	for _, test := range []struct{ name, src, want string }{
		{"no expression", `plain text`, `plain text`},
		{"nothing at all", ``, ``},
		{"values among text", `id=\(.id), one=\(.one), \(.title)!`, `id=9007199254740993, one=1.0, AC/DC & "Ü"!`},
		{"a value alone", `\(.title)`, `AC/DC & "Ü"`},
		{"lists and objects are compact JSON", `\(.list) \({b: .one, a: .t})`, `[1,{"a":2}] {"b":1.0,"a":true}`},
		{"a default", `\(.none // "x")-\(.nope // 0)`, `x-0`},
		{"parentheses and strings within an expression", `<\((.one + (1)) | tostring + ")" + "\("(")")>`, `<2)(>`},
		{"a backslash is text", `a\b\\c`, `a\b\\c`},
		{"an escaped interpolation is text", `\\(.id)`, `\(.id)`},
		{"variables", `\($topic)/\($partition)`, `pages/3`},
		{"JSON around values", `{"title": "\(.one)", "p": (1)}`, `{"title": "1.0", "p": (1)}`},
		{"a jq string", `"id=\(.id)\n\"\(.one)\""`, "id=9007199254740993\n\"1.0\""},
		{"a jq string without values", ` "a\tb" `, "a\tb"},
		{"a formatted jq string", `@uri "t=\(.title)&\(.list)"`, `t=AC%2FDC%20%26%20%22%C3%9C%22&%5B1%2C%7B%22a%22%3A2%7D%5D`},
		{"a jq string as base64", `@base64 "Basic \(.host)"`, `Basic ZGUud2lraXBlZGlhLm9yZw==`},
		{"quotes at both ends that are no jq string", `"\(.one)" and "\(.t)"`, `"1.0" and "true"`},
		{"an address", `@user \(.one)`, `@user 1.0`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := template(t, test.src).Text(context.Background(), newEvent(page))
			if err != nil || got != test.want {
				t.Errorf("%s: got %q, %v; want %q", test.src, got, err, test.want)
			}
		})
	}
}

func TestTemplateErrors(t *testing.T) {
	for _, test := range []struct {
		name, src, value string
		want             event.Type
		message          string
	}{
		{"a missing field", `a \(.nope.x)`, page, event.MissingField, `\(.nope.x)`},
		{"a null field", `\(.none)`, page, event.MissingField, `\(.none)`},
		{"an empty field", `"x\(.empty)"`, page, event.MissingField, `\(.empty)`},
		{"an empty field under a format", `@uri "x\(.empty)"`, page, event.MissingField, `\(.empty)`},
		{"no result", `\(empty)`, page, event.Expression, "no result"},
		{"two results", `\(.id, .one)`, page, event.Expression, "more than one"},
		{"a failing expression", `\(.title + 1)`, page, event.Expression, "cannot add"},
		{"no JSON", `\(.id)`, `{`, event.InvalidEvent, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := template(t, test.src).Text(context.Background(), newEvent(test.value))
			if typeOf(err) != test.want || !strings.Contains(err.Error(), test.message) {
				t.Errorf("%s: got %q, %v; want an error of type %q with %q", test.src, got, err, test.want, test.message)
			}
		})
	}
}

func TestTemplateRefuses(t *testing.T) {
	for _, test := range []struct {
		src     string
		offset  int
		message string
	}{
		{`a \(.b`, 2, "not closed"},
		{`a \(.b + ")")`, 0, ""},
		{`a \(.b + "\(")`, 2, "not closed"},
		{`a \()`, 4, "empty"},
		{`abc \(.a | lenght)`, 11, "lenght"},
		{`abc \(.a }) \(.b)`, 9, "unexpected token"},
		{`abc \(env.HOME)`, 6, "environment"},
		{`"abc \(.a | lenght)"`, -1, "lenght"},
		{`"abc \(env.HOME)"`, 7, "environment"},
		{`\(.a # comment)`, 0, "not closed"},
	} {
		_, err := jq.CompileTemplate(test.src)
		if test.message == "" {
			if err != nil {
				t.Errorf("%s: got %v, want none", test.src, err)
			}
			continue
		}
		s, ok := errors.AsType[*jq.SyntaxError](err)
		if !ok || s.Offset != test.offset || !strings.Contains(s.Message, test.message) {
			t.Errorf("%s: got %#v, want offset %d and %q", test.src, err, test.offset, test.message)
		}
	}
}

func TestTemplateSaysWhatItReads(t *testing.T) {
	tpl := template(t, `\(.a.b) \($key) \(.c == 1) \(.a.b)`)
	var got []string
	for _, p := range tpl.Paths() {
		got = append(got, p.String())
	}
	if strings.Join(got, " ") != ".a.b .c" || !tpl.ReadsValue() || tpl.Literal() {
		t.Errorf("got %v, reads %v, literal %v", got, tpl.ReadsValue(), tpl.Literal())
	}
	if tpl := template(t, `t-\($topic)`); tpl.ReadsValue() || tpl.Literal() {
		t.Errorf("a template of variables: reads %v, literal %v", tpl.ReadsValue(), tpl.Literal())
	}
	if tpl := template(t, `t`); tpl.ReadsValue() || !tpl.Literal() {
		t.Errorf("a template of text: reads %v, literal %v", tpl.ReadsValue(), tpl.Literal())
	}
}

func TestURL(t *testing.T) {
	for _, test := range []struct{ name, src, want string }{
		{"a segment is escaped", `https://x.org/wiki/\(.title)`, `https://x.org/wiki/AC%2FDC%20&%20%22%C3%9C%22`},
		{"a segment beside text that needs escapes", `https://x.org/a b/é/\(.title)`, `https://x.org/a%20b/%C3%A9/AC%2FDC%20&%20%22%C3%9C%22`},
		{"dots within a segment of more", `https://x.org/\(.up)x`, `https://x.org/..x`},
		{"slashes do not make segments", `https://x.org/\(.slash)`, `https://x.org/a%2F..%2Fb`},
		{"the query is escaped", `https://x.org/?t=\(.title)&r=\(.id)&o=\(.one)`, `https://x.org/?t=AC%2FDC+%26+%22%C3%9C%22&r=9007199254740993&o=1.0`},
		{"text of the query stays as written", `https://x.org/?p=ids%7Ccontent|x&q=\(.id)`, `https://x.org/?p=ids%7Ccontent%7Cx&q=9007199254740993`},
		{"a query without a path", `https://x.org?q=\(.slash)`, `https://x.org?q=a%2F..%2Fb`},
		{"a fragment", `https://x.org/#\(.title)`, `https://x.org/#AC%2FDC%20&%20%22%C3%9C%22`},
		{"a host", `https://\(.host)/w`, `https://de.wikipedia.org/w`},
		{"a part of a host and a port", `http://m.\(.host):\(.port)/`, `http://m.de.wikipedia.org:8080/`},
		{"a host with a port", `http://\(.host + ":1")/`, `http://de.wikipedia.org:1/`},
		{"an address in brackets", `http://[::1]:8080/\(.id)`, `http://[::1]:8080/9007199254740993`},
		{"a formatted jq string escapes once", `@uri "https://x.org/\(.title)"`, `https://x.org/AC%2FDC%20&%20%22%C3%9C%22`},
		{"a jq string", `"https://x.org/\(.slash)"`, `https://x.org/a%2F..%2Fb`},
		{"no value", `https://x.org/w/api.php?a=b`, `https://x.org/w/api.php?a=b`},
	} {
		t.Run(test.name, func(t *testing.T) {
			tpl := template(t, test.src)
			if err := tpl.CheckURL(); err != nil {
				t.Fatalf("%s: %v", test.src, err)
			}
			got, err := tpl.URL(context.Background(), newEvent(page))
			if err != nil || got.String() != test.want {
				t.Errorf("%s: got %v, %v; want %s", test.src, got, err, test.want)
			}
		})
	}
}

func TestURLRefusesValues(t *testing.T) {
	for _, test := range []struct {
		name, src string
		want      event.Type
	}{
		{"a path in the host", `https://\(.evil).x.org/`, event.Rejected},
		{"a user in the host", `https://\(.at)/`, event.Rejected},
		{"a character that no host name has", `https://\("a!b").x.org/`, event.Rejected},
		{"a letter that no host name has", `https://\("é").x.org/`, event.Rejected},
		{"a title as host", `https://\(.title)/`, event.Rejected},
		{"a host that begins with a dot", `https://\(.up)x.org/`, event.Rejected},
		{"a port within a name", `https://\(.host + ":80").x.org/`, event.Rejected},
		{"a port that is none", `https://x.org:\(.id)/`, event.Rejected},
		{"a name as port", `https://x.org:\(.host)/`, event.Rejected},
		{"the parent segment", `https://x.org/a/\(.up)/b`, event.Rejected},
		{"the parent segment at the end", `https://x.org/a/\(.up)`, event.Rejected},
		{"the parent segment with a query", `https://x.org/a/\(.up)?q`, event.Rejected},
		{"the parent segment in pieces", `https://x.org/a/.\(.up[:1])/b`, event.Rejected},
		{"the parent segment with an escape", `https://x.org/a/%2e\(.up[:1])/b`, event.Rejected},
		{"a missing value", `https://x.org/\(.nope)`, event.MissingField},
		{"an empty value", `https://x.org/?a=\(.empty)`, event.MissingField},
		{"an empty value under a format", `@uri "https://x.org/?a=\(.empty)"`, event.MissingField},
	} {
		t.Run(test.name, func(t *testing.T) {
			tpl := template(t, test.src)
			if err := tpl.CheckURL(); err != nil {
				t.Fatalf("%s: %v", test.src, err)
			}
			if got, err := tpl.URL(context.Background(), newEvent(page)); typeOf(err) != test.want {
				t.Errorf("%s: got %v, %v; want an error of type %q", test.src, got, err, test.want)
			}
		})
	}
}

func TestCheckURL(t *testing.T) {
	for _, test := range []struct {
		name, src string
		offset    int
		message   string
	}{
		{"a value as scheme", `\(.scheme)://x.org/`, 0, "scheme"},
		{"a value as the whole URL", `\(.url)`, 0, "scheme"},
		{"no scheme", `x.org/\(.id)`, 0, "scheme"},
		{"a scheme cut by a value", `https:\(.id)`, 0, "scheme"},
		{"no host", `https:///w`, 0, "no host"},
		{"a user", `https://user:pass@x.org/`, 0, "user name"},
		{"a user before a value", `https://user@\(.host)/`, 0, "user name"},
		{"values that escape themselves", `https://x.org/\(.title | @uri)`, 14, "leave out | @uri"},
		{"an escape that a value would end", `https://x.org/%\(.id)`, 0, "%25"},
		{"an escape that is none", `https://x.org/%zz`, 0, "invalid URL escape"},
		{"the parent segment", `https://x.org/../\(.id)`, 0, "path segment"},
		{"a space in the host", `https://x org/`, 0, "invalid character"},
		{"braces around a name", `https://x.org/a/{id}`, 16, `write \(.id)`},
		{"a Go template", `https://x.org/\(.a)/{{.id}}`, 20, `"{" cannot stand in a URL`},
		{"braces in the host", `https://{host}/`, 8, `write \(.id)`},
		{"braces in the query", `https://x.org/?q=\(.q)&f=}`, 25, `or %7D for the brace itself`},
		{"a port that is none", `https://x.org:port/`, 0, "invalid port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tpl := template(t, test.src)
			s, ok := errors.AsType[*jq.SyntaxError](tpl.CheckURL())
			if !ok || s.Offset != test.offset || !strings.Contains(s.Message, test.message) {
				t.Errorf("%s: got %#v, want offset %d and %q", test.src, tpl.CheckURL(), test.offset, test.message)
			}
			if _, err := tpl.URL(context.Background(), newEvent(page)); typeOf(err) != event.Rejected {
				t.Errorf("%s: URL gave %v, want an error of type rejected", test.src, err)
			}
			if host, fixed := tpl.HostIsFixed(); fixed {
				t.Errorf("%s: has the fixed host %q", test.src, host)
			}
		})
	}
}

func TestHostIsFixed(t *testing.T) {
	for src, want := range map[string]string{
		`https://x.org/\(.id)`: "x.org", `http://x.org:81?\(.id)`: "x.org:81", `https://[::1]:2/`: "[::1]:2", `https://\(.host)/`: "", `https://a.\(.host):1/`: "",
	} {
		if got, fixed := template(t, src).HostIsFixed(); got != want || fixed != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", src, got, fixed, want)
		}
	}
}

func TestHostIsThatOfTheURL(t *testing.T) {
	for _, src := range []string{
		`https://x.org/\(.id)`, `https://\(.host)/\(.nope)`, `https://a.\(.host):\(.port)?q=\(.nope)`, `https://\(.evil)/`, `https://\(.at)/`,
		`https://\(.nope)/`, `https://\(.host):99999/`, `https://\(.list[1].a.b)/`, `ftp:\(.id)`,
	} {
		tpl := template(t, src)
		got, err := tpl.Host(context.Background(), newEvent(page))
		u, want := tpl.URL(context.Background(), newEvent(page))
		if strings.HasSuffix(src, `\(.nope)`) {
			u, want = template(t, strings.ReplaceAll(src, ".nope", ".id")).URL(context.Background(), newEvent(page)) // the path is not asked
		}
		if typeOf(err) != typeOf(want) || err == nil && got != u.Host {
			t.Errorf("%s: got %q, %v; want %v, %v", src, got, err, u, want)
		}
	}
}

func TestVariablesAreThoseOfTheEventThatAreNamed(t *testing.T) {
	for src, want := range map[string]string{
		`a`: "", `\(.id)`: "", `\($key) \(.id + $offset) \($key)`: "key offset", `\({$topic, a: [$headers.x]})`: "headers topic", `\(.id as $x | $x)`: "",
	} {
		if got := strings.Join(template(t, src).Variables(), " "); got != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
	}
	e, err := jq.Compile(`$status + $partition | if $timestamp then . else $key end`, "status")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(e.Variables(), " "); got != "key partition timestamp" {
		t.Errorf("got %q, want those of the event, and not $status", got)
	}
}
