package asynchttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/a0c75104/enricher/event"
)

// issuer is a token server and the API that takes its tokens.
type issuer struct {
	mu       sync.Mutex
	valid    string        // the token that the API takes
	asked    []http.Header // for a token, with the form below "Form"
	calls    int           // to the API
	refused  int
	same     bool          // gives the same token again
	down     bool          // gives none
	garbage  string        // is what it gives
	bodies   []string      // that the API took
	released chan struct{} // closed: tokens are given
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/token" {
		<-i.released
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case r.URL.Path != "/token":
		i.calls++
		if r.Header.Get("Authorization") != "Bearer "+i.valid {
			i.refused++
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		i.bodies = append(i.bodies, string(body))
		_, _ = w.Write([]byte(`{"ok":true}`))
	case i.down:
		i.asked = append(i.asked, nil)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"hush is no secret of mine"}`))
	case i.garbage != "":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(i.garbage))
	default:
		h := r.Header.Clone()
		h.Set("Form", string(body))
		i.asked = append(i.asked, h)
		if !i.same || i.valid == "" {
			i.valid = fmt.Sprintf("t%d", len(i.asked))
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": i.valid, "token_type": "Bearer", "expires_in": 3600})
	}
}

// revoke makes the API refuse the tokens that were given.
func (i *issuer) revoke() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.valid = "revoked"
}

func open() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func oauth(url string) string {
	return "url: " + url + "/api\ninto: .r\nretry: {attempts: 3, initial: 1ms, max: 1ms}\n" +
		"auth: {oauth2: {token_url: '" + url + "/token?key=hush', client_id: me, client_secret: hush, scopes: [read, write], audience: profiles, params: {resource: r}}}\n"
}

func TestOneTokenServesAllCalls(t *testing.T) {
	i := &issuer{released: make(chan struct{})}
	url, client, _ := serve(t, i.ServeHTTP)
	f := build(t, client, oauth(url))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if got := drive(t.Context(), f, `{}`); got.err != nil || got.attempts != 1 {
					t.Errorf("got %v after %d attempts", got.err, got.attempts)
				}
			}
		})
	}
	close(i.released)
	wg.Wait()
	if len(i.asked) != 1 || i.calls != 40 || i.refused != 0 {
		t.Fatalf("%d requests for a token, %d calls, %d refused; want 1, 40, 0", len(i.asked), i.calls, i.refused)
	}
	const form = "audience=profiles&grant_type=client_credentials&resource=r&scope=read+write"
	if h := i.asked[0]; h.Get("Form") != form || !strings.HasPrefix(h.Get("Authorization"), "Basic ") {
		t.Errorf("asked with %v, want the form %s", h, form)
	}
}

func TestRefusedTokenIsReplacedOnceForAllAndCostsNoAttempt(t *testing.T) {
	i := &issuer{released: open()}
	url, client, _ := serve(t, i.ServeHTTP)
	f := build(t, client, oauth(url)+"method: POST\nbody: .")
	if got := drive(t.Context(), f, `{"n":0}`); got.err != nil {
		t.Fatal(got.err)
	}
	i.revoke()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := drive(t.Context(), f, `{"n":1}`); got.err != nil || got.attempts != 1 {
				t.Errorf("got %v after %d attempts", got.err, got.attempts)
			}
		})
	}
	wg.Wait()
	if len(i.asked) != 2 {
		t.Errorf("%d requests for a token, want 2", len(i.asked))
	}
	if want := slices.Concat([]string{`{"n":0}`}, slices.Repeat([]string{`{"n":1}`}, 8)); !slices.Equal(i.bodies, want) {
		t.Errorf("the API got %v, want %v", i.bodies, want)
	}
}

func TestTokenThatStaysRefusedIsNotAskedForAgainAndAgain(t *testing.T) {
	i := &issuer{released: open(), same: true}
	url, client, _ := serve(t, i.ServeHTTP)
	f := build(t, client, oauth(url))
	i.valid = "t0"
	if got := drive(t.Context(), f, `{}`); got.err != nil {
		t.Fatal(got.err)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer api.Close()
	f = build(t, client, strings.Replace(oauth(url), url+"/api", api.URL, 1))
	before := len(i.asked)
	for range 50 {
		got := drive(t.Context(), f, `{}`)
		if got.kind() != event.UnexpectedStatus || got.status != http.StatusUnauthorized || got.attempts != 1 {
			t.Fatalf("got %v, status %d after %d attempts; want %s of a 401", got.err, got.status, got.attempts, event.UnexpectedStatus)
		}
	}
	// One at first, one because of the first 401; more only as seconds pass on a busy machine.
	if n := len(i.asked) - before; n > 10 {
		t.Errorf("%d requests for a token by 50 calls", n)
	}
}

func TestTokenThatCannotBeHadIsAConnectionErrorWithoutSecrets(t *testing.T) {
	for _, tc := range []struct {
		name, message string
		i             *issuer
	}{
		{"refused", "getting a token from token_url: status 400: check client_id", &issuer{down: true}},
		{"no token in it", "getting a token from token_url: the answer holds no usable access_token", &issuer{garbage: `{"hush":1}`}},
		{"no JSON", "getting a token from token_url: the answer holds no usable access_token", &issuer{garbage: `hush`}},
		{"line break in it", "getting a token from token_url: the answer holds no usable access_token", &issuer{garbage: `{"access_token":"hush\nX: y"}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.i.released = open()
			url, client, _ := serve(t, tc.i.ServeHTTP)
			f := build(t, client, oauth(url)+"method: POST\nbody: .") // not idempotent: yet it was never sent
			got := drive(t.Context(), f, `{}`)
			if got.kind() != event.Connection || got.attempts != 3 || !strings.Contains(got.err.Error(), tc.message) || strings.Contains(got.err.Error(), "hush") {
				t.Errorf("got %v after %d attempts, want %s with %q after 3", got.err, got.attempts, event.Connection, tc.message)
			}
			if tc.i.calls != 0 || len(tc.i.asked) > 4 {
				t.Errorf("%d calls without a token, %d requests for one; want none, and few", tc.i.calls, len(tc.i.asked))
			}
		})
	}
	f := build(t, nil, strings.ReplaceAll(oauth("http://127.0.0.1:1"), "attempts: 3", "attempts: 1"))
	if got := drive(t.Context(), f, `{}`); got.kind() != event.Connection || strings.Contains(got.err.Error(), "hush") {
		t.Errorf("no server: got %v, want %s", got.err, event.Connection)
	}
}

func TestCredentialsGoToTheHostOfTheRequestAlone(t *testing.T) {
	var elsewhere, back atomic.Value
	var first string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Store(r.Header.Get("Authorization"))
		http.Redirect(w, r, first+"/back", http.StatusFound)
	}))
	defer other.Close()
	url, client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" {
			back.Store(r.Header.Get("Authorization"))
			_, _ = w.Write([]byte("1"))
			return
		}
		http.Redirect(w, r, other.URL, http.StatusFound)
	})
	first = url
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ auth, want string }{
		{"basic: {username: me, password: hush}", "Basic bWU6aHVzaA=="},
		{"bearer_file: " + token, "Bearer hush"},
	} {
		f := build(t, client, "url: "+url+"\ninto: .r\nauth: {"+tc.auth+"}\nallow_hosts: ['127.0.0.1:*']")
		if got := drive(t.Context(), f, `{}`); got.err != nil {
			t.Fatal(got.err)
		}
		if elsewhere.Load() != "" || back.Load() != tc.want {
			t.Errorf("%s: the other host saw %q, the own one %q; want none and %q", tc.auth, elsewhere.Load(), back.Load(), tc.want)
		}
	}
}

func TestReplacedBearerFileIsUsedWithoutARestart(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	client := cannedClient(func(r *http.Request) (*http.Response, error) {
		calls++
		if r.Header.Get("Authorization") != "Bearer new" {
			return reply(401, ``)
		}
		return reply(200, `1`)
	})
	f := build(t, client, "url: http://api/\ninto: .r\nretry: {attempts: 1}\nauth: {bearer_file: "+token+"}")
	write("old\n")
	if got := drive(t.Context(), f, `{}`); got.kind() != event.UnexpectedStatus || calls != 1 {
		t.Errorf("the same token: got %v after %d requests, want a 401 after one", got.err, calls)
	}
	write("new\n")
	if got := drive(t.Context(), f, `{}`); got.err != nil || got.attempts != 1 {
		t.Errorf("the new token: got %v after %d attempts", got.err, got.attempts)
	}
	for _, broken := range []string{"", "two tokens", "a\nb"} {
		write(broken)
		calls = 0
		f := build(t, client, "url: http://api/\ninto: .r\nretry: {attempts: 1}\nauth: {bearer_file: "+token+"}")
		if got := drive(t.Context(), f, `{}`); got.kind() != event.Connection || !strings.Contains(got.err.Error(), "reading bearer_file: ") || calls != 0 {
			t.Errorf("%q: got %v after %d requests, want %s without one", broken, got.err, calls, event.Connection)
		}
	}
}

// An API may repeat what it was asked with, and the message shows the beginning of what it said.
func TestNoMessageHoldsTheCredentialsThatAnAnswerRepeats(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("bearer-of-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	basic := "auth: {basic: {username: me, password: 'hush\"hush'}}\n"
	for _, c := range []struct{ name, auth, secret, says string }{
		{"a token", "auth: {bearer_file: " + file + "}\n", "bearer-of-a", `you sent Authorization: %s`},
		{"a token that the message cuts", "auth: {bearer_file: " + file + "}\n", "bearer", strings.Repeat("x", 185) + `%s`},
		{"a token that a failed expression cuts", "auth: {bearer_file: " + file + "}\n", "bear", `"xxxxxxxxxxxx%s"`},
		{"a password", basic, "hush", `the password hush"hush is wrong`},
		{"a password in base64", basic, "bWU6", `you sent %s`},
		{"a password within JSON", basic, "hush", `{"password":"hush\"hush","sent":"%s"}`},
	} {
		for _, status := range []int{200, 403} {
			client := cannedClient(func(r *http.Request) (*http.Response, error) {
				return reply(status, strings.ReplaceAll(c.says, "%s", r.Header.Get("Authorization")))
			})
			got := drive(t.Context(), build(t, client, "url: http://h/\ninto: .r\nselect: '.none? // tonumber'\n"+c.auth), `{}`)
			if got.err == nil || strings.Contains(got.err.Error(), c.secret) || !strings.Contains(got.err.Error(), "***") {
				t.Errorf("%s, status %d: %v, want a message with *** for %q", c.name, status, got.err, c.secret)
			}
		}
	}
}
