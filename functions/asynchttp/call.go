package asynchttp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/a0c75104/enricher/event"
)

const (
	// shortWait is the longest wait that a call sits out itself. For a longer one it gives the worker back.
	shortWait = 300 * time.Millisecond
	// triesPerCall bounds the tries of one call, however short the waits.
	triesPerCall = 4
	// shortestHold is the shortest Retry-After that holds a host. A hold is no attempt, so one that
	// asks for (almost) no wait would be tried for ever, as fast as the host answers.
	shortestHold = 100 * time.Millisecond
)

// errTryTimeout ends the context of one try.
var errTryTimeout = errors.New("the attempt took too long")

// progress is what is kept of an event between its calls, in the slot of its attempts.
type progress struct {
	spent time.Duration // tries and waits between them; no holds
	tried bool
	mark  uint64 // number of the last good answer when the latest try had ended
}

// call is one call of Process: a few tries at most. It belongs to one goroutine.
type call struct {
	f      *Func
	parent context.Context
	req    *request
	tries  *event.Attempts
	kept   progress

	ctx      context.Context // parent, and what is left of total_timeout
	made     int             // tries in this call
	began    time.Time       // of the running try
	deadline time.Time       // of the running try
	asked    bool            // it asked the pool for a connection
	sent     bool            // it got one, so the server may have seen the request
	got      answer          // of the last try
	next     verdict
}

// answer is what a try brought.
type answer struct {
	status int // 0: none
	header http.Header
	body   []byte
}

// verdict is what follows from a try.
type verdict struct {
	err   error         // nil: the answer is good
	again bool          // another try inside this call, after wait
	wait  time.Duration //
}

func newCall(ctx context.Context, f *Func, ev *event.Event, req *request) *call {
	c := &call{f: f, parent: ctx, req: req, tries: event.Attempt(ctx, ev)}
	c.kept, _ = c.tries.Slot().(progress) // the zero progress at first
	return c
}

// held returns the event.Hold of a host that asked to be left alone.
func (c *call) held() error {
	until, held := c.f.pool.hosts.held(c.req.url.Host, time.Now())
	if !held {
		return nil
	}
	return event.Hold(c.fail(event.RateLimited, errors.New("the host asked to wait")), until)
}

// run makes the tries. It returns nil where c.got is a good answer.
func (c *call) run() error {
	c.ctx = c.parent
	if c.f.total > 0 {
		ctx, cancel := context.WithTimeout(c.parent, c.f.total-c.kept.spent)
		defer cancel()
		c.ctx = ctx
	}
	var body any
	if c.req.body != nil {
		body = c.req.body // also gives GetBody, so that redirects and GOAWAY send it anew
	}
	req, err := retryablehttp.NewRequestWithContext(c.ctx, c.f.o.Method, c.req.url.String(), body)
	if err != nil {
		return event.Reject(event.Rejected, fmt.Errorf("making the request: %w", err))
	}
	req.Header = c.req.header
	client := retryablehttp.Client{
		HTTPClient:     &http.Client{Transport: c, CheckRedirect: c.f.redirect},
		RetryMax:       triesPerCall, // never reached: judge stops before
		RequestLogHook: func(retryablehttp.Logger, *http.Request, int) { c.begin() },
		CheckRetry: func(_ context.Context, resp *http.Response, err error) (bool, error) {
			c.judge(resp, err)
			return c.next.again, nil
		},
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return c.next.wait },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	resp, err := client.Do(req)
	if resp != nil {
		_ = resp.Body.Close() // judge has read and closed it
	}
	if c.parent.Err() != nil && (err != nil || c.next.err != nil) {
		return c.parent.Err() // the stream knows whose end it is
	}
	c.tries.SetSlot(c.kept)
	if c.next.err == nil && err != nil {
		return c.fail(event.Connection, err) // no try was made
	}
	return c.next.err
}

// begin starts a try.
func (c *call) begin() {
	if c.made++; c.made > 1 {
		c.tries.Add(1) // the stream counts the first
	}
	if !c.kept.tried {
		c.kept.tried, c.kept.mark = true, c.f.pool.hosts.mark()
	}
	c.began = time.Now()
	c.deadline = c.began.Add(c.f.timeout)
	c.asked, c.sent, c.got, c.next = false, false, answer{}, verdict{}
}

// RoundTrip implements http.RoundTripper for the client of this call: one try, or one step of a try
// that is redirected. The deadline stays in force until the body is closed.
func (c *call) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithDeadlineCause(r.Context(), c.deadline, errTryTimeout)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.asked = true },
		GotConn: func(i httptrace.GotConnInfo) { c.sent = true; c.f.meters.connection(i.Reused) },
	})
	r = r.WithContext(ctx)
	r.Header = askGzip(r.Header)
	resp, err := c.f.pool.RoundTrip(r)
	if err != nil {
		cancel()
		return nil, err
	}
	gunzip(resp)
	resp.Body = &cancelBody{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

// judge reads the answer of a try, closes it, and decides what follows. The final answer stays in c.
func (c *call) judge(resp *http.Response, err error) {
	defer func() { c.kept.mark = c.f.pool.hosts.mark() }()
	excerpt := ""
	if err == nil {
		c.got = answer{status: resp.StatusCode, header: resp.Header}
		if good(resp.StatusCode) {
			c.got.body, err = read(resp, c.f.o.MaxResponse.Bytes())
		} else {
			excerpt = readExcerpt(resp)
		}
	}
	took := time.Since(c.began)
	c.f.meters.request(c.got.status, took)
	if c.parent.Err() != nil && err != nil {
		return // run returns the end of the context
	}
	c.kept.spent += took
	switch {
	case err != nil:
		c.failed(err, resp)
	default:
		c.answered(excerpt, took)
	}
	c.tries.SetStatus(c.got.status)
}

func good(status int) bool { return 200 <= status && status < 300 }

// answered decides by the status.
func (c *call) answered(excerpt string, took time.Duration) {
	status := c.got.status
	kind, reason, again := event.UnexpectedStatus, reasonStatus, false
	switch {
	case status == http.StatusNotFound, status == http.StatusGone:
		kind = event.NotFound
	case status == http.StatusNoContent, status == http.StatusResetContent:
		kind = event.NoContent
	case status == http.StatusTooManyRequests:
		kind, reason, again = event.RateLimited, reasonRateLimited, true
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500:
		again = true
	case good(status):
		c.succeeded()
		return
	}
	err := fmt.Errorf("status %d %s", status, http.StatusText(status))
	if excerpt != "" {
		err = fmt.Errorf("%w: %q", err, excerpt)
	}
	if !again {
		c.succeeded() // it answers, if not what was hoped for
		c.next.err = c.fail(kind, err)
		return
	}
	// Too many requests and too early say that the request was not carried out.
	if !c.f.repeatable && status != http.StatusTooManyRequests && status != http.StatusTooEarly {
		c.next.err = c.fail(kind, c.notAgain(err))
		return
	}
	after, told := retryAfter(c.got.header, time.Duration(c.f.o.Retry.RetryAfterMax))
	refusal := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if told && refusal && after >= shortestHold {
		until, alone, say := c.f.pool.hosts.refused(c.req.url.Host, c.kept.mark, time.Now().Add(after))
		if say {
			c.f.log.Warn("a host asked to wait, its events are held", "host", c.req.url.Host, "status", status, "until", until)
		}
		if !alone {
			c.kept.spent -= took // a hold counts nowhere
			c.f.meters.retry(reasonHold)
			c.next.err = event.Hold(c.fail(kind, err), until)
			return
		}
	}
	c.retry(c.fail(kind, err), reason, after)
}

// succeeded notes that the host answers.
func (c *call) succeeded() {
	if after := c.f.pool.hosts.succeeded(c.req.url.Host); after > 0 {
		c.f.log.Info("a host that asked to wait answers again", "host", c.req.url.Host, "after", after)
	}
}

// notAgain says why a request that may have been carried out is not sent again.
func (c *call) notAgain(err error) error {
	return fmt.Errorf("%w; not sent again, since %s is not idempotent", err, c.f.o.Method)
}

// failed decides by the error of a try that brought no whole answer.
func (c *call) failed(err error, resp *http.Response) {
	var redirect *redirectError
	var coding *codingError
	switch {
	case errors.As(err, &redirect):
		if resp != nil {
			c.got.status = resp.StatusCode
		}
		c.next.err = c.fail(redirect.kind, redirect.err)
		return
	case errors.Is(err, errTooLarge):
		c.succeeded()
		c.next.err = c.fail(event.TooLarge, fmt.Errorf("the answer has more than max_response %v", c.f.o.MaxResponse))
		return
	case errors.As(err, &coding):
		c.succeeded()
		c.next.err = c.fail(event.InvalidResponse, fmt.Errorf("decompressing the answer: %w", coding))
		return
	case c.ctx.Err() != nil:
		c.next.err = c.fail(event.Timeout, fmt.Errorf("total_timeout %v ended during attempt %d", c.f.total, c.tries.Number()))
		return
	}
	kind, reason := event.Connection, reasonConnection
	err = cause(err)
	if errors.Is(err, errTryTimeout) || !time.Now().Before(c.deadline) {
		kind, reason, err = event.Timeout, reasonTimeout, fmt.Errorf("no whole answer within timeout %v", c.f.timeout)
	}
	switch {
	case badCertificate(err):
		c.next.err = c.fail(kind, err)
	case !c.f.repeatable && !c.unsent(err):
		c.next.err = c.fail(kind, c.notAgain(err))
	default:
		c.retry(c.fail(kind, err), reason, 0)
	}
}

// unsent reports whether the server cannot have seen the request of this try.
func (c *call) unsent(err error) bool {
	var op *net.OpError
	return c.asked && !c.sent || !c.sent && errors.As(err, &op) && op.Op == "dial"
}

// retry decides when the next try is made, if there is one. after is the least wait.
func (c *call) retry(err error, reason string, after time.Duration) {
	n := c.tries.Number()
	if limit := c.f.o.Retry.Attempts; limit > 0 && n >= limit {
		c.next.err = err
		return
	}
	wait := max(after, backoff(time.Duration(c.f.o.Retry.Initial), time.Duration(c.f.o.Retry.Max), n))
	if c.f.total > 0 && c.kept.spent+wait >= c.f.total {
		c.next.err = within(err, fmt.Sprintf("total_timeout %v has no room for another attempt", c.f.total))
		return
	}
	c.f.meters.retry(reason)
	c.kept.spent += wait
	if wait <= shortWait && c.made < triesPerCall {
		c.next = verdict{again: true, wait: wait, err: err}
		return
	}
	c.next.err = event.Retry(err, wait)
}

// backoff is a random wait after try n, spread over all of its range: equal waits would let calls that
// failed together come again together.
func backoff(initial, limit time.Duration, n int) time.Duration {
	bound := limit
	if shift := n - 1; shift < 62 && initial < limit>>shift {
		bound = initial << shift
	}
	return rand.N(bound)
}
