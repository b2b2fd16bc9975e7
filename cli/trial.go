package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

// shownBody is how many bytes of a body are shown.
const shownBody = 2000

// trial shows what becomes of one event.
type trial struct {
	p    *pipeline.Pipeline
	rec  *streammanager.Record
	send bool
	stop func() // ends the trial

	mu      sync.Mutex // guards all below
	w       io.Writer
	err     error  // of w
	dropped string // where the event was
	placed  bool   // key and window were shown
	unsent  bool   // a request was only shown
}

// line writes a line about a step. Values from outside the file are not shown.
func (t *trial) line(what, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(what, format, args...)
}

func (t *trial) write(what, format string, args ...any) {
	text := strings.ReplaceAll(t.p.Hide(fmt.Sprintf(format, args...)), "\n", "\n    ")
	if what != "" {
		text = fmt.Sprintf("%-14s %s", what, text)
	} else {
		text = "    " + text
	}
	if _, err := fmt.Fprintln(t.w, text); err != nil && t.err == nil {
		t.err = fmt.Errorf("writing the output: %w", err)
	}
}

// watch shows a step of the event.
func (t *trial) watch(n pipeline.Note) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n.Kind {
	case pipeline.Asked:
		t.asked(n)
	case pipeline.Keyed:
		t.keyed(n)
	case pipeline.Grouped:
		if n.Err == nil {
			t.placed = true
			t.write("window", "shared by events with %s; %s", n.Text, t.p.Windows())
		}
	case pipeline.Calls:
		t.place()
		if n.Attempt > 1 {
			t.write(n.Place, "is called again, attempt %d", n.Attempt)
		} else {
			t.write(n.Place, "is called")
		}
	case pipeline.Returned:
		t.returned(n)
	}
}

func (t *trial) asked(n pipeline.Note) {
	switch {
	case n.Err != nil: // the event says it in the end
	case n.Place == "filter" && n.Yes:
		t.write("filter", "keeps it")
	case n.Place == "filter":
		t.dropped = "filter"
	default:
		t.place()
		if !n.Yes {
			t.write(n.Place, "passes it on untouched: when is false")
		}
	}
}

func (t *trial) keyed(n pipeline.Note) {
	switch {
	case n.Err != nil: // the event says it in the end
	case !n.Yes:
		t.dropped = "partition_by"
	case n.Keyless:
		t.write("key", "none, so that it has no order")
	default:
		t.write("key", "%s", n.Text)
	}
	if n.Err == nil && n.Yes {
		t.rec.Key = nil // it is not what orders
	}
}

// place says in which window the event is, once.
func (t *trial) place() {
	if t.placed {
		return
	}
	t.placed = true
	if t.rec.Key != nil {
		t.write("key", "%q, that of the record", t.rec.Key)
	}
	t.write("window", "%s", t.p.Windows())
}

func (t *trial) returned(n pipeline.Note) {
	var again *event.RetryError
	var hold *event.HoldError
	switch {
	case n.Err == nil && len(n.Events) == 0:
		t.dropped = n.Place
	case n.Err == nil && len(n.Events) > 1:
		t.write("", "makes %d events of it", len(n.Events))
	case n.Err == nil:
	case t.unsent:
	case errors.As(n.Err, &again):
		t.write("", "asks for another attempt in %v: %v", again.After.Round(time.Millisecond), again.Err)
	case errors.As(n.Err, &hold):
		t.write("", "is held until %s: %v", hold.Until.UTC().Format(time.RFC3339), hold.Err)
	}
}

// end shows the outcome.
func (t *trial) end(f *pipeline.Fate, stopped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.Failure == nil && t.dropped == "" {
		t.place()
	}
	if t.unsent {
		t.write("not sent", "--send sends it, and shows the answer and the result")
		return // what comes of a request that was not sent says nothing
	}
	switch {
	case f.Failure != nil:
		e := f.Failure
		more := to(&f.ErrorRecord)
		if e.Status != 0 {
			more = fmt.Sprintf(", status %d", e.Status) + more
		}
		if e.Attempts > 1 {
			more = fmt.Sprintf(", after %d attempts", e.Attempts) + more
		}
		t.write("error event", "%s in %s%s: %s", e.Type, e.Function, more, e.Message)
	case f.Dropped && t.dropped != "":
		t.write("dropped", "by %s", t.dropped)
	case f.Dropped:
		t.write("dropped", "it is no event any more")
	case f.Unfinished && stopped:
		t.write("unfinished", "stopped before its end")
	case f.Unfinished:
		t.write("unfinished", "the pipeline ended before it")
	}
	for i := range f.Outputs {
		o := &f.Outputs[i]
		value := string(o.Value)
		if o.Value == nil {
			value = "null: a tombstone"
		}
		t.write("output", "%d bytes%s\n%s", len(o.Value), to(o), value)
	}
}

// to says where a record goes.
func to(r *streammanager.Record) string {
	text := ""
	if r.Topic != "" {
		text += ", to topic " + r.Topic
	}
	if r.Key != nil {
		text += fmt.Sprintf(", key %q", r.Key)
	}
	return text
}

// around shows what is asked and answered. Without --send nothing is asked.
func (t *trial) around(network http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		body, err := t.request(r)
		if err != nil {
			return nil, err
		}
		if !t.send {
			t.mu.Lock()
			t.unsent = true
			t.mu.Unlock()
			t.stop()
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		r = r.Clone(r.Context())
		r.Body = body
		r.Header.Del("Accept-Encoding") // the transport then asks for it itself, and gives what can be read
		began := time.Now()
		resp, err := network.RoundTrip(r)
		took := time.Since(began).Round(time.Millisecond)
		if err != nil {
			t.line("", "no answer within %v: %v", took, err)
			return nil, err
		}
		begin := make([]byte, shownBody+1)
		n, err := io.ReadFull(resp.Body, begin)
		rest := io.Reader(resp.Body)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			rest = failing{err}
		}
		t.line("", "%s within %v%s", resp.Status, took, shownText(begin[:n]))
		resp.Body = &joined{Reader: io.MultiReader(bytes.NewReader(begin[:n]), rest), Closer: resp.Body}
		return resp, nil
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// joined is a body whose beginning was read.
type joined struct {
	io.Reader
	io.Closer
}

// failing is the rest of a body that broke off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// opens are headers that open doors: what they say is not shown.
var opens = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// request shows a request and returns its body anew.
func (t *trial) request(r *http.Request) (io.ReadCloser, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close() // it is read
		if err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("%s %s", r.Method, r.URL)
	if c := pipeline.CallOf(r.Context()); c != nil && c.Attempt() > 1 {
		text = fmt.Sprintf("attempt %d: %s", c.Attempt(), text)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		value := strings.Join(r.Header[name], ", ")
		if slices.Contains(opens, name) {
			value = "***"
		}
		if name != "Accept-Encoding" && name != "User-Agent" {
			text += fmt.Sprintf("\n%s: %s", name, value)
		}
	}
	t.line("", "%s%s", text, shownText(body))
	if r.Body == nil {
		return nil, nil
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// shownText is the beginning of a body as it is shown behind what is said of it.
func shownText(body []byte) string {
	switch {
	case len(body) == 0:
		return ""
	case !utf8.Valid(body[:min(len(body), shownBody-utf8.UTFMax)]):
		return "\n(no text)"
	case len(body) > shownBody:
		return "\n" + strings.ToValidUTF8(string(body[:shownBody]), "") + "…"
	}
	return "\n" + strings.TrimSuffix(string(body), "\n")
}
