package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// api stands in for the page-content API of MediaWiki, with canned answers on loopback. What it answers
// depends on the number of the revision alone, so that every run sees the same.
type api struct {
	addr string
	http *http.Server

	mu    sync.Mutex    // guards tries
	tries map[int64]int // how often a revision was asked for

	ended chan struct{} // closed when the server has ended
}

// The times that the API takes.
const (
	usualDelay = 5 * time.Millisecond // to 25 ms
	slowDelay  = 1500 * time.Millisecond
)

func startAPI(ctx context.Context) (*api, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening the demo's API: %w", err)
	}
	a := &api{addr: l.Addr().String(), tries: map[int64]int{}, ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /w/api.php", a.answer)
	a.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(a.ended)
		_ = a.http.Serve(l) // ends with close
	}()
	return a, nil
}

func (a *api) close() {
	_ = a.http.Close() // nothing is left to be lost
	<-a.ended
}

// answer gives the content of a revision, or what such an API gives on a bad day.
func (a *api) answer(w http.ResponseWriter, r *http.Request) {
	rev, err := strconv.ParseInt(r.URL.Query().Get("revids"), 10, 64)
	if err != nil {
		http.Error(w, `{"error":{"code":"badinteger"}}`, http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.tries[rev]++
	first := a.tries[rev] == 1
	a.mu.Unlock()

	delay := usualDelay + time.Duration(rev%20)*time.Millisecond
	if rev%150 == 13 {
		delay = slowDelay
	}
	wait := time.NewTimer(delay)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case rev%1250 == 11 && first:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"code":"ratelimited"}}`)
	case rev%60 == 7 && first, rev%500 == 4:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error":{"code":"readonly"}}`)
	case rev%97 == 0:
		fmt.Fprintf(w, `{"batchcomplete":true,"query":{"badrevids":{"%d":{"revid":%d,"missing":true}}}}`, rev, rev)
	default:
		writeContent(w, rev)
	}
}

func writeContent(w http.ResponseWriter, rev int64) {
	type object = map[string]any
	page := object{"pageid": rev / 10, "ns": 0, "revisions": []object{{
		"revid": rev, "parentid": rev - 1,
		"slots": object{"main": object{
			"contentmodel": "wikitext", "contentformat": "text/x-wiki",
			"content": fmt.Sprintf("'''Revision %d''' is canned text of the demonstration.\n\n== History ==\nIt was written for this run.", rev),
		}},
	}}}
	// The client may be gone; it asks again then.
	_ = json.NewEncoder(w).Encode(object{"batchcomplete": true, "query": object{"pages": []object{page}}})
}
