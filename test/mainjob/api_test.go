//go:build unix

package mainjob_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// api is the slow thing that workers call: GET /page/KEY?id=ID.
type api struct {
	url   string
	delay time.Duration
	ended chan struct{} // lets hanging calls go at the end of the test

	mu       sync.Mutex // guards what follows
	calls    map[int]int
	answered map[int]int // by key
	total    int         // answers
	hanging  map[int]bool
	inside   int // calls in progress
	most     int // of them at once, at most
}

// startAPI serves on loopback until the test ends. Each call takes delay.
func startAPI(t *testing.T, delay time.Duration) *api {
	t.Helper()
	a := &api{
		delay: delay, ended: make(chan struct{}),
		calls: map[int]int{}, answered: map[int]int{}, hanging: map[int]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page/{key}", a.serve)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		close(a.ended)
		server.CloseClientConnections() // of workers that were killed
		server.Close()
	})
	a.url = server.URL
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.URL.Query().Get("id"))
	key, errKey := strconv.Atoi(r.PathValue("key"))
	if err != nil || errKey != nil {
		http.Error(w, "id and key are numbers", http.StatusBadRequest)
		return
	}
	hangs := a.enter(id, key)
	defer a.leave()
	answer := time.NewTimer(a.delay)
	defer answer.Stop()
	due := answer.C
	if hangs {
		due = nil
	}
	select {
	case <-due:
	case <-a.ended:
		return
	case <-r.Context().Done():
		return
	}
	a.mu.Lock()
	a.answered[key]++
	a.total++
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%d,"text":"content of event %d"}`, id, id)
}

func (a *api) enter(id, key int) (hangs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[id]++
	a.inside++
	a.most = max(a.most, a.inside)
	return a.hanging[key]
}

func (a *api) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside--
}

// hang makes calls of key hang until the caller gives up.
func (a *api) hang(key int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hanging[key] = true
}

// answers returns how many calls were answered.
func (a *api) answers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

// answersByKey returns how many calls of each key were answered.
func (a *api) answersByKey() map[int]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.answered)
}

// callsByID returns how often each event was asked for.
func (a *api) callsByID() map[int]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.calls)
}

// mostAtOnce returns the largest number of calls that were in progress together.
func (a *api) mostAtOnce() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most
}

// rate measures for a while how many calls are answered in a second.
func (a *api) rate(t *testing.T, while time.Duration) float64 {
	t.Helper()
	before, start := a.answers(), time.Now()
	select {
	case <-time.After(while):
	case <-t.Context().Done():
	}
	return float64(a.answers()-before) / time.Since(start).Seconds()
}
