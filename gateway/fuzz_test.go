package gateway_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/gateway"
)

// Whatever is asked is answered in one of the two forms that clients know, and never by a fault of the gateway. Without
// the token nothing is done.
func FuzzRequest(f *testing.F) {
	s, _ := one(f)
	job := &asked{id: someID, picture: picture("orders", gateway.Created, gateway.Running)}
	v := vertexIDs(f, s, someID)
	for _, path := range golden {
		path, query, _ := strings.Cut(path, "?")
		path = fillIn(strings.NewReplacer("J", someID, "V", v[1], "B", other), path)
		f.Add("GET", path, query, "{}")
	}
	for _, what := range acts {
		method, path, _ := strings.Cut(strings.ReplaceAll(what, "/J", "/"+someID), " ")
		path, query, _ := strings.Cut(path, "?")
		f.Add(method, path, query, `{"savepoint":false,"drain":true,"triggerId":"`+other+`"}`)
	}
	f.Add("PUT", "/jobs/"+someID+"/resource-requirements", "", `{"`+v[1]+`":{"parallelism":{"lowerBound":1e3,"upperBound":-1}}}`)
	f.Add("PATCH", "//v1/jobs/"+someID+"/rescaling", "parallelism=99999999999999999999", "")
	f.Add("POST", "/login", "", "token=%zz")
	f.Add("GET", "/%2e%2e/x", "get=%&agg=;", "\x00")
	guarded := serve(f, loopback, gateway.Config{Access: gateway.Access{TokenFile: write(f, "token", "t")}}, job)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		for _, of := range []*served{s, guarded} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader(body))
			r.Method, r.Host = method, loopback
			r.URL = &url.URL{Path: path, RawQuery: query}
			if plain, err := url.PathUnescape(path); err == nil {
				r.URL.Path, r.URL.RawPath = plain, path
			}
			w := httptest.NewRecorder()
			of.ServeHTTP(w, r)
			if w.Code >= 500 && w.Code != http.StatusNotImplemented {
				t.Errorf("%s %q %q %q: %d %s", method, path, query, body, w.Code, w.Body)
			}
			if of == guarded && job.asked() != "" {
				t.Errorf("%s %q did something without a token", method, path)
			}
			if !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
				continue
			}
			var fields map[string]json.RawMessage
			err := json.Unmarshal(w.Body.Bytes(), &fields)
			_, isError := fields["errors"]
			if !json.Valid(w.Body.Bytes()) || w.Code >= 300 && (err != nil || !isError || len(fields) != 1) || w.Code < 300 && isError {
				t.Errorf("%s %q %q %q: %d %s", method, path, query, body, w.Code, w.Body)
			}
		}
	})
}
