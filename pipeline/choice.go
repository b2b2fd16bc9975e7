package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// FlagError is a fault of a flag.
type FlagError struct {
	Flag string
	Err  error
}

func (e *FlagError) Error() string { return "--" + e.Flag + ": " + e.Err.Error() }
func (e *FlagError) Unwrap() error { return e.Err }

func flagErrorf(flag, format string, args ...any) error {
	return &FlagError{flag, fmt.Errorf(format, args...)}
}

// choice is which error events are replayed.
type choice struct {
	pipeline         string // whose events are meant where pipelines names none
	types, functions []string
	pipelines        []string
	since, before    time.Time // zero: no bound
	age              string    // where reading ends, if that is an age
	where            functions.Expr
	words            []string // what was asked for, each in one spelling
}

// newChoice reads the options of a replay.
func newChoice(name string, o *ReplayOptions, now time.Time) (*choice, error) {
	c := &choice{pipeline: name}
	var err error
	for _, list := range []struct {
		flag string
		from []string
		to   *[]string
	}{{"type", o.Types, &c.types}, {"function", o.Functions, &c.functions}, {"pipeline", o.Pipelines, &c.pipelines}} {
		if *list.to, err = words(list.flag, list.from); err != nil {
			return nil, err
		}
		if len(*list.to) > 0 {
			c.words = append(c.words, list.flag+"="+strings.Join(*list.to, ","))
		}
	}
	if err := c.times(o, now); err != nil {
		return nil, err
	}
	if o.Where == "" {
		return c, nil
	}
	err = c.where.UnmarshalText([]byte(o.Where))
	if err == nil {
		err = c.where.CheckCondition()
	}
	if err != nil {
		return nil, &FlagError{"where", err}
	}
	c.words = append(c.words, "where="+c.where.Normal())
	return c, nil
}

// words sorts a list that was written in parts, with or without blanks, and leaves out what is there twice.
func words(flag string, from []string) ([]string, error) {
	var out []string
	for _, part := range from {
		for word := range strings.SplitSeq(part, ",") {
			if word = strings.TrimSpace(word); word == "" {
				return nil, flagErrorf(flag, "%q names nothing between its commas: take the flag out, or name one", part)
			}
			out = append(out, word)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// times reads since and until. What is younger than an age today is not tomorrow, so that it must not be passed
// over: reading ends there instead.
func (c *choice) times(o *ReplayOptions, now time.Time) error {
	until := now
	if o.Since != "" {
		at, name, err := kafka.ParseTime(o.Since, now)
		if err != nil {
			return &FlagError{"since", err}
		}
		c.since, c.words = at, append(c.words, "since="+name)
	}
	if o.Until != "" {
		at, name, err := kafka.ParseTime(o.Until, now)
		if err != nil {
			return &FlagError{"until", err}
		}
		if until = at; strings.HasPrefix(name, "-") {
			c.age = name
		} else {
			c.before = at
		}
		c.words = append(c.words, "until="+name)
	}
	if !c.since.Before(until) {
		return flagErrorf("since", "nothing lies between %s and %s", o.Since, cmp.Or(o.Until, "now"))
	}
	return nil
}

// suffix is what the consumer group that keeps the position of the choice has more than the job's: one for each,
// equal ones written differently being the same.
func (c *choice) suffix() string {
	if len(c.words) == 0 {
		return "-replay"
	}
	sum := sha256.Sum256([]byte(strings.Join(c.words, "\n")))
	return "-replay-" + hex.EncodeToString(sum[:5])
}

// verdict is what becomes of a record of the error topic.
type verdict int

const (
	chosen    verdict = iota
	passed            // the filter leaves it out
	ofOthers          // an error event of another pipeline
	truncated         // chosen, but not whole
	foreign           // no error event
	unasked           // where could not be answered for it
)

// judge finds the event in a record of the error topic, and what becomes of it. err says why it cannot be replayed.
func (c *choice) judge(ctx context.Context, rec *streammanager.Record) (e streammanager.ErrorRecord, v verdict, err error) {
	if e, err = streammanager.ReadError(rec); err != nil {
		return e, foreign, err
	}
	switch {
	case len(c.pipelines) == 0 && e.Pipeline != c.pipeline, len(c.pipelines) > 0 && !slices.Contains(c.pipelines, e.Pipeline):
		return e, ofOthers, nil
	case len(c.types) > 0 && !slices.Contains(c.types, string(e.Type)),
		len(c.functions) > 0 && !slices.Contains(c.functions, e.Function),
		!c.since.IsZero() && e.Time.Before(c.since),
		!c.before.IsZero() && !e.Time.Before(c.before):
		return e, passed, nil
	case e.Truncated:
		return e, truncated, errors.New("it was cut to fit the error topic")
	}
	if e.Origin.Value, err = originalValue(rec, &e); err != nil {
		return e, foreign, err
	}
	if c.where.IsZero() {
		return e, chosen, nil
	}
	// An expression that is left behind, since it does not end, may look at the bytes later.
	o := &e.Origin
	ev := event.New(event.Position{Topic: o.Topic, Partition: o.Partition, Offset: o.Offset}, o.Key, o.Value, o.Headers, o.Timestamp).Clone()
	switch keep, err := c.where.Bool(event.WithPipeline(ctx, e.Pipeline), ev); {
	case err != nil:
		return e, unasked, err
	case !keep:
		return e, passed, nil
	}
	return e, chosen, nil
}

// originalValue takes the value out of a document of format: event_platform, which is told by what it repeats of
// the headers: the error sink may have had another format when the record was written.
func originalValue(rec *streammanager.Record, e *streammanager.ErrorRecord) ([]byte, error) {
	encoding := ""
	for _, h := range rec.Headers {
		if h.Key == encodingHeader {
			encoding = string(h.Value)
		}
	}
	var doc platformError
	if err := json.Unmarshal(rec.Value, &doc); err != nil || !doc.describes(e) {
		if encoding != "" {
			return nil, fmt.Errorf("reading the document of an error event: header %s says that there is one", encodingHeader)
		}
		return rec.Value, nil
	}
	switch {
	case doc.RawEvent == nil:
		return nil, nil
	case encoding == "":
		return []byte(*doc.RawEvent), nil
	case encoding != "base64":
		return nil, fmt.Errorf("reading raw_event of an error event: its encoding %q is not known", encoding)
	}
	raw, err := base64.StdEncoding.DecodeString(*doc.RawEvent)
	if err != nil {
		return nil, fmt.Errorf("reading raw_event of an error event: %w", err)
	}
	return raw, nil
}

// describes reports whether the document is about the failure that the headers tell of.
func (d *platformError) describes(e *streammanager.ErrorRecord) bool {
	at, err := time.Parse(time.RFC3339, d.Dt)
	return err == nil && at.Equal(e.Time) && strings.HasPrefix(d.Schema, "/error/") && d.EmitterID == e.Pipeline && d.ErrorType == string(e.Type)
}
