package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/gateway"
	"github.com/a0c75104/enricher/streammanager"
)

// address is a listener that nobody connects to: requests are handed to the gateway itself.
type address string

func (a address) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (a address) Close() error              { return nil }
func (a address) Addr() net.Addr            { return a }
func (a address) Network() string           { return "tcp" }
func (a address) String() string            { return string(a) }

const loopback = "127.0.0.1:8081"

// asked is a job that notes what it is asked, and looks as its test says.
type asked struct {
	mu      sync.Mutex
	id      string
	picture gateway.Picture
	calls   []string
	err     error         // of all but Look
	stop    chan struct{} // Stop waits for it; nil: it does not wait
}

func (j *asked) note(call string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls = append(j.calls, call)
}

func (j *asked) asked() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.calls, " ")
}

func (j *asked) ID() string { return j.id }

func (j *asked) Look(context.Context) (gateway.Picture, error) { return j.picture, nil }

func (j *asked) Cancel(context.Context) error { j.note("cancel"); return j.err }

func (j *asked) Stop(ctx context.Context, how gateway.Stop) (gateway.Stopped, error) {
	if how.Drain {
		j.note("drain")
	} else {
		j.note("suspend")
	}
	if j.stop != nil {
		select {
		case <-j.stop:
		case <-ctx.Done():
			return gateway.Stopped{}, ctx.Err()
		}
	}
	return gateway.Stopped{Unfinished: 7}, j.err
}

func (j *asked) Rescale(_ context.Context, n int) error {
	j.note("rescale:" + string(rune('0'+n%10)))
	return j.err
}

// process is one of which everything is known.
func process(id string) gateway.Process {
	return gateway.Process{
		ID: id, Endpoint: "10.0.0.1:8081", Started: time.Now(), Seen: time.Now().Add(time.Hour), CPUs: 4,
		Memory: gateway.Memory{Machine: 8 << 30, Free: 4 << 30, HeapUsed: 1000, HeapHeld: 2000, Limit: 1 << 30, Other: 300, Collections: 12, CollectingMs: 34},
	}
}

// flow is one of a minute.
func flow(n int64, busy, back float64) streammanager.Flow {
	f := streammanager.Flow{RecordsIn: n, RecordsOut: n - 1, BytesIn: 100 * n, BytesOut: 90 * n}
	f.Busy, f.Backpressured = time.Duration(busy*float64(time.Minute)), time.Duration(back*float64(time.Minute))
	f.Idle = time.Minute - f.Busy - f.Backpressured
	return f
}

// picture is a job that began an hour ago and has run since then, at two workers.
func picture(name string, way ...gateway.State) gateway.Picture {
	c := gateway.NewCourse()
	for _, s := range way {
		if err := c.To(s); err != nil {
			panic(err)
		}
	}
	stages := streammanager.Stages{
		Source:  streammanager.Stage{Total: flow(1000, 0.1, 0.6), Last: flow(50, 0.1, 0.6)},
		Process: streammanager.Stage{Total: flow(900, 0.75, 0.2), Last: flow(40, 0.75, 0.2)},
		Sink:    streammanager.Stage{Total: flow(800, 0.5, 0), Last: flow(30, 0.5, 0)},
	}
	p := gateway.Picture{
		Name: name, History: c.History(), Labels: gateway.Labels{Source: "in", Process: "content, jq", Sink: "out"}, Restart: "after 1s to 60s, for ever",
		Settings: []gateway.Setting{{Key: "workers", Value: "64"}, {Key: "kafka.sasl.password", Value: "hidden1"}, {Key: "gateway.token_file", Value: "/run/token"}},
	}
	for _, id := range []string{"worker-0", "worker-1"} {
		p.Workers = append(p.Workers, gateway.Worker{Process: process(id), State: p.State, Status: streammanager.Status{
			Read: 1000, Emitted: 800, Dropped: 100, Errors: 3, Outputs: 800, Unfinished: 97, InFlightEvents: 97, InFlightBytes: 9700, Workers: 64, Busy: 48, Partitions: 3, Stages: stages,
		}})
	}
	return p
}

// served is a gateway that is asked without a network.
type served struct {
	*gateway.Gateway
	log journal
}

type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func serve(t testing.TB, addr string, cfg gateway.Config, jobs ...gateway.Job) *served {
	t.Helper()
	s := &served{}
	cfg.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	if cfg.Worker == "" {
		cfg.Worker = "worker-0"
	}
	cfg.Version, cfg.Commit = "v1.2.3", "abcdef0"
	var err error
	if s.Gateway, err = gateway.New(cfg, address(addr), jobs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reply is what came of a request.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends "METHOD path" with a body and headers as "Name: value"; Host is the loopback address unless one says else.
func (s *served) ask(t testing.TB, what, body string, headers ...string) reply {
	t.Helper()
	method, target, _ := strings.Cut(what, " ")
	r := httptest.NewRequest(method, "http://x/", strings.NewReader(body))
	path, query, _ := strings.Cut(target, "?")
	plain, err := url.PathUnescape(path)
	if err != nil {
		t.Fatal(err)
	}
	r.URL, r.Host = &url.URL{Path: plain, RawPath: path, RawQuery: query}, loopback
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	res := w.Result()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(text)}
}

// errorsOf returns the texts of an error, which must have the one form that all have.
func (r reply) errorsOf(t testing.TB) []string {
	t.Helper()
	var body map[string][]string
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || len(body) != 1 || len(body["errors"]) == 0 {
		t.Errorf("%d %s: no error body (%v)", r.status, r.body, err)
	}
	if got := r.header.Get("Content-Type"); got != "application/json; charset=UTF-8" {
		t.Errorf("the content type of an error is %q", got)
	}
	return body["errors"]
}

// refused fails unless r is an error of a status whose first text has a part.
func (r reply) refused(t testing.TB, status int, part string) {
	t.Helper()
	if texts := r.errorsOf(t); r.status != status || len(texts) == 0 || !strings.Contains(texts[0], part) {
		t.Errorf("got %d %s, want %d and %q", r.status, r.body, status, part)
	}
}

// is fails unless r is a success with a body.
func (r reply) is(t testing.TB, status int, body string) {
	t.Helper()
	if r.status != status || r.body != body {
		t.Errorf("got %d %s, want %d %s", r.status, r.body, status, body)
	}
	if got := r.header.Get("Content-Type"); got != "application/json; charset=UTF-8" {
		t.Errorf("the content type is %q", got)
	}
}

var errTest = errors.New("test failure")

// contextWith is that of a request which came in at an address.
func contextWith(r *http.Request, addr string) context.Context {
	return context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(address(addr)))
}

// listening is a gateway on a socket. stop ends it and waits for its end.
func listening(t testing.TB, l net.Listener, cfg gateway.Config, jobs ...gateway.Job) (g *gateway.Gateway, stop func()) {
	t.Helper()
	cfg.Logger, cfg.Worker = slog.New(slog.DiscardHandler), "worker-0"
	g, err := gateway.New(cfg, l, jobs...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { g.Run(ctx); close(done) }()
	return g, func() {
		cancel()
		<-done
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}
