package pipeline_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/pipeline"
)

// echo answers every request with a refusal that repeats it.
type echo struct{}

func (echo) RoundTrip(r *http.Request) (*http.Response, error) {
	text := r.URL.String() + " " + r.Header.Get("X-Key")
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		text = string(body)
	}
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r,
	}, nil
}

// A message of a run goes to the log and to the error topic, where many may read it.
func TestValuesOfVariablesStayOutOfTheMessagesOfARun(t *testing.T) {
	const key = "s3cr3t-and-long-enough-to-be-cut-in-a-message"
	getenv := func(name string) (string, bool) { return key, name == "KEY" }
	for _, tt := range []struct{ name, process, want string }{
		{"an expression", `jq: '.x = .a + "${KEY}"'`, `evaluating ".a + ${KEY}": cannot add: number (1) and string ("${KEY}"`},
		{"a program", `jq: 'map_values(. + "${KEY}")'`, `evaluating "map_values(. + ${KEY})"`},
		{"a condition", "{when: '.a + \"${KEY}\"', jq: .x = 1}", `evaluating ".a + ${KEY}"`},
		{"a body", `http: {url: 'http://h/', into: .r, method: POST, body: '{k: "${KEY}", n: (.a + "")}'}`, `evaluating "{k: ${KEY}, n:`},
		{"a query that is answered with itself", `http: {url: 'http://h/?k=${KEY}', into: .r}`, "GET h/: status 403 Forbidden"},
		{"a path", `http: {url: 'http://h/${KEY}/x', into: .r}`, "GET h/${KEY}/x: status 403"},
		{"a body that is answered with itself", `http: {url: 'http://h/', into: .r, method: POST, body: '{k: "${KEY}"}'}`, "POST h/: status 403 Forbidden"},
		{"a header that is answered with itself", `http: {url: 'http://h/', into: .r, headers: {X-Key: "${KEY}"}}`, "GET h/: status 403"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := pipeline.Load(write(t, "p.yaml", lines+"process:\n  - "+tt.process+"\n"), pipeline.Options{Getenv: getenv})
			if err != nil {
				t.Fatalf("loading:\n%v", err)
			}
			err = p.Run(t.Context(), pipeline.Deps{Logger: quiet, Stdin: strings.NewReader("{\"a\":1}\n"), Stdout: io.Discard, Transport: echo{}})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cr") {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}
