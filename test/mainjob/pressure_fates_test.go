//go:build unix

package mainjob_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/a0c75104/enricher/test/internal/job"
)

// fateAPI answers GET /FATE/ID as the fate wants, and remembers how.
type fateAPI struct {
	url, host string
	nobody    string // host:port where nothing listens

	mu          sync.Mutex       // guards what follows
	answers     map[string][]int // statuses by event; 0: none
	connections int
}

func startFateAPI(t *testing.T) *fateAPI {
	t.Helper()
	a := &fateAPI{answers: map[string][]int{}}
	server := httptest.NewUnstartedServer(a)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if s == http.StateNew {
			a.connections++
		}
	}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections() // calls that hang
		server.Close()
	})
	a.url, a.host = server.URL, strings.TrimPrefix(server.URL, "http://")
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	a.nobody = closed.Addr().String()
	must(t, closed.Close())
	return a
}

// statuses of the first attempt and of all later ones. 0 hangs.
var statuses = map[string][2]int{
	"healed": {503, 200}, "limited": {429, 200}, "held": {429, 200}, "gone": {404, 404}, "empty": {204, 204}, "broken": {500, 500},
	"teapot": {418, 418}, "busy": {429, 429}, "slow": {0, 0},
}

func (a *fateAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fate, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	a.mu.Lock()
	status := 200
	if both, ok := statuses[fate]; ok {
		status = both[min(len(a.answers[id]), 1)]
	}
	a.answers[id] = append(a.answers[id], status)
	a.mu.Unlock()
	if status == 0 {
		<-r.Context().Done()
		return
	}
	if fate == "held" {
		w.Header().Set("Retry-After", "0.2")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	switch fate {
	case "nothing":
		fmt.Fprint(w, `{"title":"nothing"}`)
	case "garbled":
		fmt.Fprint(w, `{"text":`)
	case "huge":
		fmt.Fprintf(w, `{"text":%q}`, strings.Repeat("huge ", 1_000))
	case "blank", "empty":
	default:
		fmt.Fprintf(w, `{"text":"content of %s"}`, id)
	}
}

// calls returns how many calls came in.
func (a *fateAPI) calls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, statuses := range a.answers {
		n += len(statuses)
	}
	return n
}

// checkHTTP compares the metrics of the http function to what came in here. What went to nobody was tried
// twice each, and got no connection.
func (a *fateAPI) checkHTTP(t *testing.T, m job.Families) {
	t.Helper()
	calls := float64(a.calls())
	a.mu.Lock()
	defer a.mu.Unlock()
	nobody := m.Value("enricher_errors_total", "type=connection")
	codes := map[string]float64{"none": 2 * nobody}
	reasons := map[string]float64{"connection": nobody}
	for _, statuses := range a.answers {
		for i, status := range statuses {
			codes[codeOf(status)]++
			if i+1 < len(statuses) {
				reasons[reasonOf(status)]++
			}
		}
	}
	same(t, "enricher_http_request_duration_seconds", m.ByLabel("enricher_http_request_duration_seconds", "function", "code"), of("content", codes))
	// Whether a Retry-After holds the host depends on what else it answers meanwhile.
	retries := m.ByLabel("enricher_http_retries_total", "function", "reason")
	retries["content rate_limited"] += retries["content hold"]
	delete(retries, "content hold")
	same(t, "enricher_http_retries_total", retries, of("content", reasons))
	used := m.ByLabel("enricher_http_connections_total", "function", "reused")
	if fresh, reused := used["content false"], used["content true"]; fresh+reused != calls || fresh < 1 || fresh > float64(a.connections) {
		t.Errorf("connections: %v fresh and %v reused, want the %v calls that came in over %d connections", fresh, reused, calls, a.connections)
	}
}

func of(function string, values map[string]float64) map[string]float64 {
	named := map[string]float64{}
	for name, v := range values {
		named[function+" "+name] = v
	}
	return named
}

func codeOf(status int) string {
	switch status {
	case 0:
		return "none"
	case http.StatusTeapot:
		return "4xx"
	}
	return fmt.Sprint(status)
}

func reasonOf(status int) string {
	switch status {
	case 0:
		return "timeout"
	case http.StatusTooManyRequests:
		return "rate_limited"
	}
	return "unexpected_status"
}
