package asynchttp

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/jq"
)

// BulkOptions say how one request asks for the events of a batch.
type BulkOptions struct {
	Max    int                  `yaml:"max" doc:"keys in one request at most; events with the same key count once" default:"50" min:"1"`
	MaxURL functions.Size       `yaml:"max_url" doc:"length of its URL at most: longer ones are asked in halves, save those of a single key" default:"8kB"`
	Items  functions.AnswerExpr `yaml:"items" doc:"jq of the answer that gives the list of its items" required:"true"`
	Match  MatchOptions         `yaml:"match" doc:"which item is an event's; the two are compared as text"`
	Bisect []Case               `yaml:"bisect" doc:"failures of a request as a whole after which it is asked in halves, to find the event that is to blame; left out: 400, 404, 410, 413, 414, 422, 431, 5xx, too_large; []: none"`
}

// MatchOptions say which item of an answer is an event's.
type MatchOptions struct {
	Event functions.Expr       `yaml:"event" doc:"jq of the event: the key that it asks for" required:"true"`
	Item  functions.AnswerExpr `yaml:"item" doc:"jq of an item: the key that it answers; items without one are nobody's" required:"true"`
}

// cases are Bisect, or what it is where it was left out.
func (b *BulkOptions) cases() []Case {
	if b.Bisect == nil {
		return usuallyBisected
	}
	return b.Bisect
}

// usuallyBisected are failures for which one event of many may be to blame.
var usuallyBisected = []Case{
	{from: http.StatusBadRequest, to: http.StatusBadRequest},
	{from: http.StatusNotFound, to: http.StatusNotFound},
	{from: http.StatusGone, to: http.StatusGone},
	{from: http.StatusRequestEntityTooLarge, to: http.StatusRequestURITooLong},
	{from: http.StatusUnprocessableEntity, to: http.StatusUnprocessableEntity},
	{from: http.StatusRequestHeaderFieldsTooLarge, to: http.StatusRequestHeaderFieldsTooLarge},
	{from: 500, to: 599},
	{class: gotTooLarge},
}

// ofRequest is an expression that a request is made of.
type ofRequest interface {
	Paths() []event.Path
	Variables() []string
	ReadsValue() bool
	Elements() jq.Elements
}

// requestParts are the expressions that a request is made of, by their option.
func (o *Options) requestParts() map[string]ofRequest {
	parts := map[string]ofRequest{}
	if !o.URL.IsZero() {
		parts["url"] = o.URL
	}
	for name, t := range o.Headers {
		parts["headers"+element(name)] = t
	}
	for option, p := range map[string]Params{"query": o.Query, "form": o.Form} {
		for name, list := range p {
			for i, t := range list {
				at := option + element(name)
				if len(list) > 1 {
					at += fmt.Sprintf("[%d]", i)
				}
				parts[at] = t
			}
		}
	}
	if !o.Body.IsZero() {
		parts["body"] = o.Body
	}
	return parts
}

// checkBulk finds what cannot work where one request asks for many events.
func (o *Options) checkBulk(wrong finding) {
	b := o.Bulk
	if b == nil {
		return
	}
	if b.Max < 1 {
		wrong("bulk.max", "write 1 or more")
	}
	if b.MaxURL <= 0 {
		wrong("bulk.max_url", "a URL needs some room: write a size above 0")
	}
	for option, missing := range map[string]bool{"bulk.items": b.Items.IsZero(), "bulk.match.event": b.Match.Event.IsZero(), "bulk.match.item": b.Match.Item.IsZero()} {
		if missing {
			wrong(option, "say by jq what it is")
		}
	}
	if o.As != "json" {
		wrong("as", "%s has no list of items, which bulk looks for: leave as out", o.As)
	}
	if !o.repeatable() {
		wrong("bulk", "%s is sent again for what an answer leaves out: write idempotent: true if it may be repeated", o.Method)
	}
	o.checkBulkRequest(wrong)
	for option, e := range map[string]functions.AnswerExpr{"bulk.items": b.Items, "bulk.match.item": b.Match.Item} {
		if !e.IsZero() {
			checkOfMany(option, e, wrong)
		}
	}
	o.checkCases(b.Bisect, "bulk.bisect", wrong)
	for k, s := range b.Bisect {
		switch place := fmt.Sprintf("bulk.bisect[%d]", k); {
		case s.from == 0 && s.class == gotNone:
			wrong(place, "no event is to blame for a connection that fails: take it out")
		case s.names(http.StatusOK):
			wrong(place, "%s is what is wanted: name failures", s)
		}
	}
}

// checkBulkRequest holds the expressions of the request to being about an array of events.
func (o *Options) checkBulkRequest(wrong finding) {
	parts := o.requestParts()
	about := false
	for _, option := range slices.Sorted(maps.Keys(parts)) {
		e := parts[option]
		about = about || e.ReadsValue()
		checkOfMany(option, e, wrong)
		for _, p := range e.Paths() {
			if text := p.String(); !p.Root() && !strings.HasPrefix(text, ".[") {
				wrong(option, "with bulk a request is about an array of events, which has no %s: write map(%s) for that of all of them, .[0]%s for what they have in common", text, text, text)
				break
			}
		}
	}
	if len(parts) > 0 && !about {
		wrong("bulk", "the request says nothing of the events: name their keys in url, query, form or body")
	}
}

// checkOfMany refuses variables that are of one event where there are many.
func checkOfMany(option string, e ofRequest, wrong finding) {
	for _, name := range e.Variables() {
		if name != "pipeline" {
			wrong(option, "$%s is of one event, and with bulk there are many here: take it out", name)
		}
	}
}

// checkItem finds what is wrong with a condition about items.
func (o *Options) checkItem(r *Rule, at string, wrong finding) {
	if o.Bulk != nil && !r.When.IsZero() {
		checkOfMany(at+".when", r.When, wrong)
	}
	if r.Item.IsZero() {
		return
	}
	if o.Bulk == nil {
		wrong(at+".item", "answers have items only with bulk: write when, which looks at the answer")
		return
	}
	if err := r.Item.CheckCondition(); err != nil {
		wrong(at+".item", "%w", err)
	}
	for k, s := range r.On {
		if s.from == 0 && s.class != gotNoMatch || s.from > 299 {
			wrong(fmt.Sprintf("%s.on[%d]", at, k), "%s brings no items that item could look into: write a rule of its own for it", s)
		}
	}
}
