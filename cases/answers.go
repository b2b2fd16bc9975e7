package cases

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/a0c75104/enricher/pipeline"
)

// request is what an answer is for, or what was asked.
type request struct {
	method string
	url    *url.URL
}

func (r request) String() string { return r.method + " " + r.url.String() }

// request reads METHOD URL, or a URL.
func (a *Answer) request() (request, error) {
	method, text, two := strings.Cut(strings.TrimSpace(a.Request), " ")
	if !two {
		method, text = http.MethodGet, method
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		err = errors.Unwrap(err) // the text is in the file
	}
	if err == nil && (u.Scheme == "" || u.Host == "") {
		err = errors.New("there is no host")
	}
	if err != nil {
		return request{}, fmt.Errorf("want method and URL, such as GET https://example.org/x: %w", err)
	}
	return request{strings.ToUpper(method), u}, nil
}

// asked is a request that was made.
type asked struct {
	request
	header http.Header
	body   []byte
	call   *pipeline.Call // nil: of none
	try    int
	after  time.Duration // since the case began
	by     int           // index of the answer, -1: none
	why    string        // there is none
	took   time.Duration
}

// canned is an answer, and how often it was given.
type canned struct {
	*Answer
	request
	body []byte
	used int
}

// answers is the network of a case.
type answers struct {
	began time.Time
	stop  func() // ends the case

	mu     sync.Mutex // guards what follows
	canned []*canned
	asked  []*asked
}

// RoundTrip implements http.RoundTripper. A request without an answer is not answered: the case ends.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	q, err := a.hear(r)
	if err != nil {
		return nil, err
	}
	trace := httptrace.ContextClientTrace(r.Context())
	if trace != nil && trace.GetConn != nil {
		trace.GetConn(r.URL.Host)
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Reused: true})
	}
	c := a.find(q)
	if c == nil {
		// Virtual time goes on only when everything else waits too, so that what is asked at the same time is
		// heard as well.
		time.AfterFunc(time.Nanosecond, a.stop)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if c.Takes > 0 {
		wait := time.NewTimer(c.Takes.Duration())
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if c.Error != "" {
		return nil, errors.New(c.Error)
	}
	return c.response(r), nil
}

// hear notes what was asked.
func (a *answers) hear(r *http.Request) (*asked, error) {
	q := &asked{request: request{r.Method, r.URL}, header: r.Header.Clone(), call: pipeline.CallOf(r.Context()), after: time.Since(a.began), by: -1}
	if q.method == "" {
		q.method = http.MethodGet
	}
	if q.call != nil {
		q.try = q.call.Attempt()
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close() // it is read
		if err != nil {
			return nil, err
		}
		q.body = body
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, q)
	return q, nil
}

// find chooses the answer: those that fit in their turn, the last of them again and again.
func (a *answers) find(q *asked) *canned {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := -1
	for i, c := range a.canned {
		if len(c.differs(q)) > 0 {
			continue
		}
		last = i
		if c.used < max(c.Times, 1) {
			break
		}
	}
	switch {
	case last < 0:
		q.why = "has no answer"
		return nil
	case a.canned[last].used > 0 && a.canned[last].Times > 0 && a.canned[last].used >= a.canned[last].Times:
		q.why = "has no answer any more: all that fit it were given"
		return nil
	}
	c := a.canned[last]
	c.used++
	q.by, q.took = last, c.Takes.Duration()
	return c
}

// status is that of the answer.
func (a *Answer) status() int {
	if a.Status == 0 {
		return http.StatusOK
	}
	return a.Status
}

func (c *canned) response(r *http.Request) *http.Response {
	status, h := c.status(), http.Header{}
	for name, v := range c.Headers {
		h.Set(name, v)
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(c.body)), ContentLength: int64(len(c.body)), Request: r,
	}
}
