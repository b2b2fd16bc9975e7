package asynchttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/jq"
)

// errOthersAsk is never seen as an error event: what waits for another request is not given up for it.
var errOthersAsk = errors.New("the same was asked for another event, and there is no answer yet")

// lookUp finds an answer among those that are kept, or waits for one that another event has asked for, or asks.
func (c *call) lookUp() (verb, error) {
	c.key = c.cacheKey()
	for {
		t := c.f.cache.enter(c.key, &c.kept.look, time.Now())
		switch {
		case t.bell != nil:
			if c.kept.first.IsZero() {
				c.kept.first = time.Now()
			}
			c.tries.SetSlot(c.kept)
			return doUse, event.HoldFor(c.fail(event.Timeout, errOthersAsk), t.until, t.bell)
		case t.answer == nil:
			return c.lead()
		case t.answer.large:
			c.count(cacheMiss)
			return c.run()
		}
		if do, served, err := c.serve(t); served {
			return do, err
		}
		c.kept.look.after = t.answer.asked
		if t.shared {
			c.kept.look.again()
		}
	}
}

// cacheKey is the hash of all in which requests of the function may differ. Headers that are the same for all events are
// no part of it, nor are credentials of auth: a token that is replaced changes no answer. A header that an event
// chooses is, credentials or not: what one may see is not for another.
func (c *call) cacheKey() cacheKey {
	h := sha256.New()
	part := func(text []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		h.Write(size[:])
		h.Write(text)
	}
	part([]byte(c.f.o.Method))
	part([]byte(c.req.url.String()))
	part(c.req.body)
	for _, name := range c.f.varying {
		part([]byte(c.req.header.Get(name)))
	}
	return cacheKey(h.Sum(nil))
}

// varying are the headers that may differ from event to event, in order.
func (o *Options) varying() []string {
	var names []string
	for name, t := range o.Headers {
		if !t.Literal() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// looksAtHeaders reports whether an expression about answers looks at their headers.
func (o *Options) looksAtHeaders() bool {
	exprs := []functions.AnswerExpr{o.Select}
	for _, t := range o.Into.Targets {
		exprs = append(exprs, t.Value)
	}
	for i := range o.Errors {
		exprs = append(exprs, o.Errors[i].When)
	}
	return slices.ContainsFunc(exprs, func(e functions.AnswerExpr) bool {
		return !e.IsZero() && strings.Contains(e.Normal(), "response_headers")
	})
}

// count notes what an event found, once.
func (c *call) count(result string) {
	if !c.kept.look.counted {
		c.kept.look.counted = true
		c.f.cache.meters.results[result].Inc()
	}
}

// lead asks, and leaves the answer to others.
func (c *call) lead() (do verb, err error) {
	c.count(cacheMiss)
	s, l := c.f.cache, &c.kept.look
	left := false
	defer func() {
		if !left { // it panicked
			s.ends(c.key, l, nil, time.Now())
		}
	}()
	do, err = c.run()
	left = true
	if !c.began.IsZero() {
		l.after = c.began // of no more use to this event
	}
	a := c.forOthers()
	retry, again := errors.AsType[*event.RetryError](err)
	hold, held := errors.AsType[*event.HoldError](err)
	switch now := time.Now(); {
	case a == nil && again:
		s.waits(c.key, l, now.Add(retry.After))
	case a == nil && held:
		s.waits(c.key, l, hold.Until)
	default:
		s.ends(c.key, l, a, now)
	}
	c.tries.SetSlot(c.kept)
	return do, err
}

// forOthers is the answer of the last try as other events may have it, nil where that is none, or calls for another try.
func (c *call) forOthers() *keptAnswer {
	o := &c.got
	read := o.json != nil || !good(o.status) || without(o.status)
	if c.made == 0 || o.status == 0 || o.err != nil || !read || c.did == doRetry || c.did == doAnew {
		return nil
	}
	a := &keptAnswer{
		status: o.status, text: bytes.Clone(o.json), excerpt: strings.Clone(o.excerpt), secrets: slices.Clone(c.secrets), asked: c.began,
		negative: o.class == gotNoMatch || o.status == http.StatusNotFound || o.status == http.StatusGone,
	}
	if c.f.withHeaders {
		a.header = o.header.Clone()
	}
	if d := c.keptFor(a); d > 0 {
		a.until = a.asked.Add(d)
	}
	return a
}

// keptFor is how old the answer may become, for events that did not wait for it.
func (c *call) keptFor(a *keptAnswer) time.Duration {
	d := time.Duration(0)
	switch {
	case a.negative:
		d = c.f.o.Cache.NegativeTTL.Duration()
	case good(a.status) && a.text != nil && c.got.class == gotAnswer && c.did != doFail:
		d = c.f.o.Cache.TTL.Duration()
	}
	if d > 0 && noStore(c.got.header) {
		if c.f.unstored.CompareAndSwap(false, true) {
			c.f.log.Warn("answers are not kept: the host forbids it by Cache-Control: no-store", "host", c.host())
		}
		return 0
	}
	return d
}

// noStore reports whether the host forbids to keep an answer.
func noStore(h http.Header) bool {
	for _, line := range h.Values("Cache-Control") {
		for one := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(one), "no-store") {
				return true
			}
		}
	}
	return false
}

// serve gives the event an answer that was asked for by another. Where it is of no use to this one, served is false.
func (c *call) serve(t turn) (do verb, served bool, err error) {
	a := t.answer
	c.secrets = a.secrets
	if c.kept.first.IsZero() {
		c.kept.first = time.Now()
	}
	if err := c.roomToServe(a.text); err != nil {
		return doUse, true, err
	}
	c.got = c.recall(a)
	d := c.decide(&c.got)
	if c.parent.Err() != nil {
		return doUse, true, c.parent.Err()
	}
	switch {
	case d.do == doRecent && t.shared: // as if it had asked itself
		c.made = triesPerCall
		c.askAnew(&d)
		c.kept.look.after = a.asked
		c.tries.SetSlot(c.kept)
		return doUse, true, c.next.err
	case d.do == doRecent, d.do == doRetry, c.happenedSince(a):
		c.letGo(0)
		return doUse, false, nil
	}
	switch {
	case t.shared:
		c.count(cacheShared)
	case a.negative:
		c.count(cacheNegative)
	default:
		c.count(cacheHit)
	}
	c.tries.SetStatus(a.status)
	if d.do == doFail {
		return doUse, true, c.fail(d.kind, d.err)
	}
	return d.do, true, nil
}

// recall is what a kept answer is to the event.
func (c *call) recall(a *keptAnswer) outcome {
	o := outcome{answer: answer{status: a.status, header: a.header, excerpt: a.excerpt}, kind: kindOf(a.status), json: a.text}
	if good(a.status) && !without(a.status) {
		c.pick(&o, a.text)
		return o
	}
	o.fault = statusError(&o.answer)
	return o
}

// happenedSince reports whether an answer that has not what the event asks for is from before the event.
func (c *call) happenedSince(a *keptAnswer) bool {
	r := c.f.o.RetryRecent
	if r == nil || !anyCase(r.cases(), &c.got) {
		return false
	}
	at, known := c.happened(c.ev)
	return known && !at.Before(a.asked)
}

// roomToServe reserves room for the values of expressions that need more than a path. The text is in the cache, and
// counted there.
func (c *call) roomToServe(text []byte) error {
	switch {
	case !c.f.parses():
		return nil
	case c.f.o.As == "json":
		return c.reserve(jq.DecodedSize(text))
	}
	return c.reserve(int64(len(text)))
}
