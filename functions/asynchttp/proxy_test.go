package asynchttp_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// proxy answers for all hosts of http, and tunnels what goes to https to one server.
type proxy struct {
	https string // host:port

	mu   sync.Mutex // guards seen
	seen []string   // method, target and login of each request
	done sync.WaitGroup
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = append(p.seen, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
	p.mu.Unlock()
	switch {
	case r.Method != http.MethodConnect:
		fmt.Fprintf(w, "%q", "by the proxy: "+r.URL.String())
	case strings.HasPrefix(r.Host, "refused."):
		w.WriteHeader(http.StatusForbidden)
	default:
		w.WriteHeader(http.StatusOK)
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		p.done.Go(func() { tunnel(near, p.https) })
	}
}

func tunnel(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
	both.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
	both.Wait()
}

// The variables of a proxy are read once in a process, so the calls are made by a process of their own.
func TestRequestsGoThroughTheProxyOfTheEnvironment(t *testing.T) {
	const inside = "ENRICHER_TEST_BEHIND_PROXY"
	if direct := os.Getenv(inside); direct != "" {
		callThroughProxy(t, direct)
		return
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q", "tunnelled: "+r.Host+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
	}))
	defer secure.Close()
	direct := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", "direct: "+r.Host) }))
	defer direct.Close()
	p := &proxy{https: strings.TrimPrefix(secure.URL, "https://")}
	defer p.done.Wait()
	srv := httptest.NewServer(p)
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	login := strings.Replace(srv.URL, "http://", "http://me:hush@", 1)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+direct.URL+" "+ca, "HTTP_PROXY="+login, "HTTPS_PROXY="+login, "NO_PROXY=", "http_proxy=", "https_proxy=", "no_proxy=")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("the calls behind the proxy: %v\n%s", err, out)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	want := []string{
		"GET http://api.example/a Basic bWU6aHVzaA==", "CONNECT example.com:443 Basic bWU6aHVzaA==",
		"CONNECT refused.example:443 Basic bWU6aHVzaA==", "CONNECT refused.example:443 Basic bWU6aHVzaA==",
	}
	if !slices.Equal(p.seen, want) {
		t.Errorf("the proxy saw %q, want %q", p.seen, want)
	}
}

func callThroughProxy(t *testing.T, direct string) {
	direct, ca, _ := strings.Cut(direct, " ")
	c := asynchttp.NewClient(asynchttp.ClientConfig{})
	defer c.Close()
	for _, tc := range []struct{ name, options, value string }{
		{"http", "url: http://api.example/a", `{"r":"by the proxy: http://api.example/a"}`},
		{"https, by a tunnel", "url: https://example.com/b\ntls: {ca_file: " + ca + "}", `{"r":"tunnelled: example.com/b "}`},
		{"the same host", "url: " + direct + "/c", `{"r":"direct: ` + strings.TrimPrefix(direct, "http://") + `"}`},
		{"a sidecar", "url: https://api.example/d\nroutes: {https://api.example: '" + direct + "'}", `{"r":"direct: api.example"}`},
	} {
		if got := drive(t.Context(), build(t, c.HTTP(), tc.options+"\ninto: .r"), `{}`); got.value != tc.value {
			t.Errorf("%s: got %s, %v, want %s", tc.name, got.value, got.err, tc.value)
		}
	}
	// No request was made, so a POST is tried again too.
	refused := build(t, c.HTTP(), "url: https://refused.example/\nmethod: POST\nbody: .\ninto: .r\nretry: {attempts: 2, initial: 1ms, max: 1ms}")
	if got := drive(t.Context(), refused, `{}`); got.kind() != event.Connection || got.attempts != 2 || strings.Contains(got.err.Error(), "hush") {
		t.Errorf("a proxy that refuses: got %v after %d attempts, want %s after 2, without its password", got.err, got.attempts, event.Connection)
	}
}
