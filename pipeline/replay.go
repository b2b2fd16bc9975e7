package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// ReplayOptions chooses the error events that are replayed. The zero value chooses all of the pipeline.
type ReplayOptions struct {
	// Topics hold the error events; none: the topic of error_sink.kafka, if it is a fixed one.
	Topics []string
	// Types, Functions and Pipelines are what the error events are of. Each may hold several between commas.
	// No Pipelines: the pipeline's own, since a topic may have error events of several.
	Types, Functions, Pipelines []string
	// Since and Until bound the time of the failure: RFC 3339, milliseconds since 1970, or an age such as -24h.
	Since, Until string
	// Where is a jq expression over the original event.
	Where string
}

// Replay sends the events behind the error events of a pipeline through it again.
type Replay struct {
	p      *Pipeline
	topics []string
	group  string
	suffix string     // what the group has more than that of the job
	conn   connection // of the error topic
	choice *choice
	anew   kafka.Anew

	mu     sync.Mutex // guards what follows
	log    *slog.Logger
	source ending
	tally  Tally
	seen   map[streammanager.TopicPartition]int64 // the offset behind those that were counted
	told   int                                    // records of which the log told
	asked  time.Time                              // when the log last told that the filter's expression failed
	since  int                                    // how often it failed since
}

// Tally counts what became of the records of an error topic. A record that is read again counts once.
type Tally struct {
	Looked     int64                // all of them
	Chosen     map[event.Type]int64 // events that go through the pipeline
	PassedOver map[event.Type]int64 // left out by the filter
	OfOthers   map[string]int64     // error events of other pipelines
	Cut        int64                // chosen, and not whole: they cannot be replayed
	NoErrors   int64                // records that are no error events
	Unanswered int64                // those for which the filter's expression failed
}

// Replay prepares a replay. The error is Problems where the file has nothing to replay, or a FlagError.
func (p *Pipeline) Replay(o ReplayOptions) (*Replay, error) {
	choice, err := newChoice(p.cfg.Name, &o, time.Now())
	if err != nil {
		return nil, err
	}
	r := &Replay{p: p, choice: choice, log: slog.Default(), seen: map[streammanager.TopicPartition]int64{}}
	r.tally = Tally{Chosen: map[event.Type]int64{}, PassedOver: map[event.Type]int64{}, OfOthers: map[string]int64{}}
	if r.topics, err = words("topic", o.Topics); err != nil {
		return nil, err
	}
	for _, topic := range r.topics {
		if err := kafka.CheckTopic(topic); err != nil {
			return nil, &FlagError{"topic", err}
		}
	}
	if problems := r.prepare(); len(problems) > 0 {
		return nil, problems.sorted()
	}
	of := p.cfg.Name
	if k := p.cfg.Source.Kafka; k != nil && k.Group != "" {
		of = k.Group
	}
	r.suffix = choice.suffix()
	r.group = of + r.suffix
	return r, nil
}

// prepare finds the error topic.
func (r *Replay) prepare() Problems {
	d, cfg := r.p.reader(), &r.p.cfg
	e := cfg.ErrorSink
	switch {
	case r.p.unset:
		d.problem("", "cannot be replayed while variables are not set")
		return d.problems
	case e == nil:
		d.problem("error_sink", "there is none, so that no error event was kept that could be replayed: add error_sink: {kafka: {topic: …}} and run the pipeline with it")
		return d.problems
	case e.Kafka == nil:
		d.problem("error_sink.file", "a file cannot be replayed: it has no headers that say what failed. Write error events to a topic (error_sink.kafka), or have a pipeline read the file (source.file)")
		return d.problems
	}
	if topic, ok := e.Kafka.literalTopic(); ok && len(r.topics) == 0 {
		r.topics = []string{topic}
	} else if len(r.topics) == 0 {
		d.problem("error_sink.kafka.topic", "differs from event to event: name the topics to read with --topic")
	}
	if c := e.Kafka.connection.or(cfg.Kafka); c.embedded() && c.DataDir == "" {
		d.problem("error_sink.kafka", "the embedded broker is in memory, and its error events are gone with the process that had it: give it a data_dir, or use brokers of Kafka")
	}
	r.conn = e.Kafka.connection
	r.conn.Options = maps.Clone(r.conn.Options)
	maps.DeleteFunc(r.conn.Options, func(name string, _ value) bool { return !optionFor(name, kafka.SourceSide) })
	return d.problems
}

// Group returns the consumer group that keeps how far the replay has come.
func (r *Replay) Group() string { return r.group }

// Topics returns the topics that are read.
func (r *Replay) Topics() []string { return r.topics }

// WritesStdout reports whether the pipeline's results go to standard output.
func (r *Replay) WritesStdout() bool {
	f := r.p.cfg.Sink.File
	return f != nil && f.Path == "-"
}

// Supervise makes the stream of the replay, as Pipeline.Supervise does. It ends where the topic ended when it
// began to be read.
func (r *Replay) Supervise(deps Deps) (*streammanager.Supervisor, error) {
	deps.replay = r
	return r.p.Supervise(deps)
}

// Count looks at all that Supervise's stream would read now, and only counts it. Nothing is committed.
func (r *Replay) Count(ctx context.Context, deps Deps) error {
	return r.beside(deps, func(s *kafka.Source) error {
		return s.Scan(ctx, func(rec *streammanager.Record) { r.open(ctx, rec) })
	})
}

// Forget forgets how far the replay has come: the next begins with the first record of the topic.
func (r *Replay) Forget(ctx context.Context, deps Deps) error {
	return r.beside(deps, func(s *kafka.Source) error { return s.Forget(ctx) })
}

// beside makes the source alone, for something else than reading it as a member of its group.
func (r *Replay) beside(deps Deps, do func(*kafka.Source) error) (err error) {
	deps.replay = r
	a := r.p.assembly(deps)
	defer func() { err = errors.Join(err, a.close()) }()
	cfg, err := r.sourceConfig(a)
	if err != nil {
		return err
	}
	s, err := kafka.NewSource(cfg, a.log)
	if err != nil {
		return err
	}
	a.replayed(s)
	return do(s)
}

// sourceConfig says what is read in place of the pipeline's own source.
func (r *Replay) sourceConfig(a *assembly) (kafka.SourceConfig, error) {
	of := r.conn
	if k := r.p.cfg.Source.Kafka; r.p.cfg.exactlyOnce() {
		of = k.connection // source and sinks share one client
	}
	conn, err := a.kafkaConnection(of, kafka.SourceSide)
	return kafka.SourceConfig{
		Connection: conn, Topics: r.topics, Group: r.group, Until: cmp.Or(r.choice.age, kafka.Latest), Anew: &r.anew,
		Missing: "correct --topic or error_sink.kafka.topic (replay reads a topic that must exist)",
	}, err
}

// ending tells how far a bounded source has come.
type ending interface {
	Left() int64
	Over() bool
	Bare() bool
	Further() bool
}

// replayed notes the source of a replay.
func (a *assembly) replayed(s streammanager.Source) streammanager.Source {
	r := a.deps.replay
	if r == nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = a.log
	r.source, _ = s.(ending)
	return s
}

// Left returns how many offsets this process has still to read.
func (r *Replay) Left() int64 {
	if s := r.reads(); s != nil {
		return s.Left()
	}
	return 0
}

// Over reports whether all was read, up to the end.
func (r *Replay) Over() bool {
	s := r.reads()
	return s != nil && s.Over()
}

// Bare reports whether the topics hold nothing up to that end, so that nothing was left out for being looked at before.
func (r *Replay) Bare() bool {
	s := r.reads()
	return s != nil && s.Bare()
}

// Further reports whether the group has come further since this process began: where it has looked at nothing, others have.
func (r *Replay) Further() bool {
	s := r.reads()
	return s != nil && s.Further()
}

func (r *Replay) reads() ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source
}

// Tally returns what was counted until now.
func (r *Replay) Tally() Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally
	t.Chosen, t.PassedOver, t.OfOthers = maps.Clone(t.Chosen), maps.Clone(t.PassedOver), maps.Clone(t.OfOthers)
	return t
}

// open finds the event that goes through the pipeline in a record of the error topic, and counts.
func (r *Replay) open(ctx context.Context, rec *streammanager.Record) (streammanager.Record, bool) {
	if rec.Marker {
		return *rec, false
	}
	e, v, err := r.choice.judge(ctx, rec)
	r.count(rec, &e, v, err)
	return e.Origin, v == chosen
}

const (
	mostNames = 100 // of a kind that are counted each by itself
	mostTold  = 100 // records that the log tells of
)

func (r *Replay) count(rec *streammanager.Record, e *streammanager.ErrorRecord, v verdict, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tp := streammanager.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
	if rec.Offset < r.seen[tp] {
		return // it is read again
	}
	r.seen[tp] = rec.Offset + 1
	t := &r.tally
	t.Looked++
	switch v {
	case chosen:
		add(t.Chosen, e.Type)
	case passed:
		add(t.PassedOver, e.Type)
	case ofOthers:
		add(t.OfOthers, e.Pipeline)
	case truncated:
		t.Cut++
	case foreign:
		t.NoErrors++
	case unasked:
		t.Unanswered++
	}
	if why == nil {
		return
	}
	at := []any{"topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset, "err", why}
	if v == unasked {
		r.tellUnasked(at)
		return
	}
	r.told++
	if v == truncated {
		at = append(at, "original", fmt.Sprintf("topic %q partition %d offset %d", e.Origin.Topic, e.Origin.Partition, e.Origin.Offset))
	}
	switch {
	case r.told < mostTold:
		r.log.Warn("a record of the error topic cannot be replayed", at...)
	case r.told == mostTold:
		r.log.Warn("a record of the error topic cannot be replayed; further ones are told at --log-level debug", at...)
	default:
		r.log.Debug("a record of the error topic cannot be replayed", at...)
	}
}

// tellAgain is how long records for which the filter's expression fails are counted before the next is told.
const tellAgain = time.Minute

// tellUnasked tells of a record for which the filter's expression failed: the first, and one a minute.
func (r *Replay) tellUnasked(at []any) {
	at = append(at, "more_before", r.since)
	if time.Since(r.asked) < tellAgain { // the zero time is long ago
		r.since++
		r.log.Debug("passed over: --where failed for it", at...)
		return
	}
	r.asked, r.since = time.Now(), 0
	r.log.Warn("passed over: --where failed for it", at...)
}

// add counts one of a name. What names there are is up to who wrote the topic.
func add[K ~string](counts map[K]int64, name K) {
	if _, known := counts[name]; !known && len(counts) >= mostNames {
		name = "…"
	}
	counts[name]++
}
