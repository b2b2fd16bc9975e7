package asynchttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

func TestSpecIsComplete(t *testing.T) {
	spec := asynchttp.Spec()
	if err := spec.Check(); err != nil {
		t.Fatal(err)
	}
	if got := spec.Name(); got != "http" {
		t.Errorf("name %q, want http", got)
	}
	o := options(t, "{url: http://api/, into: .r}")
	built, err := spec.Build(functions.Env{Name: "content"}, &o)
	if err != nil {
		t.Fatal(err)
	}
	if built.Func == nil || built.Inline || built.Attempts != -1 {
		t.Errorf("built %+v, want a function that waits and bounds its attempts itself", built)
	}
	want := map[string]string{
		"method": "GET", "as": "json", "timeout": "10s", "total_timeout": "60s", "max_response": "64MiB",
		"retry.attempts": "5", "retry.initial": "200ms", "retry.max": "10s", "retry.retry_after_max": "60s",
	}
	for _, d := range functions.DescribeOptions(spec) {
		if w, ok := want[d.Path]; ok && d.Default != w {
			t.Errorf("default of %s is %q, want %q", d.Path, d.Default, w)
		}
		delete(want, d.Path)
	}
	if len(want) > 0 {
		t.Errorf("options without mention: %v", want)
	}
}

func TestBadOptionsAreFoundBeforeTheStart(t *testing.T) {
	tests := []struct{ name, options, option, message string }{
		{"no url", `into: .r`, "url", "say what to call"},
		{"no into", `url: http://api/`, "into", "where the answer goes"},
		{"scheme", `{url: ftp://api/, into: .r}`, "url", "https://"},
		{"scheme hidden in the query", `{url: "ftp://api/?u=http://x", into: .r}`, "url", "https://"},
		{"user name", `{url: "http://u:p@api/", into: .r}`, "url", "user name"},
		{"host of the event without allow_hosts", `{url: 'http://\(.h)/', into: .r}`, "allow_hosts", "name the hosts"},
		{"URL in allow_hosts", `{url: http://api/, allow_hosts: ["https://api"], into: .r}`, "allow_hosts[0]", "is no host"},
		{"any host", `{url: http://api/, allow_hosts: ["*"], into: .r}`, "allow_hosts[0]", "subdomains"},
		{"star within a name", `{url: http://api/, allow_hosts: ["a*.example.org"], into: .r}`, "allow_hosts[0]", "subdomains"},
		{"port that is none", `{url: http://api/, allow_hosts: ["a:http"], into: .r}`, "allow_hosts[0]", "port"},
		{"Host header", `{url: http://api/, headers: {host: x}, into: .r}`, `headers["host"]`, "url"},
		{"Accept-Encoding header", `{url: http://api/, headers: {Accept-Encoding: gzip}, into: .r}`, `headers["Accept-Encoding"]`, "decompressed"},
		{"header name", `{url: http://api/, headers: {"a b": x}, into: .r}`, `headers["a b"]`, "no header name"},
		{"one header by two names", `{url: http://api/, headers: {X-Id: a, x-id: b}, into: .r}`, `headers["x-id"]`, `"X-Id" and "x-id" are the same header`},
		{"no time-out", `{url: http://api/, timeout: 0s, into: .r}`, "timeout", "above 0"},
		{"total_timeout below timeout", `{url: http://api/, timeout: 5s, total_timeout: 4s, into: .r}`, "total_timeout", "4s is less than timeout 5s"},
		{"total_timeout below the default of timeout", `{url: http://api/, total_timeout: 4s, into: .r}`, "total_timeout", "less than timeout 10s"},
		{"body of a GET", `{url: http://api/, body: .a, into: .r}`, "body", "method: POST"},
		{"braces in the URL", `{url: "http://api/{id}", into: .r}`, "url", `write \(.id)`},
		{"no limit", `{url: http://api/, max_response: 0B, into: .r}`, "max_response", "above 0"},
		{"negative attempts", `{url: http://api/, retry: {attempts: -1}, into: .r}`, "retry.attempts", "negative"},
		{"no first wait", `{url: http://api/, retry: {initial: 0s}, into: .r}`, "retry.initial", "above 0"},
		{"max below initial", `{url: http://api/, retry: {initial: 2s, max: 1s}, into: .r}`, "retry.max", "less than initial 2s"},
		{"no share", `{url: http://api/, retry: {share: -0.1}, into: .r}`, "retry.share", "no share"},
		{"share that is no number", `{url: http://api/, retry: {share: .nan}, into: .r}`, "retry.share", "no share"},
		{"breaker that opens always", `{url: http://api/, breaker: {failures: 0}, into: .r}`, "breaker.failures", "calls: 0 is no breaker"},
		{"breaker that opens never", `{url: http://api/, breaker: {failures: 50}, into: .r}`, "breaker.failures", "up to 1"},
		{"breaker of many calls", `{url: http://api/, breaker: {calls: 100000}, into: .r}`, "breaker.calls", "1000"},
		{"breaker that tries all the time", `{url: http://api/, breaker: {open: 0s}, into: .r}`, "breaker.open", "above 0"},
		{"no rate", `{url: http://api/, rate_limit: {per_second: 0, burst: 1}, into: .r}`, "rate_limit.per_second", "is not from"},
		{"no burst", `{url: http://api/, rate_limit: {per_second: 1, burst: 0}, into: .r}`, "rate_limit.burst", "1 or more"},
		{"rate of a job", `{url: http://api/, rate_limit: {per_second: 1, burst: 1, scope: job}, into: .r}`, "rate_limit.scope", "scope: worker"},
		{"no cap", `{url: http://api/, retry: {retry_after_max: 0s}, into: .r}`, "retry.retry_after_max", "above 0"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := asynchttp.New(functions.Env{}, options(t, tc.options))
			var o *functions.OptionError
			if !errors.As(err, &o) || o.Option != tc.option || !strings.Contains(o.Err.Error(), tc.message) {
				t.Errorf("got %v, want %s: …%s…", err, tc.option, tc.message)
			}
		})
	}
}

func TestIntoTakesAPathOrAMap(t *testing.T) {
	for _, bad := range []string{"into: [.a]", "into: {}", "into: a b", "into: {a b: .x}", "into: {.a: '.['}", "into: {.a: {b: c}}", `into: {.a: .x, '.["a"]': .y}`} {
		var o asynchttp.Options
		if err := yaml.Unmarshal([]byte(bad), &o); err == nil {
			t.Errorf("%s was read as %v, want an error", bad, o.Into)
		}
	}
}

func TestAllowHosts(t *testing.T) {
	tests := []struct {
		allow, host string
		want        bool
	}{
		{"*.example.org", "a.example.org", true},
		{"*.example.org", "a.b.example.org", true},
		{"*.example.org", "A.Example.ORG", true},
		{"*.example.org", "example.org", false},
		{"*.example.org", "badexample.org", false},
		{"*.example.org", "a.example.org.evil.com", false},
		{"*.example.org", "a.example.org:80", true},
		{"*.example.org", "a.example.org:8080", false},
		{"*.example.org:8080", "a.example.org:8080", true},
		{"*.example.org:8080", "a.example.org", false},
		{"example.org", "example.org", true},
		{"example.org", "a.example.org", false},
		{"Example.org", "example.org", true},
		{"example.org:443", "example.org:443", true},
		{"127.0.0.1:*", "127.0.0.1:9", true},
		{"127.0.0.1", "127.0.0.1:9", false},
	}
	for _, tc := range tests {
		t.Run(tc.allow+" "+tc.host, func(t *testing.T) {
			client := cannedClient(func(*http.Request) (*http.Response, error) { return reply(200, `1`) })
			f := build(t, client, `{url: 'http://\(.h)/', into: .r, allow_hosts: ["`+tc.allow+`"]}`)
			got := drive(t.Context(), f, `{"h":"`+tc.host+`"}`)
			if allowed := got.err == nil; allowed != tc.want || !allowed && got.kind() != event.Rejected {
				t.Errorf("got %v, want allowed %v", got.err, tc.want)
			}
		})
	}
}

// countersAfterwards is what TestMetricsBeginAtZeroAndAgreeWithWhatHappened expects.
const countersAfterwards = `
# HELP enricher_http_connections_total Connections that HTTP attempts got, by whether they had been used before.
# TYPE enricher_http_connections_total counter
enricher_http_connections_total{function="content",pipeline="p",reused="false"} 1
enricher_http_connections_total{function="content",pipeline="p",reused="true"} 3
enricher_http_connections_total{function="mine",pipeline="p",reused="false"} 0
enricher_http_connections_total{function="mine",pipeline="p",reused="true"} 0
# HELP enricher_http_retries_total HTTP attempts that are made again, by what made it necessary; hold: a Retry-After of the host or a failed try of one whose breaker is open, recent: retry_recent, room: a connection lost while its answer waited for room, all no attempts.
# TYPE enricher_http_retries_total counter
enricher_http_retries_total{function="content",pipeline="p",reason="connection"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="empty_response"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="hold"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="invalid_response"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="no_content"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="not_found"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="rate_limited"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="recent"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="room"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="timeout"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="too_large"} 0
enricher_http_retries_total{function="content",pipeline="p",reason="unexpected_status"} 1
enricher_http_retries_total{function="mine",pipeline="p",reason="connection"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="empty_response"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="hold"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="invalid_response"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="no_content"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="not_found"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="rate_limited"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="recent"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="room"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="timeout"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="too_large"} 0
enricher_http_retries_total{function="mine",pipeline="p",reason="unexpected_status"} 0
`

func TestMetricsBeginAtZeroAndAgreeWithWhatHappened(t *testing.T) {
	answers := []int{503, 200, 404, 418}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		code := answers[0]
		answers = answers[1:]
		w.WriteHeader(code)
		if code == 200 {
			_, _ = w.Write([]byte("1"))
		}
	}))
	defer srv.Close()
	reg := prometheus.NewPedanticRegistry()
	c := asynchttp.NewClient(asynchttp.ClientConfig{Workers: 2, Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": "p"}, reg)})
	defer c.Close()
	f := build(t, c.HTTP(), "url: "+srv.URL+"\ninto: .r\nretry: {attempts: 2, initial: 1ms, max: 1ms}")
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	count := func(name string) int {
		n, err := testutil.GatherAndCount(reg, name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	names := []string{"enricher_http_request_duration_seconds", "enricher_http_retries_total", "enricher_http_connections_total"}
	var before []int
	for _, n := range names {
		before = append(before, count(n))
	}
	for range 3 {
		drive(t.Context(), f, `{}`)
	}
	resp, err := c.For("mine").Get("http://127.0.0.1:1/")
	if err == nil {
		_ = resp.Body.Close()
		t.Error("something answers on port 1")
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(countersAfterwards), names[1:]...); err != nil {
		t.Error(err)
	}
	if got := counts(t, reg, names[0], "content"); !slices.Equal(got, []string{"200=1", "404=1", "4xx=1", "503=1"}) {
		t.Errorf("attempts by code %v", got)
	}
	if got := counts(t, reg, names[0], "mine"); !slices.Equal(got, []string{"none=1"}) {
		t.Errorf("attempts of the Go function by code %v", got)
	}
	for i, n := range names {
		if after := count(n); after != 2*before[i] {
			t.Errorf("%s has %d series for two functions, had %d for one: a series was not there at start", n, after, before[i])
		}
	}
	if again := asynchttp.NewClient(asynchttp.ClientConfig{Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": "p"}, reg)}); again == nil {
		t.Error("no second client on the same registry")
	}
}

// counts lists the codes of a function that have counted something.
func counts(t *testing.T, reg prometheus.Gatherer, name, function string) []string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if n := m.GetHistogram().GetSampleCount(); n > 0 && labels["function"] == function {
				out = append(out, labels["code"]+"="+string(rune('0'+n)))
			}
		}
	}
	return out
}
