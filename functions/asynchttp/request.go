package asynchttp

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	"github.com/a0c75104/enricher/event"
)

// userAgent is sent unless headers say otherwise: some APIs refuse Go's own.
const userAgent = "enricher (+https://github.com/a0c75104/enricher)"

// request is what is sent for an event, the same at each try.
type request struct {
	url    *url.URL
	host   string // the server it comes to, after routes: holds and limits go by it
	header http.Header
	body   []byte // nil: none
}

// build makes the request of an event.
func (f *Func) build(ctx context.Context, ev *event.Event) (*request, error) {
	u, err := f.o.URL.URL(ctx, ev)
	if err != nil {
		return nil, err
	}
	if !f.mayCall(u) {
		return nil, event.Rejectf(event.Rejected, "host %q is not allowed: allow_hosts does not name it", u.Host)
	}
	if len(f.o.Query) > 0 {
		values, err := f.o.Query.values(ctx, ev, "query")
		if err != nil {
			return nil, err
		}
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += values.Encode()
	}
	req := &request{url: u, host: f.routes.host(u), header: http.Header{"User-Agent": {userAgent}}}
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

// body evaluates form or body. Text goes as it is, anything else as JSON. The bytes are a copy: the connection
// may still read them after the call, while the event is edited.
func (f *Func) body(ctx context.Context, ev *event.Event, req *request) error {
	if len(f.o.Form) > 0 {
		values, err := f.o.Form.values(ctx, ev, "form")
		if err != nil {
			return err
		}
		req.body = []byte(values.Encode())
		req.header.Set("Content-Type", "application/x-www-form-urlencoded")
		return nil
	}
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

// values evaluates all parameters. What names the option is in the messages.
func (p Params) values(ctx context.Context, ev *event.Event, option string) (url.Values, error) {
	out := make(url.Values, len(p))
	for name, list := range p {
		for _, t := range list {
			v, err := t.Text(ctx, ev)
			if err != nil {
				return nil, within(err, option+" "+name)
			}
			out.Add(name, v)
		}
	}
	return out, nil
}
