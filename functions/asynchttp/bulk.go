package asynchttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

// Bulk asks an API for many events with one request, and puts each event's item of the answer into it.
type Bulk struct {
	f    *Func
	of   jq.Elements   // what the request says of each event
	last atomic.Uint64 // the last name of events that are asked for together
}

func newBulk(f *Func) *Bulk {
	b := &Bulk{f: f}
	for _, e := range f.o.requestParts() {
		b.of = b.of.And(e.Elements())
	}
	return b
}

var (
	_ event.BatchFunc = (*Bulk)(nil)
	_ event.ReadOnly  = (*Bulk)(nil)
)

// ReadOnly implements event.ReadOnly.
func (b *Bulk) ReadOnly() {}

// Paths returns the plain paths of an event's value that the function reads or sets, with those that its request says
// something of.
func (b *Bulk) Paths() []event.Path {
	o := &b.f.o
	paths := slices.Concat(o.Bulk.Match.Event.Paths(), b.of.Paths())
	if r := o.RetryRecent; r != nil && !r.Time.IsZero() {
		paths = append(paths, r.Time.Paths()...)
	}
	for _, t := range o.Into.Targets {
		paths = append(paths, t.Path.Path)
	}
	return paths
}

// ReadsValue reports that the function needs a value that is JSON.
func (b *Bulk) ReadsValue() bool { return true }

// MaxAttempts says that the function bounds its attempts itself.
func (b *Bulk) MaxAttempts() int { return -1 }

// CallTimeout is the longest that a call of ProcessBatch takes: no request begins in its second half.
func (b *Bulk) CallTimeout() time.Duration { return 2 * b.f.CallTimeout() }

// ProcessBatch implements event.BatchFunc. The requests of a batch follow each other.
func (b *Bulk) ProcessBatch(ctx context.Context, evs []*event.Event) []event.Result {
	w := &batch{b: b, f: b.f, ctx: ctx, evs: evs, results: make([]event.Result, len(evs)), began: time.Now()}
	for queue := w.groups(); len(queue) > 0; {
		g := queue[0]
		queue = queue[1:]
		switch {
		case ctx.Err() != nil:
			w.settle(g, event.Result{Err: ctx.Err()}) // the stream knows whose end it is
		case w.late():
			w.again(g, g.kept, event.Hold(errors.New("the other requests of the batch took all of the call's time"), time.Now()))
		default:
			queue = append(w.ask(g), queue...)
		}
	}
	for i := range w.results {
		if r := &w.results[i]; r.Err != nil && ctx.Err() != nil {
			r.Err = ctx.Err() // it says nothing of the event
		}
	}
	return w.results
}

// batch is one call of ProcessBatch.
type batch struct {
	b       *Bulk
	f       *Func
	ctx     context.Context
	evs     []*event.Event
	results []event.Result
	began   time.Time
	asked   bool // a request was begun
}

// group is events that are asked for with one request.
type group struct {
	kept    progress
	entries []entry
}

// entry is the events with one key.
type entry struct {
	key string
	at  []int // places in the batch, in order
}

// late reports whether the time is over in which requests may begin. One is begun in any case.
func (w *batch) late() bool {
	return w.asked && time.Since(w.began)-event.Waited(w.ctx) > w.f.CallTimeout()
}

// groups finds out which events are asked for together: those that have been before, and of the others those of one
// host, as many as there may be. Events with the same key are one entry.
func (w *batch) groups() []*group {
	type name struct {
		together uint64
		host     string
	}
	type place struct {
		g  *group
		at int // among its entries
	}
	var out []*group
	open := map[name]*group{}
	places := map[name]map[string]place{}
	for i, ev := range w.evs {
		key, host, err := w.keyOf(ev)
		if err != nil {
			w.results[i].Err = err
			continue
		}
		kept, _ := event.Attempt(w.ctx, ev).Slot().(progress)
		n := name{kept.together, host}
		if p, known := places[n][key]; known {
			e := &p.g.entries[p.at]
			e.at = append(e.at, i)
			continue
		}
		g := open[n]
		if g == nil || len(g.entries) == w.f.o.Bulk.Max {
			g = &group{kept: kept}
			if kept.together == 0 {
				g.kept.together = w.b.last.Add(1)
			}
			out, open[n] = append(out, g), g
			if places[n] == nil {
				places[n] = map[string]place{}
			}
		}
		places[n][key] = place{g, len(g.entries)}
		g.entries = append(g.entries, entry{key: key, at: []int{i}})
	}
	// They come back together: where the first were always the one that tries a host, the others would never be heard.
	slices.SortStableFunc(out, func(x, y *group) int { return cmp.Compare(x.kept.behind, y.kept.behind) })
	return out
}

// keyOf returns what an event asks for, and at which host where events choose it.
func (w *batch) keyOf(ev *event.Event) (key, host string, err error) {
	e := w.f.o.Bulk.Match.Event
	raw, err := e.JSON(w.ctx, ev)
	if err != nil {
		return "", "", within(err, "bulk.match.event")
	}
	if key, err = keyText(raw); err != nil {
		return "", "", err
	}
	if key == "" {
		return "", "", event.Rejectf(event.MissingField, "the key %q is missing, null or empty", e.String())
	}
	if _, fixed := w.f.o.URL.HostIsFixed(); !fixed {
		host, err = w.f.o.URL.Host(w.ctx, w.b.arrayOf([]*event.Event{ev}))
	}
	return key, host, err
}

// keyText is a key as text: 7 and "7" are the same. It is empty for null and for what is missing.
func keyText(raw []byte) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] == '"' {
		return event.Unquote(raw)
	}
	text, err := event.AppendCanonical(nil, raw)
	return string(text), err
}

// arrayOf is an event that has what the request says of others as an array.
func (b *Bulk) arrayOf(evs []*event.Event) *event.Event {
	value := []byte{'['}
	for i, ev := range evs {
		if i > 0 {
			value = append(value, ',')
		}
		value = b.of.Append(value, ev)
	}
	return event.New(event.Position{}, nil, append(value, ']'), nil, time.Time{})
}

// events are all of a group, and first one for each key.
func (w *batch) events(g *group) (first, all []*event.Event) {
	for _, e := range g.entries {
		first = append(first, w.evs[e.at[0]])
		for _, i := range e.at {
			all = append(all, w.evs[i])
		}
	}
	return first, all
}

// request makes the request for a group. The array of events takes room, while expressions look at it.
func (w *batch) request(evs []*event.Event) (*request, error) {
	size, part := int64(0), []byte(nil)
	for _, ev := range evs {
		part = w.b.of.Append(part[:0], ev)
		size += int64(len(part)) + jq.DecodedSize(part)
	}
	if err := event.Reserve(w.ctx, size); err != nil {
		return nil, err
	}
	defer event.Release(w.ctx, size)
	return w.f.build(w.ctx, w.b.arrayOf(evs))
}

// ask makes the request for a group. It returns groups that are to be asked for in its place.
func (w *batch) ask(g *group) []*group {
	w.asked = true
	first, all := w.events(g)
	req, err := w.request(first)
	switch several := len(g.entries) > 1; {
	case several && (err != nil || int64(len(req.url.String())) > w.f.o.Bulk.MaxURL.Bytes()):
		return w.halves(g, g.kept)
	case err != nil:
		w.settle(g, event.Result{Err: err})
		return nil
	}
	c := newCall(w.ctx, w.f, event.New(event.Position{}, nil, nil, nil, time.Time{}), req)
	c.evs, c.tries, c.kept, c.known = all, triesOf(w.ctx, all), g.kept, map[*Rule]bool{}
	do, err := c.run()
	defer c.letGo(0)
	if c.failedProbe() {
		c.kept.behind = w.b.last.Add(1)
	}
	switch {
	case err != nil && c.failedProbe() && w.toBisect(g, c):
		w.bisectLater(g, c, err)
	case err != nil && asksAgain(err):
		w.again(g, c.kept, err)
	case err != nil && w.toBisect(g, c):
		return w.bisect(g, c)
	case err != nil:
		w.fail(g, err)
	case do == doPass:
		for _, e := range g.entries {
			for _, i := range e.at {
				w.results[i].Events = w.evs[i : i+1 : i+1]
			}
		}
	case do == doUse:
		w.hand(g, c)
	}
	return nil
}

func triesOf(ctx context.Context, evs []*event.Event) tries {
	out := make(tries, len(evs))
	for i, ev := range evs {
		out[i] = event.Attempt(ctx, ev)
	}
	return out
}

// asksAgain reports whether err asks for another try.
func asksAgain(err error) bool {
	_, retry := errors.AsType[*event.RetryError](err)
	_, hold := errors.AsType[*event.HoldError](err)
	return retry || hold
}

// settle gives all events of a group one result.
func (w *batch) settle(g *group, r event.Result) {
	for _, e := range g.entries {
		for _, i := range e.at {
			w.results[i] = r
		}
	}
}

// fail makes error events of a group. Each says for which key.
func (w *batch) fail(g *group, err error) {
	for _, e := range g.entries {
		where := fmt.Sprintf("key %.100q", e.key)
		if n := len(g.entries) - 1; n > 0 {
			where = fmt.Sprintf("key %.100q, asked for with %d others", e.key, n)
		}
		for _, i := range e.at {
			w.results[i].Err = within(err, where)
		}
	}
}

// again has the events of a group asked for once more, together.
func (w *batch) again(g *group, kept progress, err error) {
	_, all := w.events(g)
	triesOf(w.ctx, all).SetSlot(kept)
	w.settle(g, event.Result{Err: err})
}

// toBisect reports whether one event of several may be to blame for the failure of their request, and there is time
// to find out.
func (w *batch) toBisect(g *group, c *call) bool {
	return len(g.entries) > 1 && c.made > 0 && !c.shut && !c.got.final && anyCase(w.f.o.Bulk.cases(), &c.got) &&
		(w.f.total == 0 || c.kept.spent < w.f.total)
}

// bisect has a group asked for in halves. Where it was refused, each has its attempts anew; where attempts were used up,
// it has one: the host may be to blame after all.
func (w *batch) bisect(g *group, c *call) []*group {
	w.f.meters.bisected.Inc()
	kept := c.kept
	kept.owed = true
	kept.claim = claim{tried: true, retry: c.unwell} // where the host fails, halves take from its share of retries
	if !c.unwell {
		kept.before = c.tries.Number()
	}
	return w.halves(g, kept)
}

// bisectLater has a group asked for in halves as err says, since its request was a try of a host with an open breaker and
// failed. That is no attempt, so attempts are never used up: where each request has an event that breaks the server, none
// would ever be answered. In an outage it costs one request more for each such try.
func (w *batch) bisectLater(g *group, c *call, err error) {
	w.f.meters.bisected.Inc()
	halves := w.halves(g, c.kept)
	halves[1].kept.claim.retry = false // the share of retries allows them what it allows the whole
	for _, h := range halves {
		w.again(h, h.kept, err)
	}
}

// halves cuts a group in two.
func (w *batch) halves(g *group, kept progress) []*group {
	half := (len(g.entries) + 1) / 2
	out := []*group{{kept: kept, entries: g.entries[:half]}, {kept: kept, entries: g.entries[half:]}}
	for _, h := range out {
		h.kept.together = w.b.last.Add(1)
	}
	return out
}
