package asynchttp

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/functions"
)

// Rule says what is done about an outcome.
type Rule struct {
	On   []Case               `yaml:"on" doc:"what came: statuses (404, 5xx, 200-299) of whole answers, timeout, connection, empty, no_match (select finds nothing), too_large, not_json; one or a list; left out: any answer that can be read"`
	When functions.AnswerExpr `yaml:"when" doc:"jq on the answer, which must be truthy; one that fails is not; $status and $response_headers are at hand, as in select and into"`
	Item functions.AnswerExpr `yaml:"item" doc:"with bulk: jq on the event's item, which must be truthy; an event without an item does not match"`
	Do   string               `yaml:"do" doc:"another attempt, an error event, neither error nor output, or the event as it came" enum:"retry|error|drop|pass" required:"true"`
	Type string               `yaml:"type" doc:"type of the error event: of error, and of retry once attempts are used up; left out: the default of what came"`
}

// RecentOptions say when an answer may only be too early.
type RecentOptions struct {
	On          []Case             `yaml:"on" doc:"what says that it is not there (yet): statuses, no_match, empty; left out: 404, and no_match where there is a select"`
	YoungerThan functions.Duration `yaml:"younger_than" doc:"the age from which on it counts; total_timeout must have room for it and one timeout more" required:"true"`
	Every       functions.Duration `yaml:"every" doc:"wait before it is asked for again, at least 100ms" default:"1s"`
	Time        functions.Expr     `yaml:"time" doc:"jq of the event's own time, RFC 3339 or epoch milliseconds ($timestamp will do); the age is the larger of the time since then and since the first try; left out or neither: since the first try"`
}

// cases are On, or what it is where it was left out.
func (r *RecentOptions) cases() []Case {
	if len(r.On) == 0 {
		return usuallyMissing
	}
	return r.On
}

var usuallyMissing = []Case{{from: http.StatusNotFound, to: http.StatusNotFound}, {class: gotNoMatch}}

// Case is one outcome, or a range of statuses, as a rule names it.
type Case struct {
	from, to int   // statuses; 0: the class decides
	class    class // where from is 0
	text     string
}

// classes are the outcomes that have a name.
var classes = map[string]class{
	"timeout": gotTimeout, "connection": gotNone, "empty": gotEmpty, "no_match": gotNoMatch, "too_large": gotTooLarge, "not_json": gotNotJSON,
}

const (
	leastStatus = 200 // what is below is no end of a request
	mostStatus  = 999 // some servers leave the range of HTTP
)

var statuses = regexp.MustCompile(`^(?:(\d{3})|(\d)xx|(\d{3})-(\d{3}))$`)

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Case) UnmarshalText(text []byte) error {
	*s = Case{text: string(text)}
	if known, ok := classes[s.text]; ok {
		s.class = known
		return nil
	}
	m := statuses.FindStringSubmatch(strings.ToLower(s.text))
	if m == nil {
		return fmt.Errorf("%q is no outcome: write a status such as 404, 5xx or 200-299, or one of timeout, connection, empty, no_match, too_large, not_json", s.text)
	}
	number := func(digits string) int {
		n, _ := strconv.Atoi(digits) // they are digits
		return n
	}
	switch {
	case m[1] != "":
		s.from, s.to = number(m[1]), number(m[1])
	case m[2] != "":
		s.from, s.to = 100*number(m[2]), 100*number(m[2])+99
	default:
		s.from, s.to = number(m[3]), number(m[4])
	}
	if s.from < leastStatus || s.to > mostStatus {
		return fmt.Errorf("%q never comes: an answer has a status from %d to %d", s.text, leastStatus, mostStatus)
	}
	if s.from > s.to {
		return fmt.Errorf("%q has its ends in the wrong order", s.text)
	}
	return nil
}

// Numeric implements functions.Numeric: a status may be written as a number.
func (s Case) Numeric() bool { return true }

// String spells the case as it was written.
func (s Case) String() string { return s.text }

// has reports whether the case names an outcome.
func (s Case) has(o *outcome) bool {
	if s.from == 0 {
		return s.class == o.class
	}
	return o.whole() && s.from <= o.status && o.status <= s.to
}

func anyCase(cases []Case, o *outcome) bool {
	return slices.ContainsFunc(cases, func(s Case) bool { return s.has(o) })
}

// names reports whether the case names a status.
func (s Case) names(status int) bool { return s.from <= status && status <= s.to }

// covers reports whether cases name all that others name.
func covers(cases, others []Case) bool {
	return !slices.ContainsFunc(others, func(s Case) bool { return !coversOne(cases, s) })
}

func coversOne(cases []Case, s Case) bool {
	if s.from == 0 {
		if slices.ContainsFunc(cases, func(c Case) bool { return c.from == 0 && c.class == s.class }) {
			return true
		}
		if s.class > gotNoMatch {
			return false
		}
		s.from, s.to = 200, 299 // good answers, whose status says it too
	}
	at := s.from // the first status that is not named yet
	for again := true; again && at <= s.to; {
		again = false
		for _, c := range cases {
			if c.from > 0 && c.names(at) {
				at, again = c.to+1, true
			}
		}
	}
	return at > s.to
}

// finding says what is wrong with an option.
type finding func(option, format string, args ...any)

// checkOutcomes finds what is wrong with errors and retry_recent.
func (o *Options) checkOutcomes(wrong finding) {
	for i := range o.Errors {
		at := fmt.Sprintf("errors[%d]", i)
		r := &o.Errors[i]
		o.checkCases(r.On, at+".on", wrong)
		o.checkRule(r, at, wrong)
		if by := shadowing(o.Errors[:i], r); len(by) > 0 {
			wrong(at, "never matches: what it names is taken by %s before it; put it first, or take it out", strings.Join(by, " and "))
		}
	}
	o.checkRecent(wrong)
}

// checkCases finds cases that cannot come, and those that are there twice.
func (o *Options) checkCases(cases []Case, at string, wrong finding) {
	for k, s := range cases {
		place := fmt.Sprintf("%s[%d]", at, k)
		if s.from == 0 && s.class == gotNoMatch && o.Select.IsZero() && o.Bulk == nil {
			wrong(place, "no_match never comes without a select: say what to look for, or name another outcome")
		}
		if coversOne(cases[:k], s) {
			wrong(place, "%s is in what stands before it already", s)
		}
	}
}

var typeName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// checkRule finds contradictions within a rule.
func (o *Options) checkRule(r *Rule, at string, wrong finding) {
	if len(r.On) == 0 && r.When.IsZero() && r.Item.IsZero() {
		wrong(at, "say what came, by on, when, or both")
		return
	}
	o.checkItem(r, at, wrong)
	if !r.When.IsZero() {
		if err := r.When.CheckCondition(); err != nil {
			wrong(at+".when", "%w", err)
		}
		for k, s := range r.On {
			if s.unreadable() {
				wrong(fmt.Sprintf("%s.on[%d]", at, k), "%s brings no answer that when could look into: write a rule of its own for it", s)
			}
		}
	}
	if _, known := verbs[r.Do]; !known {
		wrong(at+".do", "want one of retry, error, drop, pass, not %q", r.Do)
	}
	switch {
	case r.Type == "":
	case r.Do == "drop", r.Do == "pass":
		wrong(at+".type", "%s makes no error event that could have a type: write do: error, or leave type out", r.Do)
	case !typeName.MatchString(r.Type):
		wrong(at+".type", "%q is no type: write lower case letters, digits and _, such as not_found", r.Type)
	}
	if r.Do == "retry" {
		o.checkRetry(r, at, wrong)
	}
}

// unreadable reports whether the case brings no answer that jq could look into.
func (s Case) unreadable() bool {
	if s.from == 0 {
		return s.class != gotNoMatch
	}
	return s.from == s.to && without(s.from)
}

// checkRetry finds rules whose retry is none, or never ends.
func (o *Options) checkRetry(r *Rule, at string, wrong finding) {
	if o.Retry.Attempts == 1 {
		wrong(at+".do", "retry never comes to a second attempt with retry.attempts: 1: raise it, or write error")
	}
	if !o.repeatable() && !slices.ContainsFunc(r.On, Case.maybeUnsent) {
		wrong(at+".do", "%s is sent again only where it cannot have been carried out, which what came does not say: write idempotent: true if it may be repeated", o.Method)
	}
	if !r.When.IsZero() || !r.Item.IsZero() {
		return
	}
	for k, s := range r.On {
		if s.names(http.StatusOK) {
			wrong(fmt.Sprintf("%s.on[%d]", at, k), "every good answer would be asked for again: say by when which of them are meant")
		}
	}
}

// maybeUnsent reports whether the case may say that the request was not carried out.
func (s Case) maybeUnsent() bool {
	if s.from == 0 {
		return s.class == gotTimeout || s.class == gotNone
	}
	return s.names(http.StatusTooEarly) || s.names(http.StatusTooManyRequests)
}

// shadowing returns the rules of before that together take all that later names, nil if something is left. One that has a
// condition takes nothing for sure, but where later has the same.
func shadowing(before []Rule, later *Rule) []string {
	left := later.On
	if len(left) == 0 {
		left = []Case{{from: leastStatus, to: mostStatus}}
		if !later.Item.IsZero() {
			left[0].to = 299 // others bring no items
		}
	}
	var by []string
	var taken []Case
	for i := range before {
		r := &before[i]
		if !takesAll(r.When, later.When) || !takesAll(r.Item, later.Item) {
			continue
		}
		name := fmt.Sprintf("errors[%d]", i)
		if len(r.On) == 0 {
			return []string{name} // with the same condition, whatever the status
		}
		if covers(r.On, left) {
			return []string{name}
		}
		if slices.ContainsFunc(r.On, func(c Case) bool { return slices.ContainsFunc(left, c.meets) }) {
			by, taken = append(by, name), append(taken, r.On...)
		}
	}
	if !covers(taken, left) {
		return nil
	}
	return by
}

// meets reports whether there may be an outcome that both name.
func (s Case) meets(o Case) bool {
	good := func(c Case) bool { return c.from <= 299 && c.to >= 200 }
	switch {
	case s.from > 0 && o.from > 0:
		return s.from <= o.to && o.from <= s.to
	case s.from == 0 && o.from == 0:
		return s.class == o.class
	case s.from == 0:
		return s.class <= gotNoMatch && good(o)
	}
	return o.class <= gotNoMatch && good(s)
}

// takesAll reports whether a condition is met wherever another is: it is none, or the same.
func takesAll(first, later functions.AnswerExpr) bool {
	return first.IsZero() || !later.IsZero() && first.Normal() == later.Normal()
}

// repeatable reports whether a request may be carried out more than once. A method that changes nothing by
// being repeated always may.
func (o *Options) repeatable() bool {
	return o.Idempotent || o.Method != http.MethodPost && o.Method != http.MethodPatch
}

// triedAnyway are the statuses that are attempts again by default.
var triedAnyway = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// checkRecent finds a retry_recent that has no room, and one that asks again after what is no sign of a copy
// that lags behind.
func (o *Options) checkRecent(wrong finding) {
	r := o.RetryRecent
	if r == nil {
		return
	}
	const at = "retry_recent"
	o.checkCases(r.On, at+".on", wrong)
	for k, s := range r.On {
		place := fmt.Sprintf("%s.on[%d]", at, k)
		again := slices.ContainsFunc(triedAnyway, s.names) || s.to >= 500
		switch {
		case s.from == 0 && s.class != gotNoMatch && s.class != gotEmpty:
			wrong(place, "%s does not say that something is not there yet: name statuses such as 404, no_match, or empty", s)
		case s.names(http.StatusOK):
			wrong(place, "%s is what is wanted: name what says that it is not there yet, such as 404 or no_match", s)
		case s.from > 0 && again:
			wrong(place, "%s is tried again whatever the event's age: name what says that it is not there yet, such as 404", s)
		}
	}
	if r.YoungerThan <= 0 {
		wrong(at+".younger_than", "write a duration above 0")
	}
	if r.Every.Duration() < shortestHold {
		wrong(at+".every", "%v is less than %v, and such tries are no attempts: nothing else would bound them", r.Every, shortestHold)
	}
	if need := r.YoungerThan.Duration() + o.Timeout.Duration(); o.TotalTimeout > 0 && o.TotalTimeout.Duration() < need {
		wrong(at+".younger_than", "does not fit into total_timeout %v: with one timeout, %v, more it may take %v; raise total_timeout, or lower one of the others",
			o.TotalTimeout, o.Timeout, need.Round(time.Millisecond))
	}
	if !o.repeatable() {
		wrong(at, "%s is sent again only where it cannot have been carried out: write idempotent: true if it may be repeated", o.Method)
	}
}
