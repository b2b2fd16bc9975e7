package asynchttp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	first time.Time     // when the first try began; zero: none was made
	again bool          // a try has ended
	mark  uint64        // number of the last good answer when the latest try had ended
	lost  int           // tries that were no attempts, since the connection was lost while the answer waited for room
	claim claim         // what it has of the host's gate
	look  look          // with cache: what it knows of other requests for the same

	// With bulk, where events are asked for together.
	together uint64 // names those that are; 0: none yet
	behind   uint64 // orders those whose try of a host with an open breaker failed, behind the others of their batch
	before   int    // attempts that do not count any more
	owed     bool   // the next try is one that the stream does not count
}

// tries are those of the events that a call is for. They are always the same for all of them.
type tries []*event.Attempts

func (t tries) Number() int { return t[0].Number() }

func (t tries) Add(n int) {
	for _, one := range t {
		one.Add(n)
	}
}

func (t tries) SetStatus(status int) {
	for _, one := range t {
		one.SetStatus(status)
	}
}

func (t tries) SetSlot(v any) {
	for _, one := range t {
		one.SetSlot(v)
	}
}

// call is one call of Process, or one request of a batch: a few tries at most. It belongs to one goroutine.
type call struct {
	f      *Func
	parent context.Context
	ev     *event.Event   // whose variables expressions see; with bulk no event of its own, until each gets its item
	evs    []*event.Event // that it is for
	req    *request
	tries  tries
	kept   progress
	pass   pass           // of the running or last try
	open   bool           // it is not given back yet
	shut   bool           // none was given: the breaker is open and has nothing wait
	under  under          // what is told to the host
	said   result         // what the last try said of the host
	known  map[*Rule]bool // with bulk: the conditions about the answer that were evaluated

	ctx      context.Context // parent, and what is left of total_timeout
	made     int             // tries in this call
	free     bool            // the next try is no attempt
	began    time.Time       // of the running try
	deadline time.Time       // of the running try
	took     time.Duration   // by the last try
	asked    bool            // it asked the pool for a connection
	sent     bool            // it got one, so the server may have seen the request
	got      outcome         // of the last try
	secrets  []string        // that were shown to the host
	unwell   bool            // it called for another
	next     verdict
	did      verb     // what was decided about the last try
	key      cacheKey // with cache: what is asked for

	room         int64         // that it has for answers
	waitedBefore time.Duration // for room, before the running try
}

// verdict is what follows from a try.
type verdict struct {
	do    verb          // where err is nil: use, drop or pass
	err   error         // what Process returns, unless there is another try
	again bool          // another try inside this call, after wait
	wait  time.Duration //
}

func newCall(ctx context.Context, f *Func, ev *event.Event, req *request) *call {
	c := &call{f: f, parent: ctx, ev: ev, evs: []*event.Event{ev}, req: req, tries: tries{event.Attempt(ctx, ev)}}
	c.kept, _ = c.tries[0].Slot().(progress) // the zero progress at first
	return c
}

// readmit is admit before a further try of the same call. What follows a hold is then that further try.
func (c *call) readmit() error {
	err := c.admit()
	if err == nil {
		return nil
	}
	if !c.free && !c.shut { // no try follows where the breaker does not have it wait
		c.tries.Add(1)
	}
	c.next = verdict{err: err}
	return err
}

// run makes the tries. It returns what becomes of the event, unless that is an error.
func (c *call) run() (verb, error) {
	c.ctx = c.parent
	if c.f.total > 0 {
		ctx, cancel := event.WithTimeout(c.parent, c.f.total-c.kept.spent, nil)
		defer cancel()
		c.ctx = ctx
	}
	var body any
	if c.req.body != nil {
		body = c.req.body // also gives GetBody, so that redirects and GOAWAY send it anew
	}
	req, err := retryablehttp.NewRequestWithContext(c.ctx, c.f.o.Method, c.req.url.String(), body)
	if err != nil {
		return doUse, event.Reject(event.Rejected, fmt.Errorf("making the request: %w", err))
	}
	req.Header = c.req.header
	if err := c.admit(); err != nil {
		return doUse, err
	}
	defer c.release()
	client := retryablehttp.Client{
		HTTPClient:     &http.Client{Transport: c, CheckRedirect: c.f.redirect},
		RetryMax:       triesPerCall, // never reached: retry stops before
		RequestLogHook: func(retryablehttp.Logger, *http.Request, int) { c.begin() },
		CheckRetry: func(_ context.Context, resp *http.Response, err error) (bool, error) {
			c.judge(resp, err)
			return c.next.again, nil
		},
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return c.next.wait },
		PrepareRetry: func(*http.Request) error { return c.readmit() },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	resp, err := client.Do(req)
	if resp != nil {
		_ = resp.Body.Close() // judge has read and closed it
	}
	if c.parent.Err() != nil && (err != nil || c.next.err != nil) {
		return doUse, c.parent.Err() // the stream knows whose end it is
	}
	c.tries.SetSlot(c.kept)
	if err != nil && c.made == 0 {
		return doUse, c.fail(event.Connection, cause(err))
	}
	return c.next.do, c.next.err
}

// begin starts a try.
func (c *call) begin() {
	if c.made++; (c.made > 1 || c.kept.owed) && !c.free {
		c.tries.Add(1) // the stream counts the first
	}
	c.kept.owed = false
	c.began = time.Now()
	if c.kept.first.IsZero() {
		c.kept.first = c.began
	}
	c.deadline = c.began.Add(c.f.timeout)
	c.waitedBefore = event.Waited(c.parent)
	c.free, c.asked, c.sent, c.got, c.next = false, false, false, outcome{}, verdict{}
}

// RoundTrip implements http.RoundTripper for the client of this call: one try, or one step of a try
// that is redirected. The deadline stays in force until the body is closed.
func (c *call) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := event.WithTimeout(r.Context(), time.Until(c.deadline), errTryTimeout)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.asked = true },
		GotConn: func(i httptrace.GotConnInfo) { c.sent = true; c.f.meters.connection(i.Reused) },
	})
	r = r.WithContext(ctx)
	r.Header = askGzip(r.Header)
	resp, err := c.send(r)
	if err != nil {
		cancel()
		return nil, err
	}
	c.f.pool.hosts.speaks(c.under, time.Now())
	gunzip(resp)
	resp.Body = &cancelBody{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

// judge is called at the end of a try: it finds out what came, decides what follows from it, and does that.
func (c *call) judge(resp *http.Response, err error) {
	defer func() { c.kept.again, c.kept.mark = true, c.f.pool.hosts.mark() }()
	a := c.receive(resp, err)
	c.took = time.Since(c.began) - c.waited()
	c.f.meters.request(a.status, c.took)
	if c.f.o.Bulk != nil {
		c.f.meters.askedFor(len(c.evs))
	}
	c.got = outcome{answer: a, class: gotCut}
	if c.parent.Err() == nil || a.err == nil {
		c.kept.spent += c.took
		c.got = c.classify(a)
	}
	d := c.decide(&c.got)
	c.unwell = d.unwell
	c.report(&c.got, &d)
	c.did = d.do
	if c.got.class == gotCut {
		c.next.err = c.parent.Err()
		return
	}
	c.tries.SetStatus(c.got.status)
	c.act(&d)
}

// act does what was decided.
func (c *call) act(d *decision) {
	switch d.do {
	case doFail:
		c.next.err = c.fail(d.kind, d.err)
		if after, told := c.asksToWait(); d.unwell && told { // this request may not be sent again, but others wait
			c.refused(after)
		}
	case doRetry:
		c.again(d)
	case doRecent:
		c.askAnew(d)
	case doAnew:
		c.kept.lost++
		c.kept.spent -= c.took
		c.f.meters.retry(reasonRoom)
		c.next.err = event.Hold(c.fail(d.kind, d.err), time.Now())
	default:
		c.next.do = d.do
	}
}

// again has the try made again, after the wait that the host asked for.
func (c *call) again(d *decision) {
	err := c.fail(d.kind, d.err)
	after, told := c.asksToWait()
	if told && c.hold(err, after) {
		return
	}
	c.retry(err, string(c.got.kind), after)
}

// asksToWait returns the wait that the host asked for, and whether that is long enough to hold it.
func (c *call) asksToWait() (after time.Duration, told bool) {
	if !c.got.whole() {
		return 0, false
	}
	after, told = retryAfter(c.got.header, time.Duration(c.f.o.Retry.RetryAfterMax))
	return after, told && after >= shortestHold
}

// hold keeps the events of the host waiting, since it asked for that, or this one alone. It returns false where
// the host means this event: then that is an attempt like any other.
func (c *call) hold(err error, after time.Duration) bool {
	means, until := c.refused(after)
	switch means {
	case refusesAgain:
		return false
	case refusesAll:
		until = c.f.gates.asked(c.pass, until)
		c.kept.claim.refused = true
	}
	c.kept.spent -= c.took // a hold counts nowhere
	c.f.meters.retry(reasonHold)
	c.next.err = event.Hold(err, until)
	return true
}

// refused notes that the host asked to wait, and finds out whom it means.
func (c *call) refused(after time.Duration) (means refusal, until time.Time) {
	now := time.Now()
	means, until, say := c.f.pool.hosts.refused(c.host(), c.kept.mark, c.kept.again, now.Add(after), now)
	if say {
		c.f.log.Warn("a host asked to wait, its events are held", "host", c.host(), "status", c.got.status, "until", until)
	}
	return means, until
}

// retry decides when the next try is made, if there is one. after is the least wait.
func (c *call) retry(err error, reason string, after time.Duration) {
	if c.probed(err) {
		return
	}
	n := c.tries.Number()
	if limit := c.f.o.Retry.Attempts; limit > 0 && n-c.kept.before >= limit {
		if !c.doubted(err) {
			c.next.err = err
		}
		return
	}
	wait := max(after, backoff(time.Duration(c.f.o.Retry.Initial), time.Duration(c.f.o.Retry.Max), n-c.kept.before))
	if c.f.total > 0 && c.kept.spent+wait >= c.f.total {
		if c.doubted(err) {
			return
		}
		c.next.err = within(err, fmt.Sprintf("total_timeout %v has no room for another attempt", c.f.total))
		return
	}
	c.f.meters.retry(reason)
	c.kept.spent += wait
	c.kept.claim.retry = true
	if c.soon(err, wait) {
		return
	}
	c.next.err = event.Retry(err, wait)
}

// soon has the next try made inside this call where the wait is short. It returns false where it is not.
func (c *call) soon(err error, wait time.Duration) bool {
	if wait > shortWait || c.made >= triesPerCall {
		return false
	}
	c.next = verdict{again: true, wait: wait, err: err}
	return true
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
