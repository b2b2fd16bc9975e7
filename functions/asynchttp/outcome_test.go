package asynchttp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// says answers with a status and a body.
func says(code int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return reply(code, body, headers...) }
}

const (
	badrevids = `{"batchcomplete":true,"query":{"badrevids":{"7":{"revid":7}}}}`
	maxlag    = `{"error":{"code":"maxlag","info":"Waiting for a database server"}}`
	page      = `{"query":{"pages":[{"text":"x"}]}}`
)

// wiki asks an API that says in a 200 what is wrong.
const wiki = `
url: http://api/p?token=hush
select: .query.pages[0].text
into: .text
errors:
  - {on: [200], when: .error.code == "maxlag", do: retry, type: lagging}
  - {on: [no_match], when: .query.badrevids, do: drop}
  - {on: [no_match], do: error, type: odd_answer}
  - {on: [404, 410], when: .code == "deleted", do: drop}
  - {on: [404], do: pass}
  - {on: [403], do: retry}
  - {on: [503], when: '.error | test("read-only")', do: error, type: read_only}
  - {on: [500-502], do: error}
  - {on: [timeout], do: error, type: slow}
  - {on: [connection, too_large], do: pass}
  - {on: [empty], do: retry}
  - {on: [not_json], do: drop}
`

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	type steps = []func(*http.Request) (*http.Response, error)
	const input = `{"id":7}`
	tests := []struct {
		name    string
		steps   steps
		calls   int
		want    event.Type
		value   string // "": an error event, or dropped
		status  int
		message string
	}{
		{name: "a good answer that no rule names", steps: steps{says(200, page)}, calls: 1, value: `{"id":7,"text":"x"}`, status: 200},
		{name: "a failure in a 200 is tried again", steps: steps{says(200, maxlag), says(200, maxlag), says(200, page)}, calls: 3, value: `{"id":7,"text":"x"}`, status: 200},
		{name: "a failure in a 200 that stays", steps: steps{says(200, maxlag)}, calls: 5, want: "lagging", status: 200, message: `the answer has nothing at ".query.pages[0].text": "{\"error\":{\"code\":\"maxlag\"`},
		{name: "what a 200 says is missing is dropped", steps: steps{says(200, badrevids)}, calls: 1, status: 200},
		{name: "anything else without a match", steps: steps{says(200, `{"query":{}}`)}, calls: 1, want: "odd_answer", status: 200},
		{name: "a 404 whose body a rule knows", steps: steps{says(404, `{"code":"deleted"}`)}, calls: 1, status: 404},
		{name: "a 410 whose body no rule knows", steps: steps{says(410, `{"code":"other"}`)}, calls: 1, want: event.NotFound, status: 410, message: `status 410 Gone: "{\"code\":\"other\"}"`},
		{name: "a 404 with another body passes untouched", steps: steps{says(404, `{"code":"other"}`)}, calls: 1, value: input, status: 404},
		{name: "a 404 that is no JSON passes untouched", steps: steps{says(404, `<html>`)}, calls: 1, value: input, status: 404},
		{name: "a 403 is tried again where a rule says so", steps: steps{says(403, ``), says(200, page)}, calls: 2, value: `{"id":7,"text":"x"}`, status: 200},
		{name: "a 503 with a body that a rule knows", steps: steps{says(503, `{"error":"read-only mode"}`)}, calls: 1, want: "read_only", status: 503},
		{name: "a 503 on which the condition fails keeps its default", steps: steps{says(503, `[1]`), says(503, `<html>`), says(503, ``), says(200, page)}, calls: 4, value: `{"id":7,"text":"x"}`, status: 200},
		{name: "a 502 is not tried again where a rule says so", steps: steps{says(502, `bad`)}, calls: 1, want: event.UnexpectedStatus, status: 502, message: `status 502 Bad Gateway: "bad"`},
		{name: "a 504 keeps its default", steps: steps{says(504, ``), says(200, page)}, calls: 2, value: `{"id":7,"text":"x"}`, status: 200},
		{name: "a time-out", steps: steps{hang}, calls: 1, want: "slow"},
		{name: "a failed connection passes untouched", steps: steps{reset}, calls: 1, value: input},
		{name: "a body that breaks off is a failed connection, whatever its status", steps: steps{cutShort}, calls: 1, value: input, status: 200},
		{name: "an answer over the limit passes untouched", steps: steps{says(200, strings.Repeat("1", 2000))}, calls: 1, value: input, status: 200},
		{name: "an empty answer is tried again", steps: steps{says(200, " "), says(200, page)}, calls: 2, value: `{"id":7,"text":"x"}`, status: 200},
		{name: "an empty answer that stays", steps: steps{says(200, "")}, calls: 5, want: event.EmptyResponse, status: 200},
		{name: "an answer that is no JSON is dropped", steps: steps{says(200, "<html>")}, calls: 1, status: 200},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: tc.steps}
				got := drive(t.Context(), build(t, cannedClient(s.answer), wiki+"max_response: 1kB\n"), input)
				if got.kind() != tc.want || (got.err != nil) != (tc.want != "") || got.value != tc.value || got.dropped != (tc.value == "" && tc.want == "") {
					t.Errorf("got %q, %v, dropped %v; want %q, %s", got.value, got.err, got.dropped, tc.value, tc.want)
				}
				if len(s.at) != tc.calls || got.attempts != tc.calls || got.status != tc.status {
					t.Errorf("%d calls, %d attempts, status %d; want %d calls, status %d", len(s.at), got.attempts, got.status, tc.calls, tc.status)
				}
				if got.err != nil && (event.AsReject(got.err).Status != tc.status || !strings.Contains(got.err.Error(), tc.message) || strings.Contains(got.err.Error(), "hush")) {
					t.Errorf("error event %v, status %d; want …%s…, status %d and no query", got.err, event.AsReject(got.err).Status, tc.message, tc.status)
				}
			})
		})
	}
}

// A page of an error may be as long as it likes.
func TestALargeFailureIsNotLookedInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			size  int
			calls int
		}{{900, 1}, {1100, 5}} {
			s := &script{steps: []func(*http.Request) (*http.Response, error){says(500, `{"code":7,"pad":"`+strings.Repeat("x", tc.size-19)+`"}`)}}
			f := build(t, cannedClient(s.answer), "{url: http://api/, into: .r, max_response: 1kB, errors: [{when: .code == 7, do: error, type: seven}]}")
			got := drive(t.Context(), f, `{}`)
			if len(s.at) != tc.calls || (got.kind() == "seven") != (tc.calls == 1) || !strings.Contains(got.err.Error(), `500 Internal Server Error: "{\"code\":7`) {
				t.Errorf("%d bytes: got %v after %d calls, want %d", tc.size, got.err, len(s.at), tc.calls)
			}
		}
	})
}

func TestARuleThatRefusesAGoodAnswerShowsIt(t *testing.T) {
	client := cannedClient(says(200, `{"ok":false,"why":"quota"}`))
	for _, tc := range []struct{ rule, message string }{
		{"{on: [200], when: '.ok | not', do: error, type: quota}", `quota: GET api/: errors[0] refuses the answer, status 200: "{\"ok\":false,\"why\":\"quota\"}"`},
		{"{when: '.ok | not', do: error}", `unexpected_status: GET api/: errors[0] refuses the answer, status 200: "{\"ok\":false,`},
	} {
		got := drive(t.Context(), build(t, client, "{url: http://api/, into: .r, errors: ["+tc.rule+"]}"), `{}`)
		if got.err == nil || !strings.HasPrefix(got.err.Error(), tc.message) || event.AsReject(got.err).Status != 200 {
			t.Errorf("%s: got %v, want %s…", tc.rule, got.err, tc.message)
		}
	}
}

func TestExpressionsAboutAnAnswerSeeItsStatusAndHeaders(t *testing.T) {
	tests := []struct{ name, options, value string }{
		{"select", "select: $response_headers[\"x-rev\"]\ninto: .r", `{"k":1,"r":"7, 8"}`},
		{
			"into", `into: {.s: $status, .e: $response_headers.etag, .a: '[$status, .n, $topic]', .none: '$response_headers["x-none"]'}`,
			`{"k":1,"s":203,"e":"\"v1\"","a":[203,5,"in"],"none":null}`,
		},
		{"when", "into: .r\nerrors: [{when: '$status == 203 and ($response_headers[\"content-type\"] | test(\"json\"))', do: pass}]", `{"k":1}`},
		{"when of another status", "into: .r\nerrors: [{when: $status == 200, do: drop}]", `{"k":1,"r":{"n":5}}`},
		{"a variable of its own by that name", `into: {.r: .n as $status | $status}`, `{"k":1,"r":5}`},
	}
	client := cannedClient(func(*http.Request) (*http.Response, error) {
		resp, err := reply(203, `{"n":5}`, "ETag", `"v1"`, "Content-Type", "application/json")
		resp.Header["X-Rev"] = []string{"7", "8"}
		return resp, err
	})
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := drive(t.Context(), build(t, client, "url: http://api/\n"+tc.options), `{"k":1}`)
			if got.err != nil || got.value != tc.value {
				t.Errorf("got %s, %v; want %s", got.value, got.err, tc.value)
			}
		})
	}
}

func TestARuleRetriesNothingThatMayHaveBeenCarriedOut(t *testing.T) {
	type steps = []func(*http.Request) (*http.Response, error)
	tests := []struct {
		name, options string
		steps         steps
		calls         int
		want          event.Type
	}{
		{"a status that does not say so", "", steps{says(500, ``)}, 1, event.UnexpectedStatus},
		{"a connection that was made", "", steps{reset}, 1, event.Connection},
		{"a connection that was not", "", steps{refuse, says(200, `1`)}, 2, ""},
		{"too many requests", "", steps{says(429, ``), says(200, `1`)}, 2, ""},
		{"what may be repeated", "idempotent: true", steps{says(500, ``), reset, says(200, `1`)}, 3, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: tc.steps}
				f := build(t, cannedClient(s.answer), "url: http://api/\nmethod: POST\nbody: .\ninto: .r\nerrors: [{on: [connection, 429, 500], do: retry}]\n"+tc.options)
				if got := drive(t.Context(), f, `{}`); got.kind() != tc.want || len(s.at) != tc.calls {
					t.Errorf("got %v after %d calls, want %q after %d", got.err, len(s.at), tc.want, tc.calls)
				}
			})
		})
	}
}

// The request itself is not sent again, or it might be carried out twice. Those after it can wait, or each would be an
// error event too.
func TestRetryAfterOfARequestThatIsNotSentAgainHoldsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		client := cannedClient(func(*http.Request) (*http.Response, error) {
			if calls++; calls == 1 {
				return reply(503, ``, "Retry-After", "30")
			}
			return reply(200, `1`)
		})
		f := build(t, client, "{url: http://api/, method: POST, body: ., into: .r}")
		if got := drive(t.Context(), f, `{}`); got.kind() != event.UnexpectedStatus || got.attempts != 1 || got.holds != 0 || got.took != 0 {
			t.Errorf("the first: %v after %v, %d attempts and %d holds; want %s at once", got.err, got.took, got.attempts, got.holds, event.UnexpectedStatus)
		}
		if got := drive(t.Context(), f, `{}`); got.err != nil || got.holds != 1 || got.took != 30*time.Second || calls != 2 {
			t.Errorf("the second: %v after %v, %d holds, %d calls in all; want it after a hold of 30s", got.err, got.took, got.holds, calls)
		}
	})
}

// A host may be held by another call while this one sits out a short wait.
func TestAHostThatIsHeldMeanwhileGetsNoFurtherTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/other" {
				return reply(429, ``, "Retry-After", "30")
			}
			at = append(at, time.Since(began))
			if len(at) < 3 {
				return reply(500, ``)
			}
			return reply(200, `1`)
		})
		f := build(t, client, `{url: 'http://api/\(.p)', into: .r, retry: {initial: 250ms, max: 250ms}}`)
		go func() {
			time.Sleep(time.Nanosecond) // the first try has failed, and its wait begun
			_, _ = f.Process(t.Context(), newEvent(`{"p":"other"}`))
		}()
		got := drive(t.Context(), f, `{"p":"this"}`)
		// A short wait may end before the host's usual rate lets the third go, which is one more hold.
		if got.err != nil || got.attempts != 3 || got.holds < 1 || len(at) != 3 || at[1] < 30*time.Second {
			t.Errorf("got %v after %d attempts and %d holds, tries at %v; want the second after the hold of 30s", got.err, got.attempts, got.holds, at)
		}
	})
}

func TestRulesThatCannotWorkAreRefused(t *testing.T) {
	const post = "method: POST, body: ., "
	tests := []struct{ name, options, option, message string }{
		{"nothing that came", `errors: [{do: drop}]`, "errors[0]", "say what came, by on, when, or both"},
		{"a verb that is none", `errors: [{on: [404], do: ignore}]`, "errors[0].do", "want one of retry, error, drop, pass"},
		{"no_match without select", `errors: [{on: [404, no_match], do: drop}]`, "errors[0].on[1]", "never comes without a select"},
		{"an answer that is not there", `errors: [{on: [500, timeout], when: .a, do: drop}]`, "errors[0].on[1]", "timeout brings no answer that when could look into"},
		{"a status without a body", `errors: [{on: [204], when: .a, do: drop}]`, "errors[0].on[0]", "204 brings no answer"},
		{"what stands there twice", `errors: [{on: [4xx, 404], do: drop}]`, "errors[0].on[1]", "404 is in what stands before it already"},
		{"an assignment", `errors: [{when: .a = 1, do: drop}]`, "errors[0].when", "did you mean =="},
		{"a type of what is dropped", `errors: [{on: [404], do: drop, type: gone}]`, "errors[0].type", "drop makes no error event"},
		{"a type of what passes", `errors: [{on: [404], do: pass, type: gone}]`, "errors[0].type", "pass makes no error event"},
		{"a type that is none", `errors: [{on: [404], do: error, type: Not-Found}]`, "errors[0].type", "is no type"},
		{"all good answers again", `errors: [{on: [200-299], do: retry}]`, "errors[0].on[0]", "every good answer"},
		{"a retry without a second attempt", `retry: {attempts: 1}, errors: [{on: [404], do: retry}]`, "errors[0].do", "retry.attempts: 1"},
		{"a retry of what may have been carried out", post + `errors: [{on: [500, timeout], do: pass}, {on: [503], do: retry}]`, "errors[1].do", "write idempotent: true"},
		{"a rule that repeats one before it", `errors: [{on: [404], do: drop}, {on: [404], do: pass}]`, "errors[1]", "is taken by errors[0]"},
		{"a rule within ranges before it", `errors: [{on: [500], do: drop}, {on: [450-499, 400-449, empty], do: drop}, {on: [4xx], do: pass}]`, "errors[2]", "is taken by errors[1]"},
		{"a condition behind its status", `errors: [{on: [2xx], do: drop}, {on: [201, not_json], do: pass}, {on: [200], when: .a, do: pass}]`, "errors[1]", "is taken by errors[0]"},
		{"the same condition", `errors: [{when: .a==1, do: drop}, {on: [404], when: .a == 1, do: pass}]`, "errors[1]", "is taken by errors[0]"},
		{"a condition behind all statuses", `errors: [{on: [200-999], do: drop}, {when: .a, do: pass}]`, "errors[1]", "is taken by errors[0]"},
		{"a rule within two before it", `errors: [{on: [400-449], do: drop}, {on: [500], do: pass}, {on: [450-499], do: drop}, {on: [4xx], do: pass}]`, "errors[3]", "is taken by errors[0] and errors[2] before it"},
		{"conditions of two before it", `errors: [{on: [404], do: drop}, {when: .b, do: drop}, {on: [410], when: .a, do: pass}, {on: [404, 410], when: .a, do: pass}]`, "errors[3]", "is taken by errors[0] and errors[2] before it"},
		{"total_timeout without room", `retry_recent: {younger_than: 51s, every: 1s}`, "retry_recent.younger_than", "does not fit into total_timeout 1m0s: with one timeout, 10s, more it may take 1m1s"},
		{"no age", `retry_recent: {every: 1s}`, "retry_recent.younger_than", "above 0"},
		{"no wait", `retry_recent: {younger_than: 10s, every: 10ms}`, "retry_recent.every", "10ms is less than 100ms"},
		{"a good answer that is young", `retry_recent: {on: [404, 200], younger_than: 10s, every: 1s}`, "retry_recent.on[1]", "200 is what is wanted"},
		{"what is tried again anyway", `retry_recent: {on: [4xx], younger_than: 10s, every: 1s}`, "retry_recent.on[0]", "4xx is tried again whatever the event's age"},
		{"what says nothing of age", `retry_recent: {on: [timeout], younger_than: 10s, every: 1s}`, "retry_recent.on[0]", "timeout does not say"},
		{"no_match of a young event without select", `retry_recent: {on: [no_match], younger_than: 10s, every: 1s}`, "retry_recent.on[0]", "never comes without a select"},
		{"a young event by POST", post + `retry_recent: {on: [404], younger_than: 10s, every: 1s}`, "retry_recent", "write idempotent: true"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := asynchttp.New(functions.Env{}, options(t, "{url: http://api/, into: .r, "+tc.options+"}"))
			var o *functions.OptionError
			if !errors.As(err, &o) || o.Option != tc.option || !strings.Contains(o.Err.Error(), tc.message) {
				t.Errorf("got %v, want %s: …%s…", err, tc.option, tc.message)
			}
		})
	}
}

func TestRulesBesideEachOtherAreTaken(t *testing.T) {
	for _, o := range []string{
		`errors: [{on: [404], when: .a, do: drop}, {on: [404], do: pass}, {on: [4xx], do: error}]`,
		`errors: [{on: [200], when: .a, do: drop}, {on: [200], when: .b, do: pass}, {when: .a, do: retry}]`,
		`errors: [{on: [empty, not_json], do: drop}, {on: [2xx], when: .a, do: pass}]`,
		`errors: [{on: [400-450], do: drop}, {on: [450-499], do: pass}]`,
		`errors: [{on: [400-448], do: drop}, {on: [450-499], do: drop}, {on: [4xx], do: pass}]`,
		`errors: [{on: [404], when: .a, do: drop}, {on: [410], when: .b, do: drop}, {on: [404, 410], when: .a, do: pass}]`,
		`method: POST, body: ., errors: [{on: [429], when: .a, do: retry}, {on: [connection], do: retry}]`,
		`select: .a, retry_recent: {on: [404, no_match, empty, 204], younger_than: 50s, every: 1s}`,
		`total_timeout: 0s, retry_recent: {younger_than: 24h, every: 1m}`,
	} {
		if _, err := asynchttp.New(functions.Env{}, options(t, "{url: http://api/, into: .r, "+o+"}")); err != nil {
			t.Errorf("%s: %v", o, err)
		}
	}
}

func TestAnOutcomeIsAStatusARangeOrAWord(t *testing.T) {
	for text, message := range map[string]string{
		"404": "", "5xx": "", "5XX": "", "200-299": "", "999": "", "timeout": "", "connection": "", "empty": "", "no_match": "", "too_large": "", "not_json": "",
		"40": "is no outcome", "4x": "is no outcome", "4xxx": "is no outcome", "timeouts": "is no outcome", "": "is no outcome", "404,410": "is no outcome",
		"100": "never comes", "1xx": "never comes", "199-300": "never comes", "499-400": "wrong order",
	} {
		var c asynchttp.Case
		err := c.UnmarshalText([]byte(text))
		if (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%q: got %v, want %q", text, err, message)
		}
		if err == nil && c.String() != text {
			t.Errorf("%q is spelled %q", text, c)
		}
	}
}
