package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/a0c75104/enricher/cli"
)

var took = regexp.MustCompile(`(within|in|until) [0-9][^\n: ]*`)

// With --send the real requests are made, tried again as in a run, and shown with their answers, which the functions get whole.
func TestTryShowsEachAttemptAndItsAnswer(t *testing.T) {
	var asked atomic.Int64
	long := `"` + strings.Repeat("long ", 1000) + `"`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("X-Key") != "open-sesame":
			w.WriteHeader(http.StatusForbidden)
		case asked.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case string(body) == "2":
			_, _ = io.WriteString(w, long)
		default:
			_, _ = io.WriteString(w, `"got `+string(body)+` as open-sesame"`)
		}
	}))
	defer api.Close()
	t.Setenv("TRY_KEY", "open-sesame")
	dir := t.TempDir()
	write(t, dir, "p.yaml", `name: p
source: {file: {path: "-"}}
process:
  - name: ask
    http: {url: `+api.URL+`/x, method: POST, idempotent: true, body: .n, headers: {X-Key: "${TRY_KEY}"}, into: .a}
sink: {file: {path: "-"}}
`)
	var out, errs bytes.Buffer
	args := []string{"try", filepath.Join(dir, "p.yaml"), "--send"}
	if status := cli.Run(t.Context(), args, strings.NewReader(`{"n":1}`), &out, &errs); status != 0 || errs.Len() > 0 {
		t.Fatalf("status %d, and it says\n%s", status, &errs)
	}
	post := "POST " + api.URL + "/x\n    Content-Type: application/json\n    X-Key: ${TRY_KEY}\n    1\n"
	want := "event          stdin, offset 1, 7 bytes\nwindow         none: each event goes at once\nask            is called\n" +
		"    " + post + "    503 Service Unavailable within T\n    attempt 2: " + post + "    200 OK within T\n    \"got 1 as ${TRY_KEY}\"\n" +
		"output         34 bytes\n    {\"n\":1,\"a\":\"got 1 as ${TRY_KEY}\"}\n"
	if got := took.ReplaceAllString(out.String(), "$1 T"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	out.Reset()
	if status := cli.Run(t.Context(), args, strings.NewReader(`{"n":2}`), &out, &errs); status != 0 {
		t.Fatalf("status %d, and it says\n%s", status, &errs)
	}
	if got := out.String(); !strings.Contains(got, `{"n":2,"a":`+long+"}\n") || strings.Count(got, "long ") >= 2000 || !strings.Contains(got, "long…\n") {
		t.Errorf("a long answer is shown in part, and is whole for the event: got\n%s", got)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("the API was asked %d times, want 3", n)
	}

	// Without it nothing is.
	out.Reset()
	if status := cli.Run(t.Context(), args[:2], strings.NewReader(`{"n":2}`), &out, &errs); status != 0 || asked.Load() != 3 {
		t.Errorf("status %d, asked %d times: without --send nothing is sent", status, asked.Load())
	}
}
