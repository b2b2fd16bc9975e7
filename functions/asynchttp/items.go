package asynchttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/a0c75104/enricher/event"
)

// findItems picks the list of items of an answer to a request for many events. An answer without one is no_match, also
// where looking for it fails: an API that says in a 200 what is wrong has no list, and rules must reach that.
func (c *call) findItems(o *outcome) {
	items := c.f.o.Bulk.Items
	part, err := items.OnAnswer(c.parent, o.json, c.ev, o.variable)
	o.part = part
	switch {
	case err != nil:
		o.class, o.kind = gotNoMatch, event.InvalidResponse
		o.fault = quoting(fmt.Errorf("finding the items in the answer: %w", event.AsReject(err).Err), o.shown())
	case part == nil:
		o.class, o.kind = gotNoMatch, event.NotFound
		o.fault = quoting(fmt.Errorf("the answer has no items at %q", items.String()), o.shown())
	case part[0] != '[':
		o.class, o.kind = gotNoMatch, event.InvalidResponse
		o.fault = quoting(fmt.Errorf("what the answer has at %q is no list of items: write [.x[]] for the values of an object", items.String()), o.shown())
	}
}

// itemSet is the items of an answer by their keys.
type itemSet struct {
	byKey map[string]json.RawMessage
	twice map[string]bool // keys of items that are not equal
	count int
	err   error // why an item's key could not be read
}

// items reads the list of items.
func (c *call) items() (*itemSet, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(c.got.part, &list); err != nil {
		return nil, fmt.Errorf("reading the items: %w", err)
	}
	s := &itemSet{byKey: make(map[string]json.RawMessage, len(list)), twice: map[string]bool{}, count: len(list)}
	for _, item := range list {
		raw, err := c.f.o.Bulk.Match.Item.OnAnswer(c.parent, item, c.ev, c.got.variable)
		key := ""
		if err == nil {
			key, err = keyText(raw)
		}
		if err != nil && s.err == nil {
			s.err = event.AsReject(err).Err
		}
		if err != nil || key == "" {
			continue // nobody's
		}
		if other, known := s.byKey[key]; known && !bytes.Equal(other, item) {
			s.twice[key] = true
		}
		s.byKey[key] = item
	}
	return s, nil
}

// of finds out what the answer is to one key.
func (s *itemSet) of(c *call, o *outcome, key string) {
	o.each, o.part = true, nil
	item, known := s.byKey[key]
	switch {
	case s.twice[key]:
		o.class, o.kind, o.fault = gotUnusable, event.InvalidResponse, errors.New("the answer has several items for it, which differ")
	case known:
		o.item = item
		c.pick(o, item)
	default:
		o.class, o.kind = gotNoMatch, event.NotFound
		o.fault = fmt.Errorf("none of the %d items in the answer is for it", s.count)
		if s.err != nil {
			o.fault = fmt.Errorf("%w; of one the key could not be read: %w", o.fault, s.err)
		}
	}
}

// fate is what becomes of one event whose request has a good answer.
type fate struct {
	at  int
	key string
	c   *call // as if the event had been asked for alone
	d   decision
}

// hand gives each event its item.
func (w *batch) hand(g *group, c *call) {
	items, err := c.items()
	if err != nil {
		w.fail(g, c.reject(err))
		return
	}
	var recent, retry []fate
	for _, e := range g.entries {
		for _, i := range e.at {
			one := *c
			one.ev, one.evs, one.tries, one.room = w.evs[i], w.evs[i:i+1:i+1], triesOf(w.ctx, w.evs[i:i+1]), 0
			items.of(&one, &one.got, e.key)
			f := fate{at: i, key: e.key, c: &one, d: one.decide(&one.got)}
			switch f.d.do {
			case doRecent:
				recent = append(recent, f)
			case doRetry:
				retry = append(retry, f)
			default:
				w.results[i] = f.result(w.evs[i])
			}
		}
	}
	w.askAgain(recent)
	w.askAgain(retry)
}

// result is what the event becomes, unless it is asked for again.
func (f *fate) result(ev *event.Event) event.Result {
	switch f.d.do {
	case doDrop:
		return event.Result{}
	case doFail:
		return event.Result{Err: f.failure()}
	case doUse:
		if err := f.c.take(); err != nil {
			return event.Result{Err: within(err, fmt.Sprintf("key %.100q", f.key))}
		}
	}
	return event.Result{Events: []*event.Event{ev}}
}

// failure is the error event, which says for which key.
func (f *fate) failure() error {
	return f.c.fail(f.d.kind, fmt.Errorf("key %.100q: %w", f.key, f.d.err))
}

// askAgain has events asked for once more, together and without the others of their request.
func (w *batch) askAgain(fates []fate) {
	if len(fates) == 0 {
		return
	}
	c := *fates[0].c
	c.evs, c.tries, c.made, c.next = nil, nil, triesPerCall, verdict{} // no further try inside this call
	for i := range fates {
		c.evs, c.tries = append(c.evs, fates[i].c.evs...), append(c.tries, fates[i].c.tries...)
	}
	c.kept.together = w.b.last.Add(1)
	c.act(&fates[0].d)
	for i := range fates {
		f := &fates[i]
		w.results[f.at].Err = like(c.next.err, f.failure())
	}
	c.tries.SetSlot(c.kept)
}

// like asks for another try of err where v does.
func like(v, err error) error {
	if r, ok := errors.AsType[*event.RetryError](v); ok {
		return event.Retry(err, r.After)
	}
	if h, ok := errors.AsType[*event.HoldError](v); ok {
		return event.Hold(err, h.Until)
	}
	return err
}
