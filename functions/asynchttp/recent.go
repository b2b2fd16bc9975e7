package asynchttp

import (
	"strconv"
	"time"

	"github.com/a0c75104/enricher/event"
)

// tooEarly reports whether what the event asks for may not be there yet: a copy of the data that lags behind
// the event says that there is none. It fits into total_timeout, of which the options have made sure: the age
// is never less than what was spent.
func (c *call) tooEarly(o *outcome) bool {
	r := c.f.o.RetryRecent
	return r != nil && o.class < gotUnusable && anyCase(r.cases(), o) && c.youngFor(time.Now()) > 0
}

// youngFor is how long the event is young yet, or the youngest of those that are asked for together. Its age is the
// time since its first try, or more where the event itself says so.
func (c *call) youngFor(now time.Time) time.Duration {
	var longest time.Duration
	for _, ev := range c.evs {
		age := now.Sub(c.kept.first)
		if at, ok := c.happened(ev); ok {
			age = max(age, now.Sub(at))
		}
		longest = max(longest, c.f.o.RetryRecent.YoungerThan.Duration()-age)
	}
	return longest
}

// happened is the time that an event says, if it says one.
func (c *call) happened(ev *event.Event) (time.Time, bool) {
	e := c.f.o.RetryRecent.Time
	if e.IsZero() {
		return time.Time{}, false
	}
	raw, err := e.JSON(c.parent, ev)
	if err != nil || len(raw) == 0 {
		return time.Time{}, false // the time since the first try will do
	}
	if raw[0] == '"' {
		text, err := event.Unquote(raw)
		if err != nil {
			return time.Time{}, false
		}
		at, err := time.Parse(time.RFC3339, text)
		return at, err == nil
	}
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || ms < 0 || ms > maxEpoch {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(ms)), true
}

// maxEpoch is the last millisecond of the year 9999.
const maxEpoch = 253402300799999

// askAnew has the try made again, which is no attempt. The last such try is made when the event stops being
// young, so that what comes then counts.
func (c *call) askAnew(d *decision) {
	err := c.fail(d.kind, d.err)
	wait := min(c.f.o.RetryRecent.Every.Duration(), max(0, c.youngFor(time.Now())))
	c.f.meters.retry(reasonRecent)
	c.kept.spent += wait
	if c.soon(err, wait) {
		c.free = true
		return
	}
	c.next.err = event.Hold(err, time.Now().Add(wait))
}
