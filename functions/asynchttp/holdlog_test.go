package asynchttp_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// logged runs events through a function of its own and returns the lines it logged, without their times.
func logged(t *testing.T, answer canned, values ...string) []string {
	t.Helper()
	return loggedWith(t, "", answer, values...)
}

// loggedWith is logged with further options.
func loggedWith(t *testing.T, further string, answer canned, values ...string) []string {
	t.Helper()
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	f, err := asynchttp.New(functions.Env{Name: "content", HTTP: cannedClient(answer), Logger: log},
		options(t, `{url: 'http://\(.h)/p?token=hunter2', allow_hosts: ["*.org"], headers: {authorization: hunter2}, into: .r`+further+`}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if got := drive(t.Context(), f, v); got.err != nil {
			t.Fatalf("%s: %v", v, got.err)
		}
	}
	if strings.Contains(buf.String(), "hunter2") {
		t.Errorf("a credential is in the log:\n%s", buf.String())
	}
	return strings.Split(strings.TrimSuffix(buf.String(), "\n"), "\n")
}

func TestAHoldIsSaidWhenItBeginsAndWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := 3 // each a hold anew, and one to be told of
		lines := logged(t, func(*http.Request) (*http.Response, error) {
			if refusals--; refusals >= 0 {
				return reply(429, "", "Retry-After", "10")
			}
			return reply(200, `1`)
		}, `{"h":"a.org"}`, `{"h":"a.org"}`)
		want := []string{
			`level=WARN msg="a host asked to wait, its events are held" host=a.org status=429 until=`,
			`level=INFO msg="a host that asked to wait answers again" host=a.org after=30s`,
		}
		if len(lines) != len(want) {
			t.Fatalf("got %d lines:\n%s\nwant %q", len(lines), strings.Join(lines, "\n"), want)
		}
		for i, w := range want {
			if !strings.HasPrefix(lines[i], w) {
				t.Errorf("got  %s\nwant %s", lines[i], w)
			}
		}
	})
}

func TestAHostThatIsHeldAgainAndAgainIsSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, refuse := time.Now(), false
		lines := loggedWith(t, ", breaker: {calls: 0}", func(*http.Request) (*http.Response, error) {
			if refuse = !refuse && time.Since(began) < 5*time.Minute; refuse {
				return reply(503, "", "Retry-After", "1")
			}
			return reply(200, `1`)
		}, make300(`{"h":"a.org"}`)...)
		if len(lines) != 10 {
			t.Errorf("got %d lines in five minutes, want 5 holds and their ends:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

func TestHoldsOfManyHostsAreSaidWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var values []string
		for i := range 300 {
			values = append(values, fmt.Sprintf(`{"h":"h%d.org"}`, i))
		}
		seen := map[string]bool{}
		lines := logged(t, func(r *http.Request) (*http.Response, error) {
			if !seen[r.URL.Host] {
				seen[r.URL.Host] = true
				return reply(429, "", "Retry-After", "0.1")
			}
			return reply(200, `1`)
		}, values...) // all of it in half a minute
		if len(lines) != 40 {
			t.Errorf("got %d lines for 300 hosts in half a minute, want 20 holds and their ends", len(lines))
		}
	})
}

func make300(value string) []string {
	out := make([]string, 300)
	for i := range out {
		out[i] = value
	}
	return out
}
