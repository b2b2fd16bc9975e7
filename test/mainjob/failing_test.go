//go:build unix

package mainjob_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// failingAPI answers one event in a hundred with 500, until it is asked for again.
type failingAPI struct {
	mu            sync.Mutex // guards all below
	seen          map[string]bool
	calls, failed int
	connections   int
}

func (a *failingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	a.mu.Lock()
	a.calls++
	again := a.seen[id]
	a.seen[id] = true
	fails := !again && len(id) > 1 && id[len(id)-2:] == "00"
	if fails {
		a.failed++
	}
	a.mu.Unlock()
	if fails {
		http.Error(w, `{"error": "something broke"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%s,"text":"content of event %s"}`, id, id)
}

func (a *failingAPI) state(_ net.Conn, s http.ConnState) {
	if s == http.StateNew {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.connections++
	}
}

func (a *failingAPI) came() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

// Calls that fail cost no connections: those of the pool serve all.
func TestFailingCallsOpenNoFurtherConnections(t *testing.T) {
	rate, length := 300, 5*time.Second
	if *full {
		rate, length = 1000, time.Minute
	}
	a := &failingAPI{seen: map[string]bool{}}
	server := httptest.NewUnstartedServer(a)
	server.Config.ConnState = a.state
	server.Start()
	t.Cleanup(server.Close)
	b := startBroker(t, topics())
	f := &feed{
		t: t, b: b, w: startWorker(t, b, &job.API{URL: server.URL}), came: a.came, rate: rate, keys: 10_000, maker: job.NewMaker(t, 1, 0),
	}
	f.flow(length)
	must(t, b.client.Flush(t.Context()))
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
	d, _ := checkDelivered(t, b, f.loaded)
	a.mu.Lock()
	defer a.mu.Unlock()
	cut := a.calls - len(f.loaded) - a.failed // made again since the group changed on a busy machine: each costs its connection
	if a.failed < len(f.loaded)/200 || a.connections > 64+cut {
		t.Errorf("%d of %d calls failed, %d were cut off and %d connections were made, want no more than the 64 workers have", a.failed, a.calls, cut, a.connections)
	}
	t.Logf("failing calls: events=%d %v calls=%d failed=%d cut=%d connections=%d in %v", len(f.loaded), d, a.calls, a.failed, cut, a.connections, length)
}
