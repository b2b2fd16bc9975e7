package pagecontent_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	example = "../../examples/page-content.yaml"
	source  = "mediawiki.page_change.v1"
	sink    = "mediawiki.page_content_change.v1"
	errs    = "page-content-enrich.error"
	group   = "page-content-enrich"
	patient = 30 * time.Second
)

// real returns one of the real events, on one line as they travel.
func real(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		t.Fatalf("reading %q: %v", path, err)
	}
	return line.String()
}

// api stands in for all wikis: whatever host is dialled, it is who answers, over TLS.
type api struct {
	server *httptest.Server

	mu      sync.Mutex // guards all below
	answers []answer   // the next ones; the last is given again and again
	calls   []string   // what was asked for
	dialled []string   // who was meant
}

// answer is one answer of a wiki. The zero status is 200.
type answer struct {
	status int
	header map[string]string
	body   string
}

func newAPI(t *testing.T, answers []answer) *api {
	a := &api{answers: answers}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" https://"+r.Host+r.URL.String())
	if len(a.answers) == 0 {
		http.Error(w, "nobody should ask", http.StatusTeapot)
		return
	}
	now := a.answers[0]
	if len(a.answers) > 1 {
		a.answers = a.answers[1:]
	}
	for name, value := range now.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(max(now.status, http.StatusOK))
	_, _ = io.WriteString(w, now.body) // a caller that is gone has its own test
}

// transport is a network on which every address is the API's.
func (a *api) transport(t *testing.T) http.RoundTripper {
	roots := x509.NewCertPool()
	roots.AddCert(a.server.Certificate())
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, // the name in the test certificate
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			a.mu.Lock()
			a.dialled = append(a.dialled, addr)
			a.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, a.server.Listener.Addr().String())
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// result is what became of the event.
type result struct {
	outcome string // emitted, dropped or error
	record  *kgo.Record
}

// enrich runs the pipeline of a file, as it is but for its brokers, over one event.
func enrich(t *testing.T, file string, a *api, in *kgo.Record) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	p, err := pipeline.Load(file, pipeline.Options{Set: []string{"kafka.brokers=embedded", "process[0].http.retry.initial=1ms"}})
	if err != nil {
		t.Fatal(err)
	}
	embedded := &pipeline.Embedded{}
	stream, closeAll, err := p.Build(pipeline.Deps{Logger: slog.New(slog.DiscardHandler), Embedded: embedded, Transport: a.transport(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(embedded.Addrs()...), kgo.ConsumeTopics(sink, errs))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, in).FirstErr(); err != nil {
		t.Fatalf("writing the event: %v", err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- stream.Run(running) }()

	r := result{}
	for tick := time.NewTicker(2 * time.Millisecond); r.outcome == "" && ctx.Err() == nil; <-tick.C {
		switch s := stream.Status(); {
		case s.Emitted == 1:
			r.outcome = "emitted"
		case s.Dropped == 1:
			r.outcome = "dropped"
		case s.Errors == 1:
			r.outcome = "error"
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("running the example: %v", err)
	}
	if err := closeAll(); err != nil {
		t.Errorf("closing the example: %v", err)
	}
	r.record = only(ctx, t, client)
	return r
}

// only returns the record that is in the topics of results and errors, nil if there is none. The event
// that made it must be committed.
func only(ctx context.Context, t *testing.T, client *kgo.Client) *kgo.Record {
	t.Helper()
	admin := kadm.NewClient(client)
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatalf("reading the committed offsets: %v", err)
	}
	var done int64
	committed.Each(func(o kadm.OffsetResponse) { done += max(o.At, 0) })
	if done != 1 {
		t.Errorf("%d events are committed, want 1", done)
	}
	ends, err := admin.ListEndOffsets(ctx, sink, errs)
	if err != nil {
		t.Fatalf("reading the ends of the topics: %v", err)
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	if n > 1 {
		t.Errorf("%d records were written, want at most 1", n)
	}
	if n == 0 {
		return nil
	}
	fetched := client.PollRecords(ctx, 1)
	if err := fetched.Err(); err != nil {
		t.Fatalf("reading back: %v", err)
	}
	return fetched.Records()[0]
}

// headersOf writes headers as text, in order, the error's time left out: it is checked by itself.
func headersOf(t *testing.T, r *kgo.Record) []string {
	t.Helper()
	var out []string
	for _, h := range r.Headers {
		if h.Key == "enricher.error.time" {
			at, err := time.Parse(time.RFC3339Nano, string(h.Value))
			if err != nil || time.Since(at) > patient || at.Location() != time.UTC {
				t.Errorf("enricher.error.time is %q, want the present in UTC (%v)", h.Value, err)
			}
			continue
		}
		out = append(out, fmt.Sprintf("%s: %s", h.Key, h.Value))
	}
	return out
}

// same compares two texts and shows where they part.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s differs at byte %d:\n got %s\nwant %s\n(got … %.80q)", what, at, got, want, got[max(at-20, 0):])
}

func sameList(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
