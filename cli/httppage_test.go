package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func followHTTP(t *testing.T, bin string) {
	api := httptest.NewServer(&pages{})
	defer api.Close()
	others := httptest.NewServer(http.HandlerFunc(answerRequests))
	defer others.Close()
	teams := httptest.NewServer(&teams{asked: map[string]int{}})
	defer teams.Close()
	r := newReader(t, bin, "API="+api.URL, "PROFILES="+others.URL, "SIDECAR="+others.URL, "USERS="+others.URL, "TEAMS="+teams.URL, "HTTPS_PROXY=", "HTTP_PROXY=", "https_proxy=", "http_proxy=")
	write(t, r.dir, "client.secret", "open sesame\n")
	blocks := blocksOf(t, "../docs/http.md", map[string]int{"yaml": 11, "console": 5})
	for i := range blocks { // the page cannot know at which port
		blocks[i].text = strings.ReplaceAll(blocks[i].text, "GET API/", "GET "+strings.TrimPrefix(api.URL, "http://")+"/")
		blocks[i].text = strings.ReplaceAll(blocks[i].text, "GET USERS/", "GET "+strings.TrimPrefix(others.URL, "http://")+"/")
	}
	r.follow(blocks)
	if n := api.Config.Handler.(*pages).lagged.Load(); n != 1 {
		t.Errorf("the API lagged %d times, want once, so that a failure in a 200 was tried again", n)
	}
}

// pages is the API that docs/http.md asks.
type pages struct{ lagged atomic.Int32 }

func (a *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.lagged.CompareAndSwap(0, 1) {
		_, _ = io.WriteString(w, `{"error":{"code":"maxlag"}}`)
		return
	}
	switch r.URL.Query().Get("rev") {
	case "1":
		_, _ = io.WriteString(w, `{"page":{"text":"one"}}`)
	case "2":
		_, _ = io.WriteString(w, `{"deleted":true}`)
	case "4":
		w.WriteHeader(http.StatusUnavailableForLegalReasons)
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "no such page")
	}
}

// teams is the API that says how often it was asked.
type teams struct {
	mu    sync.Mutex // guards asked
	asked map[string]int
}

func (a *teams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[r.URL.Path]++
	name := map[string]string{"/team/7": "Owls", "/team/8": "Bears"}[r.URL.Path]
	fmt.Fprintf(w, `{"name":%q,"asked":%d}`, name, a.asked[r.URL.Path])
}

// answerRequests is the API of docs/http.md that wants a token, its token server, the one that answers for several at
// once, and a sidecar that says what it was asked for.
func answerRequests(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/token":
		id, secret, _ := r.BasicAuth()
		if id != "enricher" || secret != "open+sesame" || r.FormValue("scope") != "profiles.read" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"t","token_type":"bearer","expires_in":60}`)
	case r.URL.Path == "/profile" && r.Header.Get("Authorization") == "Bearer t" && r.FormValue("user") == "ada & co" && len(r.Form["field"]) == 2:
		fmt.Fprint(w, `{"name":"Ada","language":"en"}`)
	case r.URL.Path == "/users" && r.FormValue("ids") == "2,1,3,4": // once for all, or there is no answer
		fmt.Fprint(w, `{"users":[{"id":1,"name":"Ada"},{"id":2,"name":"Grace"},{"id":4,"name":"Eve","blocked":true}]}`)
	case r.URL.Path == "/w/api.php" && r.Header.Get("X-Forwarded-Proto") == "https":
		fmt.Fprintf(w, "%q", r.Host+r.RequestURI)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
