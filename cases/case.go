package cases

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
)

// Case is one case: what happens, and what should come of it. What is not named of an output or error event is not
// compared; outputs, error events and drops that are not named at all fail the case.
type Case struct {
	Name    string    `yaml:"name" required:"true" doc:"the promise that the case holds"`
	Now     Time      `yaml:"now" doc:"when the case begins, as RFC 3339 writes it; 2000-01-01T00:00:00Z, which is also the earliest, where left out"`
	Events  []Event   `yaml:"events" required:"true" doc:"what is read, in order"`
	HTTP    []Answer  `yaml:"http" doc:"the answers of HTTP APIs; a request without one fails the case, as does an answer that nothing asks for"`
	Outputs []Output  `yaml:"outputs" doc:"what is written, in the order of the events that it is of; left out: nothing"`
	Errors  []Failure `yaml:"errors" doc:"the error events, in the order of their events; left out: none"`
	Dropped Dropped   `yaml:"dropped" doc:"how many events are dropped, or a list that says which, from 1; left out: none"`
}

// Event is one event that is read.
type Event struct {
	Value     Text              `yaml:"value" doc:"a text is the value as it is, anything else is the JSON that it is in YAML"`
	File      string            `yaml:"file" doc:"a file with the value, beside the test file; in place of value"`
	Tombstone bool              `yaml:"tombstone" doc:"true: the value is null"`
	Key       Text              `yaml:"key" doc:"the record key; left out: none"`
	Headers   map[string]string `yaml:"headers" doc:"the record headers"`
	Topic     string            `yaml:"topic" doc:"left out: the first topic, or the file, of the source"`
	Partition int32             `yaml:"partition" min:"0" doc:"left out: 0"`
	Offset    int64             `yaml:"offset" min:"0" doc:"left out: the next of its partition"`
	Timestamp Time              `yaml:"timestamp" doc:"left out: now"`
}

// Answer is a canned answer.
type Answer struct {
	Request        string             `yaml:"request" required:"true" doc:"method and URL, such as GET https://h/x?a=1; a URL alone is a GET; the order of what is asked for behind ? does not matter"`
	RequestBody    Text               `yaml:"request_body" doc:"what the request must carry; JSON is compared as such; left out: anything"`
	RequestHeaders map[string]string  `yaml:"request_headers" doc:"what headers the request must have, among others"`
	Status         int                `yaml:"status" doc:"left out: 200"`
	Headers        map[string]string  `yaml:"headers" doc:"headers of the answer"`
	Body           Text               `yaml:"body" doc:"a text is the body as it is, anything else is the JSON that it is in YAML"`
	BodyFile       string             `yaml:"body_file" doc:"a file with the body, beside the test file; in place of body"`
	Error          string             `yaml:"error" doc:"the connection fails with this text; in place of an answer"`
	Takes          functions.Duration `yaml:"takes" doc:"how long the answer takes, in virtual time"`
	Times          int                `yaml:"times" min:"1" doc:"how often it answers; left out: once, and the last that fits a request answers it again and again"`
}

// Output is what should be written.
type Output struct {
	Value     Text              `yaml:"value" doc:"JSON is compared as such: blanks and the order of keys do not matter, the spelling of numbers does"`
	File      string            `yaml:"file" doc:"a file with the value, beside the test file; in place of value"`
	Tombstone bool              `yaml:"tombstone" doc:"true: the value is null"`
	Key       Text              `yaml:"key" doc:"the record key"`
	Headers   map[string]string `yaml:"headers" doc:"headers that it has, among others"`
	Topic     string            `yaml:"topic" doc:"where it goes"`
	Timestamp Time              `yaml:"timestamp" doc:"the record's time"`
	Event     int               `yaml:"event" min:"1" doc:"of which event it is, from 1"`
}

// Failure is an error event that should be written.
type Failure struct {
	Type     string `yaml:"type" doc:"its enricher.error.type"`
	Function string `yaml:"function" doc:"where it failed: enricher.error.function"`
	Message  string `yaml:"message" doc:"a part of the message"`
	Attempts int    `yaml:"attempts" min:"1" doc:"how often it was tried"`
	Status   int    `yaml:"status" min:"1" doc:"the status of the last answer"`
	Topic    string `yaml:"topic" doc:"where it goes"`
	Event    int    `yaml:"event" min:"1" doc:"of which event it is, from 1"`
}

// Dropped is how many events are dropped, or which of them, from 1.
type Dropped struct {
	Count  int
	Events []int
}

// UnmarshalYAML reads a number or a list of numbers.
func (d *Dropped) UnmarshalYAML(n *yaml.Node) error {
	wrong := errors.New("want how many events are dropped, such as 1, or a list that says which, such as [2, 3]")
	number := func(n *yaml.Node, least int) (int, error) {
		i, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || i < least {
			return 0, wrong
		}
		return i, nil
	}
	if n.Kind != yaml.SequenceNode {
		var err error
		d.Count, err = number(n, 0)
		return err
	}
	for _, c := range n.Content {
		i, err := number(c, 1)
		if err != nil {
			return err
		}
		d.Events = append(d.Events, i)
	}
	d.Count = len(d.Events)
	return nil
}

// Time is a time as RFC 3339 writes it, "" for none.
type Time string

// UnmarshalText checks the text.
func (t *Time) UnmarshalText(text []byte) error {
	*t = Time(text)
	_, err := t.parse()
	return err
}

func (t Time) parse() (time.Time, error) {
	at, err := time.Parse(time.RFC3339, string(t))
	if err != nil {
		return at, fmt.Errorf("want a time such as 2026-11-30T12:00:00Z, not %q", string(t))
	}
	return at, nil
}

// or returns the time, or other where there is none.
func (t Time) or(other time.Time) time.Time {
	if at, err := t.parse(); err == nil {
		return at
	}
	return other
}

// The clock begins where that of testing/synctest does, and ends before time.Duration does.
var (
	firstTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

func option(name, format string, args ...any) error {
	return &functions.OptionError{Option: name, Err: fmt.Errorf(format, args...)}
}

// Validate finds what no key can tell alone. It implements functions.Validator.
func (c Case) Validate() error {
	var errs []error
	if strings.TrimSpace(c.Name) == "" {
		errs = append(errs, option("name", "is empty"))
	}
	if len(c.Events) == 0 {
		errs = append(errs, option("events", "names no event"))
	}
	if at := c.Now.or(firstTime); at.Before(firstTime) || at.After(lastTime) {
		errs = append(errs, option("now", "the clock of a case runs from %s to %s", firstTime.Format(time.RFC3339), lastTime.Format(time.RFC3339)))
	}
	for _, i := range c.Dropped.Events {
		if i > len(c.Events) {
			errs = append(errs, option("dropped", "there is no event %d", i))
		}
	}
	last := map[string]int64{}
	for i, e := range c.Events {
		in := fmt.Sprintf("%s/%d", e.Topic, e.Partition)
		if next := last[in]; e.Offset != 0 && e.Offset < next {
			errs = append(errs, option(fmt.Sprintf("events[%d].offset", i), "%d is not behind that of the event before it in its partition", e.Offset))
		}
		last[in] = max(last[in], e.Offset) + 1
	}
	return errors.Join(errs...)
}

// oneOf counts what is given.
func oneOf(given ...bool) (n int) {
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}

// Validate implements functions.Validator.
func (e Event) Validate() error {
	if oneOf(e.Value != "", e.File != "", e.Tombstone) != 1 {
		return errors.New("want one of value, file and tombstone: true")
	}
	return nil
}

// Validate implements functions.Validator.
func (o Output) Validate() error {
	if oneOf(o.Value != "", o.File != "", o.Tombstone) > 1 {
		return errors.New("want one of value, file and tombstone: true")
	}
	return nil
}

// Validate implements functions.Validator.
func (a Answer) Validate() error {
	if _, err := a.request(); err != nil {
		return &functions.OptionError{Option: "request", Err: err}
	}
	switch {
	case a.Status != 0 && (a.Status < 200 || a.Status > 599):
		return option("status", "%d is no status of an answer: write one from 200 to 599", a.Status)
	case a.Body != "" && a.BodyFile != "":
		return option("body_file", "the body is given twice: take body or body_file out")
	case a.Error != "" && (a.Status != 0 || a.Body != "" || a.BodyFile != "" || len(a.Headers) > 0):
		return option("error", "a connection that fails brings no answer: take out what is said of it")
	case a.Takes < 0:
		return option("takes", "%v is negative", a.Takes)
	}
	return nil
}
