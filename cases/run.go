package cases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

const (
	// mostVirtual is how long a case may take in virtual time. An event that is tried for ever would never end.
	mostVirtual = 24 * time.Hour
	// mostReal is how long a case may take in real time.
	mostReal = time.Minute
)

// Options says how a case runs. The zero Options is fit for use.
type Options struct {
	// Dir is where files that the case names are; "": the working directory.
	Dir string
	// Log takes what the pipeline logs; nil: nothing does.
	Log *slog.Logger
	// Real bounds the real time of a case; 0: a minute.
	Real time.Duration
}

// Finding is one thing in which a case did not go as it should have.
type Finding struct {
	// Path is what of the case it is about, such as outputs[1]; "" for the case as a whole.
	Path string
	// Text says it, in one line or several.
	Text string
}

// Run runs the case on p and returns in what it did not go as it should have, nil where all did. t is the test which this
// is a part of, new(testing.T) elsewhere. An error means that the case could not be run at all.
func (c *Case) Run(t *testing.T, p *pipeline.Pipeline, o Options) ([]Finding, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	r := &run{c: c, p: p, dir: o.Dir, log: o.Log}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if o.Real == 0 {
		o.Real = mostReal
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	if err := inVirtualTime(t, o.Real, r.rehearse); err != nil {
		return []Finding{{Text: err.Error()}}, nil // r may still be written to
	}
	if r.refused != nil {
		return nil, r.refused
	}
	return r.judge()
}

// check validates a case that no file has declared.
func (c *Case) check() error {
	errs := []error{c.Validate()}
	for i, e := range c.Events {
		errs = append(errs, within(e.Validate(), "events[%d]", i))
	}
	for i, a := range c.HTTP {
		errs = append(errs, within(a.Validate(), "http[%d]", i))
	}
	for i, o := range c.Outputs {
		errs = append(errs, within(o.Validate(), "outputs[%d]", i))
	}
	for _, t := range c.times() {
		if t != "" {
			_, err := t.parse()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func within(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

func (c *Case) times() []Time {
	all := []Time{c.Now}
	for _, e := range c.Events {
		all = append(all, e.Timestamp)
	}
	for _, o := range c.Outputs {
		all = append(all, o.Timestamp)
	}
	return all
}

// run is one run of a case.
type run struct {
	c   *Case
	p   *pipeline.Pipeline
	dir string
	log *slog.Logger

	events []streammanager.Record // without their default times
	wanted [][]byte               // values of the outputs, nil: not compared
	net    answers

	fates   []pipeline.Fate
	failed  error // what ended the stream
	refused error // the pipeline could not be built
	late    bool  // the case took too long

	mu    sync.Mutex // guards drops
	drops map[int]string
}

// file reads a file that the case names.
func (r *run) file(name string) ([]byte, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.dir, name)
	}
	return os.ReadFile(name)
}

// value returns a value that is given as text or file, or is null.
func (r *run) value(text Text, file string, tombstone bool) ([]byte, error) {
	switch {
	case file != "":
		return r.file(file)
	case tombstone:
		return nil, nil
	default:
		return []byte(text), nil
	}
}

// read gathers what the case is made of.
func (r *run) read() (err error) {
	topic, first := r.p.Reads()
	next := map[streammanager.TopicPartition]int64{}
	for i, e := range r.c.Events {
		rec := streammanager.Record{Topic: topic, Partition: e.Partition, Key: []byte(e.Key)}
		if e.Topic != "" {
			rec.Topic = e.Topic
		}
		if e.Key == "" {
			rec.Key = nil
		}
		tp := streammanager.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
		if _, begun := next[tp]; !begun {
			next[tp] = first
		}
		rec.Offset = max(e.Offset, next[tp])
		next[tp] = rec.Offset + 1
		if rec.Value, err = r.value(e.Value, e.File, e.Tombstone); err != nil {
			return fmt.Errorf("events[%d].file: %w", i, err)
		}
		for _, name := range sortedKeys(e.Headers) {
			rec.Headers = append(rec.Headers, event.Header{Key: name, Value: []byte(e.Headers[name])})
		}
		r.events = append(r.events, rec)
	}
	for i, o := range r.c.Outputs {
		v, err := r.value(o.Value, o.File, o.Tombstone)
		if err != nil {
			return fmt.Errorf("outputs[%d].file: %w", i, err)
		}
		r.wanted = append(r.wanted, v)
	}
	for i := range r.c.HTTP {
		a := &r.c.HTTP[i]
		q, err := a.request()
		body := []byte(a.Body)
		if err == nil && a.BodyFile != "" {
			body, err = r.file(a.BodyFile)
		}
		if err != nil {
			return fmt.Errorf("http[%d]: %w", i, err)
		}
		r.net.canned = append(r.net.canned, &canned{Answer: a, request: q, body: body})
	}
	return nil
}

// rehearse runs the pipeline; time is virtual here.
func (r *run) rehearse() {
	now := r.c.Now.or(firstTime)
	time.Sleep(time.Until(now)) // nothing else waits yet: the clock is set
	for i := range r.events {
		r.events[i].Timestamp = r.c.Events[i].Timestamp.or(now)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mostVirtual)
	defer cancel()
	r.net.began, r.net.stop = now, cancel
	r.fates, r.failed = r.p.Rehearse(ctx, pipeline.Deps{Logger: r.log, Transport: &r.net}, pipeline.Rehearsal{Events: r.events, Watch: r.watch})
	if r.fates == nil {
		r.refused = r.failed
	}
	r.late = errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// watch notes where events are dropped.
func (r *run) watch(n pipeline.Note) {
	if n.Err != nil {
		return
	}
	switch {
	case n.Kind == pipeline.Asked && n.Place == "filter" && !n.Yes,
		n.Kind == pipeline.Keyed && !n.Yes,
		n.Kind == pipeline.Returned && len(n.Events) == 0:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.drops == nil {
			r.drops = map[int]string{}
		}
		r.drops[n.Event] = n.Place
	}
}
