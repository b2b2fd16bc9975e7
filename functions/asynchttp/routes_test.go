package asynchttp_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/a0c75104/enricher/event"
)

func TestMoreSpecificRouteRules(t *testing.T) {
	var to, host string
	client := cannedClient(func(r *http.Request) (*http.Response, error) {
		to, host = r.URL.String(), r.Host
		return reply(200, `{}`)
	})
	f := build(t, client, `
url: https://\(.h)/\(.a)/\(.b)?q=\(.a)
into: .r
allow_hosts: [plain.org]
routes:
  https://*.example.org: http://subdomains:1
  https://a.example.org: http://whole:2
  https://a.example.org/v1: https://first/
  https://a.example.org/v1/x: http://longest:4
  http://a.example.org/v1: http://otherscheme:5
`)
	for _, tc := range []struct{ value, to, host string }{
		{`{"h":"b.example.org","a":"v1","b":"y"}`, "http://subdomains:1/v1/y?q=v1", "b.example.org"},
		{`{"h":"a.example.org","a":"v2","b":"y"}`, "http://whole:2/v2/y?q=v2", "a.example.org"},
		{`{"h":"a.example.org","a":"v1","b":"y"}`, "https://first/v1/y?q=v1", "a.example.org"},
		{`{"h":"a.example.org:443","a":"v1","b":"y"}`, "https://first/v1/y?q=v1", "a.example.org:443"},
		{`{"h":"a.example.org","a":"v1","b":"x"}`, "http://longest:4/v1/x?q=v1", "a.example.org"},
		{`{"h":"a.example.org","a":"v1","b":"xy"}`, "https://first/v1/xy?q=v1", "a.example.org"},
		{`{"h":"a.example.org","a":"v1/x","b":"x"}`, "http://whole:2/v1%2Fx/x?q=v1%2Fx", "a.example.org"},
		{`{"h":"plain.org","a":"v1","b":"x"}`, "https://plain.org/v1/x?q=v1", "plain.org"},
		{`{"h":"a.example.org:8443","a":"v1","b":"x"}`, "", ""},
		{`{"h":"example.org","a":"v1","b":"x"}`, "", ""},
		{`{"h":"a.example.org.evil.com","a":"v1","b":"x"}`, "", ""},
	} {
		to, host = "", ""
		got := drive(t.Context(), f, tc.value)
		if to != tc.to || host != tc.host || (got.kind() == event.Rejected) != (tc.to == "") {
			t.Errorf("%s went to %s for %q, %v; want %s for %q", tc.value, to, host, got.err, tc.to, tc.host)
		}
	}
}

func TestRoutedServerIsAskedForTheOriginalHostAlsoOnRedirects(t *testing.T) {
	var seen []string
	sidecar, client, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Host+r.URL.Path+" "+r.Header.Get("X-Key"))
		switch r.URL.Path {
		case "/start":
			http.Redirect(w, r, "/relative", http.StatusFound)
		case "/relative":
			w.Header().Set("Location", "http://api.example.org/absolute")
			w.WriteHeader(http.StatusFound)
		default:
			_, _ = w.Write([]byte("1"))
		}
	})
	f := build(t, client, "url: http://api.example.org/start\ninto: .r\nheaders: {X-Key: k}\nroutes: {http://api.example.org: '"+sidecar+"'}")
	got := drive(t.Context(), f, `{}`)
	want := "api.example.org/start k, api.example.org/relative k, api.example.org/absolute k"
	if got.err != nil || strings.Join(seen, ", ") != want {
		t.Errorf("got %v, the server saw %v; want %s", got.err, seen, want)
	}
}

func TestRouteToASocketSharesItsConnectionsOverAllHosts(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Host)) }))
	_ = srv.Listener.Close()
	srv.Listener = listener
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	_, client, _ := serve(t, nil)
	f := build(t, client, "url: https://\\(.h)/\ninto: .r\nas: text\nroutes: {'https://*.example.org': 'unix://"+path+"'}")
	for _, h := range []string{"a", "b", "c"} {
		got := drive(t.Context(), f, `{"h":"`+h+`.example.org"}`)
		if want := `{"h":"` + h + `.example.org","r":"` + h + `.example.org"}`; got.value != want {
			t.Errorf("got %s, %v; want %s", got.value, got.err, want)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestHoldIsThatOfTheRoutedServer(t *testing.T) {
	calls := 0
	client := cannedClient(func(*http.Request) (*http.Response, error) {
		calls++
		return reply(429, ``, "Retry-After", "30")
	})
	f := build(t, client, `{url: 'http://\(.h)/', into: .r, allow_hosts: [c.org], routes: {"http://a.org": "http://sidecar", "http://b.org": "http://sidecar"}}`)
	held := func(host string) bool {
		_, err := f.Process(t.Context(), newEvent(`{"h":"`+host+`"}`))
		_, ok := errors.AsType[*event.HoldError](err)
		return ok
	}
	if !held("a.org") || calls != 1 {
		t.Fatalf("the first call: %d requests, want a hold after 1", calls)
	}
	if !held("b.org") || calls != 1 {
		t.Errorf("%d requests: a host behind the same server was called", calls)
	}
	if held("c.org"); calls != 2 {
		t.Errorf("%d requests: a host that is not behind that server was held", calls)
	}
}
