package asynchttp

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
)

// class is what came of a try, beside the status.
type class int

const (
	gotAnswer   class = iota // an answer; its status says what it is
	gotEmpty                 // a good answer with nothing in it
	gotNotJSON               // a good answer that cannot be read as what it should be
	gotNoMatch               // a good answer in which select finds nothing
	gotTooLarge              // an answer over max_response
	gotTimeout               // no whole answer in time
	gotNone                  // no whole answer: the connection failed
	gotUnusable              // nothing that a rule could heal: a redirect that is not followed, a select that fails
	gotCut                   // nothing: the stream ended the call
)

// answer is what a try brought, as it came.
type answer struct {
	status  int // 0: none
	header  http.Header
	body    []byte // of a good answer, and of another that a rule may look into
	excerpt string // the beginning of an answer that is not good
	err     error  // why there is no whole answer
}

// outcome is what a try brought, as it was understood. Rules decide by it.
type outcome struct {
	answer
	class class
	kind  event.Type // of the error event, where no rule says another
	fault error      // what the error event says; nil: the answer is good
	json  []byte     // the answer as JSON text; nil: it could not be read
	part  []byte     // what select picked of json, or of item; of a request for many, the list of items
	each  bool       // of one event of many, whose request has a good answer
	item  []byte     // its item; nil: the answer has none
	// final says that no further try may help; unsent that the server cannot have carried the request out.
	final, unsent bool
}

// whole reports whether all of an answer came: its status then says something.
func (o *outcome) whole() bool { return o.class <= gotNoMatch }

// came reports whether the host answered, be it well or not.
func (o *outcome) came() bool { return o.class <= gotTooLarge || o.json != nil }

func good(status int) bool { return 200 <= status && status < 300 }

// without reports whether answers of a status have no body.
func without(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// receive reads what a try brought and closes it. Of an answer that is not good it reads no more than the
// beginning, unless a rule may look into it.
func (c *call) receive(resp *http.Response, err error) answer {
	c.letGo(0) // of a try before
	if err != nil {
		a := answer{err: err}
		if resp != nil { // a redirect that is not followed
			a.status = resp.StatusCode
		}
		return a
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	if good(a.status) {
		if a.body, a.err = c.read(resp, c.f.o.MaxResponse.Bytes()); a.err == nil {
			a.err = c.roomToUse(a.body)
		}
		return a
	}
	limit := int64(0)
	if looksInto(c.f.o.Errors, a.status) {
		limit = c.f.o.MaxResponse.Bytes()
	}
	if a.body, a.excerpt = c.readFailed(resp, limit); a.body != nil {
		a.err = c.roomToUse(a.body)
	}
	return a
}

// classify finds out what an answer is.
func (c *call) classify(a answer) outcome {
	o := outcome{answer: a, kind: kindOf(a.status)}
	switch {
	case a.err != nil:
		c.unanswered(&o)
	case good(a.status) && !without(a.status):
		c.parse(&o)
	default:
		o.unsent = a.status == http.StatusTooManyRequests || a.status == http.StatusTooEarly // so they say
		o.fault = statusError(&a)
		if a.body != nil {
			if text, err := readAs(c.f.o.As, a.header, a.body); err == nil {
				o.json = text
			}
		}
	}
	o.body = nil
	return o
}

// kindOf is the type of the error event that an answer of a status makes.
func kindOf(status int) event.Type {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return event.NotFound
	case http.StatusNoContent, http.StatusResetContent:
		return event.NoContent
	case http.StatusTooManyRequests:
		return event.RateLimited
	}
	return event.UnexpectedStatus
}

func statusError(a *answer) error {
	return quoting(errors.New(strings.TrimSpace(fmt.Sprintf("status %d %s", a.status, http.StatusText(a.status)))), a.excerpt)
}

// quoting adds the beginning of an answer to what is wrong with it.
func quoting(err error, excerpt string) error {
	if excerpt == "" {
		return err
	}
	return fmt.Errorf("%w: %q", err, excerpt)
}

// shown is the beginning of a good answer, or of an event's item, for messages.
func (o *outcome) shown() string {
	text := o.json
	if o.item != nil {
		text = o.item
	}
	return excerpt(text)
}

// parse reads a good answer, and picks what is asked for.
func (c *call) parse(o *outcome) {
	text, err := readAs(c.f.o.As, o.header, o.body)
	if err != nil {
		r := event.AsReject(err)
		o.class, o.kind, o.fault = gotNotJSON, r.Type, r.Err
		if r.Type == event.EmptyResponse {
			o.class = gotEmpty
		}
		return
	}
	o.json = text
	if c.f.o.Bulk != nil {
		c.findItems(o)
		return
	}
	c.pick(o, text)
}

// pick selects what is used of an answer, or of an item.
func (c *call) pick(o *outcome, text []byte) {
	o.part = text
	if c.f.o.Select.IsZero() {
		return
	}
	part, err := c.f.o.Select.OnAnswer(c.parent, text, c.ev, o.variable)
	switch {
	case err != nil:
		r := event.AsReject(within(err, "selecting from the answer"))
		o.class, o.kind, o.fault = gotUnusable, r.Type, r.Err
	case part == nil:
		o.class, o.kind = gotNoMatch, event.NotFound
		o.fault = quoting(fmt.Errorf("the answer has nothing at %q", c.f.o.Select.String()), o.shown())
	}
	o.part = part
}

// variable is the value of a variable that expressions about an answer know beside those of the event.
func (o *outcome) variable(name string) any {
	switch name {
	case "status":
		return o.status
	case "response_headers":
		headers := make(map[string]any, len(o.header))
		for k, v := range o.header {
			headers[strings.ToLower(k)] = strings.ToValidUTF8(strings.Join(v, ", "), "\uFFFD")
		}
		return headers
	}
	return nil
}

// unanswered finds out why there is no whole answer.
func (c *call) unanswered(o *outcome) {
	var redirect *redirectError
	var coding *codingError
	switch err := o.err; {
	case errors.As(err, &redirect):
		o.class, o.kind, o.fault = gotUnusable, redirect.kind, redirect.err
	case errors.Is(err, errTooLarge):
		o.class, o.kind = gotTooLarge, event.TooLarge
		o.fault = fmt.Errorf("the answer has more than max_response %v", c.f.o.MaxResponse)
	case largeHeaders(err):
		o.class, o.kind = gotTooLarge, event.TooLarge
		o.fault = fmt.Errorf("the answer has more than %d bytes of headers", maxHeaderBytes)
	case errors.As(err, &coding):
		o.class, o.kind, o.fault = gotNotJSON, event.InvalidResponse, fmt.Errorf("decompressing the answer: %w", coding)
	case c.ctx.Err() != nil:
		o.class, o.kind, o.final = gotTimeout, event.Timeout, true
		o.fault = fmt.Errorf("total_timeout %v ended during attempt %d", c.f.total, c.tries.Number())
	default:
		err = cause(err)
		o.class, o.kind, o.fault = gotNone, event.Connection, err
		if errors.Is(err, errTryTimeout) || !time.Now().Before(c.deadline.Add(c.waited())) {
			o.class, o.kind, o.fault = gotTimeout, event.Timeout, fmt.Errorf("no whole answer within timeout %v", c.f.timeout)
		}
		o.final, o.unsent = badCertificate(err), c.unsent(err)
	}
}

// unsent reports whether the server cannot have seen the request of this try.
func (c *call) unsent(err error) bool {
	var op *net.OpError
	var auth *authError
	return errors.As(err, &auth) || c.asked && !c.sent || !c.sent && errors.As(err, &op) && op.Op == "dial"
}

// take puts the answer into the event.
func (c *call) take() error {
	o := &c.got
	values := make([][]byte, len(c.f.o.Into.Targets))
	for i, t := range c.f.o.Into.Targets {
		if values[i] = o.part; t.Value.IsZero() {
			continue
		}
		v, err := t.Value.OnAnswer(c.parent, o.part, c.ev, o.variable)
		if err != nil {
			return c.reject(within(err, fmt.Sprintf("reading %q from the answer", t.Value.String())))
		}
		if v == nil {
			v = []byte("null") // what is missing is null, as in jq
		}
		values[i] = v
	}
	if err := c.roomToSet(values); err != nil {
		return err
	}
	for i, t := range c.f.o.Into.Targets {
		if err := c.ev.Set(t.Path.Path, values[i]); err != nil {
			return c.unset(err)
		}
	}
	return nil
}
