package asynchttp

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
)

// verb is what is done after a try.
type verb int

const (
	doUse    verb = iota // the answer goes into the event
	doPass               // the event goes on untouched
	doDrop               // the event is dropped
	doFail               // an error event
	doRetry              // another attempt
	doRecent             // another try that is no attempt: what is asked for may not be there yet
	doAnew               // another try that is no attempt: the connection was lost while its answer waited for room
)

// verbs are those that a rule may name.
var verbs = map[string]verb{"retry": doRetry, "error": doFail, "drop": doDrop, "pass": doPass}

// decision is what follows from an outcome.
type decision struct {
	do   verb
	kind event.Type // of the error event, now or once no further try is made
	err  error      // what that says
	// unwell says that a further attempt was called for, be it made or not: the host is not well.
	unwell bool
}

// decide says what follows from an outcome: that it is no fault of the host, what retry_recent says while the event is young, then the first
// rule of errors that matches, then the default.
func (c *call) decide(o *outcome) decision {
	d := decision{do: o.usual(), kind: o.kind, err: o.fault}
	if c.lost(o) {
		d.do = doAnew
		return d
	}
	if c.tooEarly(o) {
		d.do = doRecent
		return d
	}
	if i := c.rule(o); i >= 0 {
		r := &c.f.o.Errors[i]
		d.do = verbs[r.Do]
		if r.Type != "" {
			d.kind = event.Type(r.Type)
		}
		if d.err == nil {
			d.err = quoting(fmt.Errorf("errors[%d] refuses the answer, status %d", i, o.status), o.shown())
		}
	}
	d.unwell = d.do == doRetry
	switch {
	case !d.unwell:
	case o.final:
		d.do = doFail
	case !c.f.repeatable && !o.unsent:
		d.do, d.err = doFail, c.notAgain(d.err)
	}
	return d
}

// usual is what is done where no rule says another: whatever may pass is tried again.
func (o *outcome) usual() verb {
	switch o.class {
	case gotAnswer:
		switch status := o.status; {
		case o.fault == nil:
			return doUse
		case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
			return doRetry
		}
	case gotTimeout, gotNone:
		return doRetry
	}
	return doFail
}

// rule returns the index of the first rule that matches, -1 if none does.
func (c *call) rule(o *outcome) int {
	if o.class >= gotUnusable {
		return -1
	}
	for i := range c.f.o.Errors {
		r := &c.f.o.Errors[i]
		if len(r.On) == 0 && o.json == nil || len(r.On) > 0 && !anyCase(r.On, o) || o.each && r.settled() {
			continue
		}
		if (r.When.IsZero() || c.when(r, o)) && (r.Item.IsZero() || c.whenItem(r, o)) {
			return i
		}
	}
	return -1
}

// when evaluates the condition of a rule. One that fails on an answer does not match it: a host in trouble
// may answer anything, and that must not make error events of what a further try heals.
func (c *call) when(r *Rule, o *outcome) bool {
	if o.json == nil {
		return false
	}
	yes, known := c.known[r]
	if !known {
		yes = c.holds(r.When, o.json, o)
	}
	if !known && o.each {
		c.known[r] = yes
	}
	return yes
}

// whenItem evaluates the condition of a rule about an event's item.
func (c *call) whenItem(r *Rule, o *outcome) bool { return o.item != nil && c.holds(r.Item, o.item, o) }

func (c *call) holds(e functions.AnswerExpr, text []byte, o *outcome) bool {
	v, err := e.OnAnswer(c.parent, text, c.ev, o.variable)
	return err == nil && v != nil && string(v) != "false"
}

// settled reports whether the rule says no more of a single event than it has said of the request for many.
func (r *Rule) settled() bool {
	return r.Item.IsZero() && !slices.ContainsFunc(r.On, func(s Case) bool { return s.from == 0 && s.class == gotNoMatch })
}

// looksInto reports whether a rule may look into answers of a status that is not good.
func looksInto(rules []Rule, status int) bool {
	o := &outcome{answer: answer{status: status}}
	for i := range rules {
		if !rules[i].When.IsZero() && !without(status) && (len(rules[i].On) == 0 || anyCase(rules[i].On, o)) {
			return true
		}
	}
	return false
}

// notAgain says why a request that may have been carried out is not sent again.
func (c *call) notAgain(err error) error {
	return fmt.Errorf("%w; not sent again, since %s is not idempotent", err, c.f.o.Method)
}
