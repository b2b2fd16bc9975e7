package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func followHTTP(t *testing.T, bin string) {
	api := httptest.NewServer(&pages{})
	defer api.Close()
	r := newReader(t, bin, "API="+api.URL)
	blocks := blocksOf(t, "../docs/http.md", map[string]int{"yaml": 3, "console": 1})
	for i := range blocks { // the page cannot know at which port
		blocks[i].text = strings.ReplaceAll(blocks[i].text, "GET API/", "GET "+strings.TrimPrefix(api.URL, "http://")+"/")
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
