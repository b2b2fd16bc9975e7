package asynchttp_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
)

func TestAnswerGoesIntoTheEvent(t *testing.T) {
	const page = `{"query":{"pages":[{"id":9007199254740993,"score":1.0,"text":"a\u00e9"}]},"n":null}`
	tests := []struct {
		name, options, answer, contentType, value, want string
	}{
		{name: "the whole answer, byte for byte", options: `{url: "http://api/", into: .r}`, answer: ` {"id": 9007199254740993, "x": 1e400} `, want: `{"a":1,"r":{"id": 9007199254740993, "x": 1e400}}`},
		{name: "a selected part keeps its spelling", options: `{url: "http://api/", select: ".query.pages[0].id", into: .r}`, answer: page, want: `{"a":1,"r":9007199254740993}`},
		{name: "a selected string stays a JSON string", options: `{url: "http://api/", select: ".query.pages[0].text", into: .r.s}`, answer: page, want: `{"a":1,"r":{"s":"a\u00e9"}}`},
		{name: "a map of paths to jq of the selected part", options: `{url: "http://api/", select: ".query.pages[0]", into: {.i: .id, .s: .score, .none: .nothing}}`, answer: page, want: `{"a":1,"i":9007199254740993,"s":1.0,"none":null}`},
		{name: "a byte order mark is passed over", options: `{url: "http://api/", into: .r}`, answer: "\uFEFF{}", want: `{"a":1,"r":{}}`},
		{name: "text", options: `{url: "http://api/", as: text, into: .r}`, answer: "<p>\"é\"\n", want: `{"a":1,"r":"<p>\"é\"\n"}`},
		{name: "text in latin-1 is converted", options: `{url: "http://api/", as: text, into: .r}`, answer: "\xe9", contentType: "text/plain; charset=ISO-8859-1", want: `{"a":1,"r":"é"}`},
		{name: "long text in latin-1 is converted", options: `{url: "http://api/", as: text, into: .r}`, answer: strings.Repeat("\xe9\"", 5000), contentType: "text/plain; charset=latin1", want: `{"a":1,"r":"` + strings.Repeat(`é\"`, 5000) + `"}`},
		{name: "base64 keeps any bytes", options: `{url: "http://api/", as: base64, into: .r}`, answer: "\xff\x00", want: `{"a":1,"r":"` + base64.StdEncoding.EncodeToString([]byte("\xff\x00")) + `"}`},
		{name: "an answer of exactly max_response is taken whole", options: `{url: "http://api/", max_response: 4B, into: .r}`, answer: `1234`, want: `{"a":1,"r":1234}`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			client := cannedClient(func(*http.Request) (*http.Response, error) {
				return reply(200, tc.answer, "Content-Type", tc.contentType)
			})
			got := drive(t.Context(), build(t, client, tc.options), `{"a":1}`)
			if got.err != nil || got.value != tc.want {
				t.Errorf("got %s, %v; want %s", got.value, got.err, tc.want)
			}
		})
	}
}

func TestUselessAnswerIsAnErrorOfItsType(t *testing.T) {
	tests := []struct {
		name, options, body string
		status              int
		want                event.Type
		message             string
	}{
		{name: "404", status: 404, body: "gone fishing", want: event.NotFound, message: `GET api/p: status 404 Not Found: "gone fishing"`},
		{name: "410", status: 410, want: event.NotFound},
		{name: "204", status: 204, want: event.NoContent},
		{name: "empty body", status: 200, want: event.EmptyResponse},
		{name: "blank body", status: 200, body: " \n", want: event.EmptyResponse},
		{name: "empty text", status: 200, options: "as: text", want: event.EmptyResponse},
		{name: "not JSON", status: 200, body: "<html>", want: event.InvalidResponse, message: `"<html>"`},
		{name: "cut JSON", status: 200, body: `{"a":`, want: event.InvalidResponse},
		{name: "two JSON texts", status: 200, body: `{} {}`, want: event.InvalidResponse},
		{name: "JSON nested too deeply to be read", status: 200, body: strings.Repeat("[", 10001) + strings.Repeat("]", 10001), want: event.InvalidResponse, message: "GET api/p: the answer is not JSON: not JSON at byte 10000: "},
		{name: "JSON nested too deeply for its place", status: 200, body: strings.Repeat("[", 10000) + strings.Repeat("]", 10000), want: event.InvalidResponse, message: "GET api/p: into: setting .r: not JSON at byte 9999: "},
		{name: "text that is not UTF-8", status: 200, body: "\xff", options: "as: text", want: event.InvalidResponse},
		{name: "select finds nothing", status: 200, body: `{"badrevids":{"1":{}}}`, options: "select: .query.pages[0]", want: event.NotFound},
		{name: "select finds null", status: 200, body: `{"query":null}`, options: "select: .query", want: event.NotFound},
		{name: "select fails", status: 200, body: `{"query":"x"}`, options: "select: .query.pages", want: event.Expression, message: "selecting from the answer"},
		{name: "400 is not tried again", status: 400, want: event.UnexpectedStatus},
		{name: "304", status: 304, want: event.UnexpectedStatus},
		{name: "one byte over max_response", status: 200, body: `12345`, options: "max_response: 4B", want: event.TooLarge},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			client := cannedClient(func(*http.Request) (*http.Response, error) {
				calls++
				resp, err := reply(tc.status, tc.body)
				resp.ContentLength = -1
				return resp, err
			})
			got := drive(t.Context(), build(t, client, "url: http://api/p?token=hush\ninto: .r\n"+tc.options), `{}`)
			r := event.AsReject(got.err)
			if got.kind() != tc.want || r.Status != tc.status || got.status != tc.status || calls != 1 {
				t.Errorf("got %v, status %d after %d calls; want %s", got.err, r.Status, calls, tc.want)
			}
			if !strings.Contains(r.Err.Error(), tc.message) || strings.Contains(r.Err.Error(), "hush") {
				t.Errorf("message %q: want %q in it and no query", r.Err, tc.message)
			}
		})
	}
}

func TestRequestIsBuiltFromTheEvent(t *testing.T) {
	var got *http.Request
	var body string
	client := cannedClient(func(r *http.Request) (*http.Response, error) {
		got, body = r, ""
		if r.Body != nil {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			body = string(b)
		}
		return reply(200, `{}`)
	})
	tests := []struct{ name, options, value, url, method, body, contentType, header string }{
		{name: "values in the URL are escaped by their place", options: "url: http://api/w/\\(.t)?q=\\(.t)", value: `{"t":"a/b&c"}`, url: "http://api/w/a%2Fb&c?q=a%2Fb%26c", method: "GET"},
		{name: "a body that is a path goes as written", options: "url: http://api/\nmethod: POST\nbody: .b", value: `{"b":{"n": 1.0}}`, url: "http://api/", method: "POST", body: `{"n": 1.0}`, contentType: "application/json"},
		{name: "a body that is text goes as it is", options: "url: http://api/\nmethod: PUT\nbody: '\"x=\\(.b)\"'", value: `{"b":"y\n"}`, url: "http://api/", method: "PUT", body: "x=y\n", contentType: "text/plain; charset=utf-8"},
		{name: "headers are templates and win over what is found", options: "url: http://api/\nmethod: POST\nbody: .\nheaders: {content-type: application/x-ndjson, X-Id: 'n\\(.b)'}", value: `{"b":7}`, url: "http://api/", method: "POST", body: `{"b":7}`, contentType: "application/x-ndjson", header: "n7"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			out := drive(t.Context(), build(t, client, "into: .r\n"+tc.options), tc.value)
			if out.err != nil {
				t.Fatal(out.err)
			}
			if got.URL.String() != tc.url || got.Method != tc.method || body != tc.body ||
				got.Header.Get("Content-Type") != tc.contentType || got.Header.Get("X-Id") != tc.header {
				t.Errorf("got %s %s %q %v; want %s %s %q %s", got.Method, got.URL, body, got.Header, tc.method, tc.url, tc.body, tc.contentType)
			}
			if !strings.HasPrefix(got.Header.Get("User-Agent"), "enricher") {
				t.Errorf("user agent %q, want the program's own", got.Header.Get("User-Agent"))
			}
		})
	}
}

func TestRequestThatCannotBeBuiltIsNotSent(t *testing.T) {
	client := cannedClient(func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return reply(200, `{}`)
	})
	tests := []struct {
		name, options, value string
		want                 event.Type
	}{
		{name: "missing field in the URL", options: `url: http://api/\(.a)`, value: `{}`, want: event.MissingField},
		{name: "dots as path segment", options: `url: http://api/\(.a)/x`, value: `{"a":".."}`, want: event.Rejected},
		{name: "host that is not allowed", options: "url: http://\\(.h)/\nallow_hosts: ['*.example.org']", value: `{"h":"example.org"}`, want: event.Rejected},
		{name: "host with a user name", options: "url: http://\\(.h)/\nallow_hosts: ['*.example.org']", value: `{"h":"u@a.example.org"}`, want: event.Rejected},
		{name: "allowed host at a port of the event's choice", options: "url: http://\\(.h)/\nallow_hosts: ['*.example.org']", value: `{"h":"a.example.org:22"}`, want: event.Rejected},
		{name: "line break in a header", options: "url: http://api/\nheaders: {X-Id: '\\(.a)'}", value: `{"a":"x\r\nHost: evil"}`, want: event.Rejected},
		{name: "missing header value", options: "url: http://api/\nheaders: {X-Id: '\\(.a)'}", value: `{}`, want: event.MissingField},
		{name: "missing body", options: "url: http://api/\nmethod: POST\nbody: .b", value: `{}`, want: event.MissingField},
		{name: "failing body", options: "url: http://api/\nmethod: POST\nbody: .b.c", value: `{"b":1}`, want: event.Expression},
		{name: "value that is not JSON", options: "url: http://api/\\(.a)", value: `{`, want: event.InvalidEvent},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := drive(t.Context(), build(t, client, "into: .r\n"+tc.options), tc.value)
			if got.kind() != tc.want {
				t.Errorf("got %v, want %s", got.err, tc.want)
			}
		})
	}
}

func TestPathThatCannotBeSetIsAnErrorEvent(t *testing.T) {
	client := cannedClient(func(*http.Request) (*http.Response, error) { return reply(200, `1`) })
	tests := []struct{ into, message string }{
		{".a.b", `expression: into: reading .a.b: cannot index string with "b"`},
		{".c[1000000]", "expression: into: setting .c[1000000]: it lies 1000000 elements behind the end of its array, more than 10000"},
	}
	for _, tc := range tests {
		got := drive(t.Context(), build(t, client, "{url: http://api/, into: '"+tc.into+"'}"), `{"a":"scalar"}`)
		if got.kind() != event.Expression || got.err.Error() != tc.message {
			t.Errorf("into %s: got %v, want %s", tc.into, got.err, tc.message)
		}
	}
}
