package asynchttp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

// userAgent is sent unless headers say otherwise: some APIs refuse Go's own.
const userAgent = "enricher (+https://github.com/a0c75104/enricher)"

// Func calls an API for each event and puts the answer into it.
type Func struct {
	o          Options
	pool       *pool
	meters     *meters
	log        *slog.Logger
	allow      allowList
	timeout    time.Duration
	total      time.Duration
	repeatable bool
}

var (
	_ event.Func     = (*Func)(nil)
	_ event.ReadOnly = (*Func)(nil)
)

// ReadOnly implements event.ReadOnly.
func (f *Func) ReadOnly() {}

// Paths returns the plain paths of the value that the function reads or sets.
func (f *Func) Paths() []event.Path {
	paths := f.o.URL.Paths()
	for _, t := range f.o.Headers {
		paths = append(paths, t.Paths()...)
	}
	if !f.o.Body.IsZero() {
		paths = append(paths, f.o.Body.Paths()...)
	}
	for _, t := range f.o.Into.Targets {
		paths = append(paths, t.Path.Path)
	}
	return paths
}

// ReadsValue reports that the function needs a value that is JSON, since its answer goes into it: without
// this an API would be called for an event that can take no answer.
func (f *Func) ReadsValue() bool { return true }

// MaxAttempts says that the function bounds its attempts itself.
func (f *Func) MaxAttempts() int { return -1 }

// CallTimeout is the longest that one call of Process takes: all tries that it may make itself, and the
// waits between them. A step's own timeout must not be shorter.
func (f *Func) CallTimeout() time.Duration {
	return triesPerCall * (f.timeout + shortWait)
}

// request is what is sent for an event, the same at each try.
type request struct {
	url    *url.URL
	header http.Header
	body   []byte // nil: none
}

// Process implements event.Func.
func (f *Func) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	req, err := f.build(ctx, ev)
	if err != nil {
		return nil, err
	}
	c := newCall(ctx, f, ev, req)
	if err := c.held(); err != nil {
		return nil, err
	}
	if err := c.run(); err != nil {
		return nil, err
	}
	if err := f.take(ctx, ev, c); err != nil {
		return nil, err
	}
	return []*event.Event{ev}, nil
}

// build makes the request of an event.
func (f *Func) build(ctx context.Context, ev *event.Event) (*request, error) {
	u, err := f.o.URL.URL(ctx, ev)
	if err != nil {
		return nil, err
	}
	if !f.allow.allows(u) {
		return nil, event.Rejectf(event.Rejected, "host %q is not allowed: allow_hosts does not name it", u.Host)
	}
	req := &request{url: u, header: http.Header{"User-Agent": {userAgent}}}
	if err := f.body(ctx, ev, req); err != nil {
		return nil, err
	}
	for name, t := range f.o.Headers {
		v, err := t.Text(ctx, ev)
		if err != nil {
			return nil, within(err, "header "+name)
		}
		for i := range len(v) {
			if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
				return nil, event.Rejectf(event.Rejected, "header %s: the value has a control character at byte %d", name, i)
			}
		}
		req.header.Set(name, v)
	}
	return req, nil
}

// body evaluates body. Text goes as it is, anything else as JSON. The bytes are a copy: the connection
// may still read them after the call, while the event is edited.
func (f *Func) body(ctx context.Context, ev *event.Event, req *request) error {
	if f.o.Body.IsZero() {
		return nil
	}
	raw, err := f.o.Body.JSON(ctx, ev)
	if err != nil {
		return err
	}
	if len(raw) == 0 || string(raw) == "null" {
		return event.Rejectf(event.MissingField, "the body %q is missing or null", f.o.Body.String())
	}
	if raw[0] != '"' {
		req.body = bytes.Clone(raw)
		req.header.Set("Content-Type", "application/json")
		return nil
	}
	text, err := event.Unquote(raw)
	if err != nil {
		return event.Reject(event.InvalidEvent, err)
	}
	req.body = []byte(text)
	req.header.Set("Content-Type", "text/plain; charset=utf-8")
	return nil
}

// take puts the answer into the event.
func (f *Func) take(ctx context.Context, ev *event.Event, c *call) error {
	answer, err := readAs(f.o.As, c.got.header, c.got.body)
	if err != nil {
		return c.reject(err)
	}
	if !f.o.Select.IsZero() {
		part, err := f.o.Select.OnJSON(ctx, answer, ev)
		if err != nil {
			return c.reject(within(err, "selecting from the answer"))
		}
		if part == nil {
			return c.reject(event.Rejectf(event.NotFound, "the answer has nothing at %q", f.o.Select.String()))
		}
		answer = part
	}
	values := make([][]byte, len(f.o.Into.Targets))
	for i, t := range f.o.Into.Targets {
		values[i] = answer
		if t.Value.IsZero() {
			continue
		}
		if values[i], err = onAnswer(ctx, t.Value.Expr, answer, ev); err != nil {
			return c.reject(within(err, fmt.Sprintf("reading %q from the answer", t.Value.String())))
		}
	}
	for i, t := range f.o.Into.Targets {
		if err := ev.Set(t.Path.Path, values[i]); err != nil {
			return c.unset(err)
		}
	}
	return nil
}

// onAnswer evaluates e on the answer; what is missing is null, as in jq.
func onAnswer(ctx context.Context, e *jq.Expr, answer []byte, ev *event.Event) ([]byte, error) {
	v, err := e.OnJSON(ctx, answer, ev)
	if err == nil && v == nil {
		v = []byte("null")
	}
	return v, err
}
