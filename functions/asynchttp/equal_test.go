package asynchttp_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/a0c75104/enricher/event"
)

func TestHeadersThatEventsChooseArePartOfWhatIsEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(func(r *http.Request, _ int) (*http.Response, error) {
			return reply(200, fmt.Sprintf("%q", r.Header.Get("Authorization")))
		})
		f, reg := caching(t, api, "url: http://api/\ninto: .r\nheaders: {Authorization: 'Bearer \\(.token)', X-Const: 'c', X-Trace: '\\($key)-\\(\"t\")'}\ncache: {ttl: 1h}\n")
		for _, tc := range []struct{ key, token string }{{"k", "ann"}, {"k", "bob"}, {"k", "ann"}, {"l", "ann"}} {
			got := driveWith(t.Context(), f, make(chan struct{}, 1), keyed(tc.key, `{"token":"`+tc.token+`"}`))
			if want := `{"token":"` + tc.token + `","r":"Bearer ` + tc.token + `"}`; got.value != want {
				t.Errorf("got %s, %v, want %s", got.value, got.err, want)
			}
		}
		if got := found(t, reg); got != "hit 1, miss 3" {
			t.Errorf("counted %s", got)
		}
	})
}

func TestBodyAndQueryArePartOfWhatIsEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(0, 200, `1`))
		f, _ := caching(t, api, "url: http://api/\nquery: {q: '\\(.q)'}\nmethod: POST\nidempotent: true\nbody: .b\ninto: .r\ncache: {ttl: 1h}\n")
		for _, value := range []string{`{"q":1,"b":1}`, `{"q":1,"b":2}`, `{"q":2,"b":1}`, `{"q":1,"b":1,"other":1}`} {
			drive(t.Context(), f, value)
		}
		if len(api.calls) != 3 {
			t.Errorf("%d requests, want three: the last is that of the first", len(api.calls))
		}
	})
}

func TestATokenThatIsReplacedChangesNoKeptAnswerAndIsShownNowhere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	token := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	token("first-secret")
	refused := ""
	api := newAsked(func(r *http.Request, _ int) (*http.Response, error) {
		switch proof := r.Header.Get("Authorization"); {
		case proof == refused:
			return reply(401, "")
		case r.URL.Path == "/gone":
			return reply(404, "nothing for "+proof)
		default:
			return reply(200, `{"said":"`+proof+`"}`)
		}
	})
	f, reg := caching(t, api, "url: http://api/\\(.p)\nselect: .none\ninto: .r\nauth: {bearer_file: "+file+"}\ncache: {ttl: 1h, negative_ttl: 1h}\n")
	ask := func(p string) {
		got := drive(t.Context(), f, `{"p":"`+p+`"}`)
		if got.kind() != event.NotFound || strings.Contains(got.err.Error(), "secret") || !strings.Contains(got.err.Error(), "Bearer ***") {
			t.Errorf("%s: %v, want the answer with the token masked", p, got.err)
		}
	}
	ask("gone")
	ask("there")
	token("second-secret")
	refused = "Bearer first-secret"
	ask("other") // has the token replaced
	if n := len(api.calls); n != 4 {
		t.Errorf("%d requests, want that one was refused", n)
	}
	ask("gone")
	ask("there")
	if got := found(t, reg); got != "miss 3, negative_hit 2" {
		t.Errorf("counted %s, want that a new token finds what is kept", got)
	}
}
