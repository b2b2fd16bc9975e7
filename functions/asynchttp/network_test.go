package asynchttp_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// serve starts a server on loopback and a client for it, and counts the server's connections.
func serve(t *testing.T, h http.HandlerFunc) (url string, client *http.Client, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	c := asynchttp.NewClient(asynchttp.ClientConfig{Workers: 8})
	t.Cleanup(func() { c.Close(); srv.Close() })
	return srv.URL, c.HTTP(), connections
}

func TestFailingCallsLeaveThePoolOpen(t *testing.T) {
	var served atomic.Int64
	url, client, connections := serve(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		switch {
		case strings.HasPrefix(r.URL.Path, "/bad"):
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000))
		case strings.HasPrefix(r.URL.Path, "/missing"):
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(r.URL.Path, "/moved"):
			http.Redirect(w, r, "http://elsewhere/", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/large"):
			_, _ = w.Write(bytes.Repeat([]byte("1"), 100_000))
		default:
			_, _ = w.Write([]byte("1"))
		}
	})
	f := build(t, client, "url: "+url+"/\\(.p)\ninto: .r\nmax_response: 10B\nretry: {attempts: 2, initial: 1ms, max: 1ms}")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 250 {
				path := map[int]string{50: "bad", 100: "missing", 150: "large", 200: "moved"}[i]
				if path == "" {
					path = "good"
				}
				drive(t.Context(), f, `{"p":"`+path+`"}`)
			}
		})
	}
	wg.Wait()
	if got := served.Load(); got != 8*251 {
		t.Errorf("%d requests served, want %d", got, 8*251)
	}
	// A call may dial beside a connection that comes back at the same moment. Were failing calls to close
	// the pool, each of the 32 would cost up to 8 connections.
	if got := connections.Load(); got > 16 {
		t.Errorf("%d connections for 8 workers: failing calls opened new ones", got)
	}
}

func TestGoClientCannotCloseThePool(t *testing.T) {
	url, client, connections := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("1")) })
	for range 5 {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func TestLimitCountsDecompressedBytes(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	url, client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	f := build(t, client, "url: "+url+"/\\(.p)\ninto: .r\nas: base64\nmax_response: 1MiB")
	if got := drive(t.Context(), f, `{"p":"bomb"}`); got.kind() != event.TooLarge || got.attempts != 1 {
		t.Errorf("%d bytes that unpack to 64 MiB: got %v, want %s", bomb.Len(), got.err, event.TooLarge)
	}
}

func TestSlowBodyIsBoundByTheAttempt(t *testing.T) {
	release := make(chan struct{})
	url, client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"a":`))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	f := build(t, client, "url: "+url+"\ninto: .r\ntimeout: 50ms\nretry: {attempts: 2, initial: 1ms, max: 1ms}")
	got := drive(t.Context(), f, `{}`)
	if got.kind() != event.Timeout || got.attempts != 2 || got.took > 5*time.Second {
		t.Errorf("got %v after %d attempts and %v, want %s after 2", got.err, got.attempts, got.took, event.Timeout)
	}
}

func TestRedirectSendsTheBodyAgain(t *testing.T) {
	url, client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/next", http.StatusTemporaryRedirect)
			return
		}
		_, _ = w.Write([]byte(r.Method + " " + string(body)))
	})
	f := build(t, client, "url: "+url+"/\nmethod: POST\nbody: .\nas: text\ninto: .r")
	got := drive(t.Context(), f, `{"a":1}`)
	if want := `{"a":1,"r":"POST {\"a\":1}"}`; got.value != want || got.attempts != 1 {
		t.Errorf("got %s, %v after %d attempts; want %s", got.value, got.err, got.attempts, want)
	}
}

func TestRedirectKeepsToAllowedHostsWithoutCredentials(t *testing.T) {
	var seen http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		_, _ = w.Write([]byte("1"))
	}))
	defer other.Close()
	var target atomic.Value
	url, client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.Load().(string), http.StatusFound)
	})
	host := strings.TrimPrefix(other.URL, "http://")
	headers := "\nheaders: {Authorization: Bearer hush, X-Api-Key: hush, Accept: application/json}"
	allowed := build(t, client, "url: "+url+"/?key=hush\ninto: .r\nallow_hosts: ['"+host+"']"+headers)
	alone := build(t, client, "url: "+url+"/\ninto: .r"+headers)

	target.Store(other.URL + "/x")
	if got := drive(t.Context(), alone, `{}`); got.kind() != event.Rejected || got.status != http.StatusFound || seen != nil {
		t.Errorf("redirect to a host that is not allowed: got %v, status %d; want %s without a request", got.err, got.status, event.Rejected)
	}
	if got := drive(t.Context(), allowed, `{}`); got.err != nil {
		t.Fatalf("redirect to an allowed host: %v", got.err)
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Referer"} {
		if v := seen.Get(name); v != "" {
			t.Errorf("the other host saw %s: %s", name, v)
		}
	}
	if seen.Get("Accept") != "application/json" {
		t.Errorf("the other host saw Accept %q, want it kept", seen.Get("Accept"))
	}
	target.Store(strings.Replace(other.URL, "http://", "http://user:hush@", 1))
	if got := drive(t.Context(), allowed, `{}`); got.kind() != event.Rejected || strings.Contains(got.err.Error(), "hush") {
		t.Errorf("redirect with a user name: got %v, want %s", got.err, event.Rejected)
	}
	target.Store("/again")
	if got := drive(t.Context(), allowed, `{}`); got.kind() != event.UnexpectedStatus || got.attempts != 1 {
		t.Errorf("redirects without end: got %v, want %s", got.err, event.UnexpectedStatus)
	}
}

func TestRefusedCertificateIsNotTriedAgain(t *testing.T) {
	var handshakes atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = discardLog()
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			handshakes.Add(1)
		}
	}
	srv.StartTLS()
	defer srv.Close()
	for _, rule := range []string{"", "\nerrors: [{on: [connection], do: retry}]"} {
		f, err := asynchttp.New(functions.Env{Name: "content"}, options(t, "url: "+srv.URL+"/?key=hush\ninto: .r"+rule))
		if err != nil {
			t.Fatal(err)
		}
		before := handshakes.Load()
		got := drive(t.Context(), f, `{}`)
		if n := handshakes.Load() - before; got.kind() != event.Connection || got.attempts != 1 || n != 1 || strings.Contains(got.err.Error(), "hush") {
			t.Errorf("%q: got %v after %d attempts, %d handshakes; want %s after one", rule, got.err, got.attempts, n, event.Connection)
		}
	}
}

func TestEarlyAnswerWithTheBodyUnreadIsNoRace(t *testing.T) {
	url, client, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	f := build(t, client, "url: "+url+"\nmethod: PUT\nbody: .\ninto: .r\nbreaker: {calls: 0}\nretry: {attempts: 3, initial: 1ms, max: 1ms, share: 100}")
	value := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for range 20 {
		got := drive(t.Context(), f, value)
		if k := got.kind(); (k != event.UnexpectedStatus && k != event.Connection) || got.attempts != 3 {
			t.Fatalf("got %v after %d attempts, want 3", got.err, got.attempts)
		}
	}
}

func TestExhaustedCallsLeaveNoConnectionBehind(t *testing.T) {
	var open atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("overloaded"))
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	srv.Start()
	defer srv.Close()
	c := asynchttp.NewClient(asynchttp.ClientConfig{Workers: 8})
	defer c.Close()
	f := build(t, c.HTTP(), "url: "+srv.URL+"\ninto: .r\nbreaker: {calls: 0}\nretry: {attempts: 2, initial: 1ms, max: 1ms, share: 100}")
	for range 1000 {
		if got := drive(t.Context(), f, `{}`); got.kind() != event.UnexpectedStatus || !strings.Contains(got.err.Error(), "overloaded") {
			t.Fatalf("got %v, want %s with the answer's text", got.err, event.UnexpectedStatus)
		}
	}
	if n := open.Load(); n > 1 {
		t.Errorf("%d connections are open after 1000 exhausted calls one by one, want 1", n)
	}
}

func TestGoAwaySendsTheBodyAgain(t *testing.T) {
	var served, empty atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && string(body) != `{"a":1}` {
			empty.Add(1)
		}
		served.Add(1)
		if r.ProtoMajor == 2 {
			w.Header().Set("Connection", "close") // HTTP/2: GOAWAY
		}
		_, _ = w.Write([]byte("1"))
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = discardLog()
	srv.StartTLS()
	defer srv.Close()
	c := asynchttp.NewClient(asynchttp.ClientConfig{Transport: srv.Client().Transport})
	f := build(t, c.HTTP(), "url: "+srv.URL+"\nmethod: POST\nbody: .\ninto: .r\nretry: {attempts: 1}")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if got := drive(t.Context(), f, `{"a":1}`); got.err != nil {
					t.Errorf("got %v", got.err)
				}
			}
		})
	}
	wg.Wait()
	if served.Load() != 200 || empty.Load() != 0 {
		t.Errorf("%d requests served, %d without their body; want 200 and 0", served.Load(), empty.Load())
	}
}
