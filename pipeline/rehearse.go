package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/streammanager"
)

// Rehearsal says what a pipeline is rehearsed with.
type Rehearsal struct {
	// Events are what the source delivers, in this order. Offsets grow within a topic and partition.
	Events []streammanager.Record
	// Watch is told of each step of an event, from several goroutines at once; nil: nobody is.
	Watch func(Note)
}

// Fate is what became of one event of a rehearsal. One that has no outcome is unfinished.
type Fate struct {
	// Outputs are the records as the sink was to write them.
	Outputs []streammanager.Record
	// Failure is what its error event says, nil where it has none; ErrorRecord is that event as the error sink was
	// to write it.
	Failure     *streammanager.Failure
	ErrorRecord streammanager.Record
	Dropped     bool
	Unfinished  bool
}

const (
	// rehearsalStop is the time that a rehearsal which is told to end has for what it has begun: none.
	rehearsalStop = time.Millisecond
	// rehearsalCommit is seldom, since nothing is committed: in virtual time each look at the clock would cost real time.
	rehearsalCommit = time.Hour
)

// Rehearse carries events through the pipeline and returns what became of each. Filter, key, windows and functions
// are those of a run; source and sinks are not opened, and nothing is written or committed. An event that fails is an
// error event, whether the file has an error sink or not. The fates are those of r.Events, also beside an error, which
// is what ended the stream. When ctx ends, what is not finished stays so.
func (p *Pipeline) Rehearse(ctx context.Context, deps Deps, r Rehearsal) ([]Fate, error) {
	stage := newStage(r)
	deps.stage = stage
	stream, done, err := p.Build(deps)
	if err != nil {
		return nil, err
	}
	err = errors.Join(stream.Run(ctx), done())
	return stage.ends(err != nil || ctx.Err() != nil), err
}

// Reads returns the topic, or the name of the file, that an event is of where nothing else is said, and the first offset in
// it. Of a regular expression it is the text.
func (p *Pipeline) Reads() (topic string, first int64) {
	switch k := p.cfg.Source.Kafka; {
	case k == nil && p.cfg.Source.File.Path == "-":
		return "stdin", 1
	case k == nil:
		return p.cfg.Source.File.Path, 1
	case k.Topics.Regexp != "":
		return k.Topics.Regexp, 0
	default:
		return k.Topics.Names[0], 0
	}
}

// stage is what a rehearsal has in place of source and sinks. A nil stage watches nothing.
type stage struct {
	Rehearsal
	index map[place]int // of the events, by where they were read

	mu    sync.Mutex // guards fates
	fates []Fate
}

type place struct {
	topic     string
	partition int32
	offset    int64
}

func newStage(r Rehearsal) *stage {
	s := &stage{Rehearsal: r, index: make(map[place]int, len(r.Events)), fates: make([]Fate, len(r.Events))}
	for i := range r.Events {
		e := &r.Events[i]
		s.index[place{e.Topic, e.Partition, e.Offset}] = i
	}
	return s
}

// of returns the index of the event that ev is, or is derived from.
func (s *stage) of(ev *event.Event) int {
	at := ev.Position()
	return s.index[place{at.Topic, at.Partition, at.Offset}]
}

// ends returns the fates. Of a stream that ended early those without an outcome are unfinished, else dropped.
func (s *stage) ends(early bool) []Fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.fates {
		f := &s.fates[i]
		if f.Failure == nil && len(f.Outputs) == 0 && !f.Dropped {
			f.Dropped, f.Unfinished = !early, early
		}
	}
	return s.fates
}

// rehearse sets the ends of a stream that is only rehearsed.
func (a *assembly) rehearse(b *streammanager.Builder) error {
	a.dry = true // the sinks are made for what they make of an event, and stay closed
	dst, err := a.sink(&a.p.cfg.Sink, false)
	if err != nil {
		return fmt.Errorf("making the sink: %w", err)
	}
	s := a.deps.stage
	b.From(&stageSource{records: s.Events}).To(&stageSink{stage: s, real: dst})
	format, errs := streammanager.ErrorFormat(streammanager.RecordFormat), &stageSink{stage: s, errors: true}
	if e := a.p.cfg.ErrorSink; e != nil {
		if errs.real, err = a.sink(&e.sink, true); err != nil {
			return fmt.Errorf("making the error sink: %w", err)
		}
		if own := a.errorFormat(); own != nil {
			format = own
		}
	}
	b.ErrorsTo(errs, func(f *streammanager.Failure) (*event.Event, error) {
		s.mu.Lock()
		s.fates[s.of(f.Input)].Failure = f
		s.mu.Unlock()
		return format(f)
	})
	return nil
}

// stageSource delivers the events of a rehearsal.
type stageSource struct {
	records []streammanager.Record
	next    int
}

// Open implements streammanager.Source.
func (s *stageSource) Open(_ context.Context, a streammanager.Assignments) error {
	starts := map[streammanager.TopicPartition]streammanager.Position{}
	for i := range s.records {
		r := &s.records[i]
		tp := streammanager.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if _, begun := starts[tp]; !begun {
			starts[tp] = streammanager.Position{Offset: r.Offset}
		}
	}
	a.Assigned(starts)
	return nil
}

// Poll implements streammanager.Source.
func (s *stageSource) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	if err := ctx.Err(); err != nil {
		return streammanager.Polled{}, err
	}
	if s.next == len(s.records) {
		return streammanager.Polled{}, io.EOF
	}
	from := s.next
	s.next = min(from+limit, len(s.records))
	return streammanager.Polled{Records: s.records[from:s.next]}, nil
}

// Close implements streammanager.Source.
func (s *stageSource) Close(context.Context) {}

// stageSink notes what the sink behind it was to write, and whose it is: that is kept in the record's offset, which
// means nothing to a sink.
type stageSink struct {
	stage  *stage
	real   streammanager.Sink // nil: there is none
	errors bool
}

// Open implements streammanager.Sink.
func (s *stageSink) Open(context.Context) error { return nil }

// Close implements streammanager.Sink.
func (s *stageSink) Close(context.Context) error { return nil }

// Prepare implements streammanager.Preparer.
func (s *stageSink) Prepare(ev *event.Event) (streammanager.Record, error) {
	r := streammanager.Record{Key: ev.Key(), Value: ev.Value(), Headers: ev.Headers(), Timestamp: ev.Timestamp()}
	var err error
	if p, ok := s.real.(streammanager.Preparer); ok {
		r, err = p.Prepare(ev)
	}
	r.Offset = int64(s.stage.of(ev))
	return r, err
}

// Check implements streammanager.Checker. How large a record may be is for the brokers to say, and nobody asks them.
func (s *stageSink) Check(r *streammanager.Record) error {
	if f, ok := s.real.(*file.Sink); ok {
		return f.Check(r)
	}
	return nil
}

// Produce implements streammanager.Sink.
func (s *stageSink) Produce(_ context.Context, r *streammanager.Record, done func(error)) {
	defer done(nil)
	kept := *r
	kept.Offset = 0
	if kept.Timestamp.IsZero() {
		kept.Timestamp = time.Now() // as the client of Kafka does
	}
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	f := &s.stage.fates[r.Offset]
	if s.errors {
		f.ErrorRecord = kept
		return
	}
	f.Outputs = append(f.Outputs, kept)
}

var (
	_ streammanager.Source   = (*stageSource)(nil)
	_ streammanager.Sink     = (*stageSink)(nil)
	_ streammanager.Preparer = (*stageSink)(nil)
	_ streammanager.Checker  = (*stageSink)(nil)
)
