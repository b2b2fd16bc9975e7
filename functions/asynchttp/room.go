package asynchttp

import (
	"io"
	"net/http"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/jq"
)

const (
	firstKnown   = 1 << 20 // of an answer that says how long it is, at most
	firstUnknown = 8 << 10
	believed     = 8 // an answer that has brought one part in so many of what it says is believed
)

// reserve reserves room for n more bytes that this call holds. It may wait, and the times of the call stand still
// meanwhile. An error means that nobody waits for the call any more.
func (c *call) reserve(n int64) error {
	if event.ReserveNow(c.parent, n) {
		c.room += n
		return nil
	}
	if c.f.cache != nil { // what it waits for may wait for an event that wants the same answer
		c.f.cache.parts(c.key, &c.kept.look)
	}
	if c.open {
		c.f.gates.stops(c.pass)
		defer c.f.gates.goesOn(c.pass)
	}
	if err := event.Reserve(c.parent, n); err != nil {
		return err
	}
	c.room += n
	return nil
}

// letGo gives all room back but n bytes.
func (c *call) letGo(n int64) {
	if n = max(0, n); c.room > n {
		event.Release(c.parent, c.room-n)
		c.room = n
	}
}

// waited is for how long the try has waited for room.
func (c *call) waited() time.Duration { return event.Waited(c.parent) - c.waitedBefore }

// read reads a whole body of at most limit bytes and closes it. Both the limit and the room count decompressed bytes.
// Room is reserved before the bytes are read: an answer that finds none stays with its server, which cannot send on.
func (c *call) read(resp *http.Response, limit int64) ([]byte, error) {
	defer drain(resp.Body)
	known := resp.ContentLength
	if resp.Uncompressed {
		known = -1
	}
	if known > limit {
		return nil, errTooLarge
	}
	var b []byte
	for {
		if len(b) == cap(b) {
			var err error
			if b, err = c.grow(b, known, limit); err != nil {
				return nil, err
			}
		}
		n, err := resp.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// grow doubles b, with one byte more than there can be: only a read that finds the end tells that it is there. What an
// answer says of its length is not believed before a part of it has come, but then: each step leaves as much garbage as
// it has come to.
func (c *call) grow(b []byte, known, limit int64) ([]byte, error) {
	has := int64(cap(b))
	size := max(firstUnknown, 2*has)
	if known >= has {
		size = min(known, max(firstKnown, 2*has))
		if has >= known/believed {
			size = known
		}
	}
	size = min(size, limit) + 1
	if err := c.reserve(size); err != nil {
		return nil, err
	}
	bigger := append(make([]byte, 0, size), b...)
	c.letGo(c.room - has)
	return bigger, nil
}

// roomToUse reserves room for what is made of an answer while it is used: the text that it is read as, and the values
// of expressions that need more than a path of it.
func (c *call) roomToUse(body []byte) error {
	n, text := int64(0), int64(len(body))
	switch c.f.o.As {
	case "text":
		n, text = 3*text, text+text/8
	case "base64":
		text = text / 3 * 4
		n = text
	}
	if c.f.o.Bulk != nil {
		n += 2 * text // the list of items, and each of them
	}
	if c.f.parses() {
		if c.f.o.As == "json" {
			text = jq.DecodedSize(body)
		}
		n += text
	}
	return c.reserve(n)
}

// roomToSet reserves room for the values that go into the event, which copies them. The stream keeps what the event
// then takes, and gives the rest back.
func (c *call) roomToSet(values [][]byte) error {
	n := 0
	for _, v := range values {
		n += len(v)
	}
	return c.reserve(int64(n))
}

// parses reports whether an expression about answers looks at more than a path.
func (f *Func) parses() bool {
	more := func(e functions.AnswerExpr) bool {
		if e.IsZero() {
			return false
		}
		_, bare := e.Path()
		return !bare
	}
	if b := f.o.Bulk; more(f.o.Select) || b != nil && (more(b.Items) || more(b.Match.Item)) {
		return true
	}
	for _, t := range f.o.Into.Targets {
		if more(t.Value) {
			return true
		}
	}
	for i := range f.o.Errors {
		if more(f.o.Errors[i].When) || more(f.o.Errors[i].Item) {
			return true
		}
	}
	return false
}

// lost reports whether the connection was lost while the call waited for room, which may well be why: then the try is
// no attempt. A short wait is not why. Nor is a long one if that goes on: without these bounds a server that cuts every
// answer would be asked for ever, since beside other large answers each waits.
func (c *call) lost(o *outcome) bool {
	return o.class == gotNone && !o.final && c.f.repeatable && c.waited() >= shortestHold && c.kept.lost < mostLost
}

// mostLost bounds the tries of one event that are no attempts for that.
const mostLost = 10
