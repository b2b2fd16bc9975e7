package streammanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/window"
)

// Order says which order results keep.
type Order string

// The orders. With OrderKey results of a key leave in the order its events came, while calls for one
// key may overlap within a batch; with OrderKeySerial they never overlap; with OrderNone results leave
// as they complete.
const (
	OrderKey       Order = "key"
	OrderKeySerial Order = "key_serial"
	OrderNone      Order = "none"
)

// Tombstones says what becomes of events with a null value.
type Tombstones string

// What becomes of tombstones: they pass through untouched, are dropped, or become error events.
const (
	TombstonesPass  Tombstones = "pass"
	TombstonesDrop  Tombstones = "drop"
	TombstonesError Tombstones = "error"
)

// OnError says what an error event means for a stream without an error sink.
type OnError string

// Without an error sink an error event stops the stream, or is counted, logged and dropped.
const (
	OnErrorStop OnError = "stop"
	OnErrorDrop OnError = "drop"
)

// Limits bound what is read and not finished.
type Limits struct {
	InFlightEvents    int   // default 10,000
	InFlightBytes     int64 // default 64 MiB: inputs, answers that calls hold, and outputs until they are acknowledged
	UncommittedEvents int   // per partition, default 100,000
}

// Config is what a user sets of a stream. Zero means the default.
type Config struct {
	Name            string        // of the job, required
	Workers         int           // calls in progress at most, default 64
	Order           Order         // default OrderKey
	Tombstones      Tombstones    // default TombstonesPass
	OnError         OnError       // without an error sink; default OnErrorStop
	Limits          Limits        //
	CommitInterval  time.Duration // default 1s
	ShutdownTimeout time.Duration // default 30s
	Logger          *slog.Logger  // default slog.Default()
	Metrics         prometheus.Registerer
}

// Key is what orders an event. The zero Key is the key "" (an event whose key is empty text).
type Key struct {
	Value   string
	Keyless bool // no lane, no order
	Drop    bool // the event is dropped
}

// Step is one function of the chain.
type Step struct {
	// Name stands in error events and metrics: the item's name, or its place ("process[1].http").
	Name string
	// Func or Batch is the function; exactly one is set.
	Func  event.Func
	Batch event.BatchFunc
	// When leaves events for which it is false untouched. nil: none.
	When func(ctx context.Context, ev *event.Event) (bool, error)
	// Timeout bounds one call; default 60s. A call that runs on a grace time after it is abandoned.
	Timeout time.Duration
	// Attempts bounds the tries after event.Retry; default 5. -1: the function bounds them itself.
	Attempts int
	// Inline promises that the function never waits (no call of anything slow). A chain of only such
	// steps runs in partition order without lanes.
	Inline bool
}

// Failure is what an error event says of its input.
type Failure struct {
	Input    *event.Event // as it was read
	Type     event.Type
	Function string // the step's name, "filter", "partition_by", "sink", …
	Message  string
	Attempts int
	Status   int
	Time     time.Time
	Pipeline string
}

// ErrorFormat makes the record of an error event. It runs in the emitter, one at a time.
type ErrorFormat func(f *Failure) (*event.Event, error)

// parts is what a user gives of a stream beside its Config.
type parts struct {
	source      Source
	sink        Sink
	errorSink   Sink
	errorFormat ErrorFormat
	filter      func(ctx context.Context, ev *event.Event) (bool, error)
	partitionBy func(ctx context.Context, ev *event.Event) (Key, error)
	by          func(ctx context.Context, ev *event.Event) (string, error)
	window      window.Config
	paths       *event.Paths
	through     repartition
	unwrap      func(ctx context.Context, rec *Record) (inner Record, keep bool)
}

// Builder gathers the parts of a stream; Build checks them all.
type Builder struct {
	parts
	cfg   Config
	steps []Step
}

// New starts a stream.
func New(cfg Config) *Builder { return &Builder{cfg: cfg} }

// From sets the source.
func (b *Builder) From(s Source) *Builder { b.source = s; return b }

// Reads names the paths of the value that the stream's functions read: each value is then checked and
// searched for them in one pass when it is read; one that is not JSON becomes an error event.
func (b *Builder) Reads(paths *event.Paths) *Builder { b.paths = paths; return b }

// Filter keeps the events for which keep is true; an error makes an error event.
func (b *Builder) Filter(keep func(ctx context.Context, ev *event.Event) (bool, error)) *Builder {
	b.filter = keep
	return b
}

// PartitionBy sets what orders events, read from the value. Without it the record key does. fn must not keep ev.
func (b *Builder) PartitionBy(fn func(ctx context.Context, ev *event.Event) (Key, error)) *Builder {
	b.partitionBy = fn
	return b
}

// Window sets how events are gathered. Without it each event goes at once.
func (b *Builder) Window(cfg window.Config) *Builder { b.window = cfg; return b }

// WindowBy lets several keys share a window: those of equal text.
func (b *Builder) WindowBy(fn func(ctx context.Context, ev *event.Event) (string, error)) *Builder {
	b.by = fn
	return b
}

// Process appends functions to the chain.
func (b *Builder) Process(steps ...Step) *Builder { b.steps = append(b.steps, steps...); return b }

// To sets the sink.
func (b *Builder) To(s Sink) *Builder { b.sink = s; return b }

// ErrorsTo sets the error sink. format nil: the input's key, value and headers, and enricher.error.*
// headers.
func (b *Builder) ErrorsTo(s Sink, format ErrorFormat) *Builder {
	b.errorSink, b.errorFormat = s, format
	return b
}

// Build checks everything and returns the stream, or all that is wrong with it.
func (b *Builder) Build() (*Stream, error) {
	cfg := withDefaults(b.cfg)
	problems := slices.Concat(checkConfig(cfg), b.check(), b.checkRepartition(), b.checkUnwrap())
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	s := &Stream{
		parts: b.parts, cfg: cfg, log: cfg.Logger.With("pipeline", cfg.Name),
		assigned: newAssignment(b.through), control: newMailbox[func(*loop)](), completions: newMailbox[completion](),
		emissions: newMailbox[emission](), commits: newMailbox[commitRequest](),
		grants: make(chan grant, 1), readings: make(chan reading, 1), stopped: make(chan struct{}),
		inline: true,
	}
	s.emitter = &emitter{s: s}
	s.room = &account{limit: cfg.Limits.InFlightBytes, wake: func() { s.control.send(func(*loop) {}) }}
	if s.errorFormat == nil {
		s.errorFormat = RecordFormat
	}
	names := make([]string, len(b.steps))
	for i, st := range b.steps {
		s.steps = append(s.steps, prepareStep(st, i))
		names[i] = s.steps[i].Name
		s.inline = s.inline && st.Inline
	}
	s.findAbilities()
	var err error
	if s.metrics, err = newMetrics(cfg.Metrics, cfg.Name, names); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if s.through.topic != "" {
		s.metrics.repartitions()
	}
	return s, nil
}

func (s *Stream) findAbilities() {
	s.committer, _ = s.source.(Committer)
	s.settler, _ = s.source.(Settler)
	s.rewinder, _ = s.source.(Rewinder)
	if s.rewinder != nil { // what was fetched before a pause has to come again
		s.pauser, _ = s.source.(Pauser)
	}
	if s.transactor, _ = s.source.(Transactor); s.transactor != nil {
		s.committer = nil // positions are part of the transactions
	}
	s.skipper, _ = s.source.(Skipper)
	s.ender, _ = s.source.(Ender)
	s.preparer, _ = s.sink.(Preparer)
	s.sinkChecker, _ = s.sink.(Checker)
	s.errorPreparer, _ = s.errorSink.(Preparer)
	s.errorChecker, _ = s.errorSink.(Checker)
	s.throughChecker, _ = s.through.sink.(Checker)
}

func prepareStep(st Step, i int) step {
	if st.Name == "" {
		st.Name = fmt.Sprintf("process[%d]", i)
	}
	if st.Timeout == 0 {
		st.Timeout = time.Minute
	}
	if st.Attempts == 0 {
		st.Attempts = 5
	}
	var fn any = st.Func
	if st.Batch != nil {
		fn = st.Batch
	}
	_, readOnly := fn.(event.ReadOnly)
	return step{Step: st, readOnly: readOnly}
}

func withDefaults(c Config) Config {
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&c.Workers, 64)
	orInt(&c.Limits.InFlightEvents, 10_000)
	orInt(&c.Limits.UncommittedEvents, 100_000)
	if c.Limits.InFlightBytes == 0 {
		c.Limits.InFlightBytes = 64 << 20
	}
	if c.Order == "" {
		c.Order = OrderKey
	}
	if c.Tombstones == "" {
		c.Tombstones = TombstonesPass
	}
	if c.OnError == "" {
		c.OnError = OnErrorStop
	}
	if c.CommitInterval == 0 {
		c.CommitInterval = time.Second
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func checkConfig(c Config) []error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Name == "", "name: a stream needs a name")
	bad(c.Workers < 0, "workers: %d is negative", c.Workers)
	bad(c.Limits.InFlightEvents < 0, "limits.in_flight_events: %d is negative", c.Limits.InFlightEvents)
	bad(c.Limits.InFlightBytes < 0, "limits.in_flight_bytes: %d is negative", c.Limits.InFlightBytes)
	bad(c.Limits.UncommittedEvents < 0, "limits.uncommitted_events: %d is negative", c.Limits.UncommittedEvents)
	bad(c.CommitInterval < 0, "commit_interval: %v is negative", c.CommitInterval)
	bad(c.ShutdownTimeout < 0, "shutdown_timeout: %v is negative", c.ShutdownTimeout)
	bad(c.Order != OrderKey && c.Order != OrderKeySerial && c.Order != OrderNone, "order: %q is none of key, key_serial, none", c.Order)
	bad(c.Tombstones != TombstonesPass && c.Tombstones != TombstonesDrop && c.Tombstones != TombstonesError,
		"tombstones: %q is none of pass, drop, error", c.Tombstones)
	bad(c.OnError != OnErrorStop && c.OnError != OnErrorDrop, "on_error: %q is none of stop, drop", c.OnError)
	return errs
}

// check finds what is wrong with the parts.
func (b *Builder) check() []error {
	var errs []error
	if b.source == nil {
		errs = append(errs, errors.New("source: a stream needs one (From)"))
	}
	if _, can := b.source.(Transactor); can {
		if _, can := b.source.(Rewinder); !can {
			errs = append(errs, errors.New("source: one with transactions must be able to go back (Rewinder)"))
		}
	}
	if b.sink == nil {
		errs = append(errs, errors.New("sink: a stream needs one (To)"))
	}
	if err := b.window.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("window: %w", err))
	}
	lim := withDefaults(b.cfg).Limits
	if b.window.Count > lim.InFlightEvents {
		errs = append(errs, fmt.Errorf("window.count: %d can never fill within limits.in_flight_events %d", b.window.Count, lim.InFlightEvents))
	}
	if b.window.Bytes > lim.InFlightBytes {
		errs = append(errs, fmt.Errorf("window.bytes: %d can never fill within limits.in_flight_bytes %d", b.window.Bytes, lim.InFlightBytes))
	}
	names := map[string]bool{}
	for i, st := range b.steps {
		if (st.Func == nil) == (st.Batch == nil) {
			errs = append(errs, fmt.Errorf("process[%d]: exactly one of Func and Batch must be set", i))
		}
		if st.Batch != nil && st.Inline {
			errs = append(errs, fmt.Errorf("process[%d]: a BatchFunc cannot be inline", i))
		}
		if st.Name != "" && names[st.Name] {
			errs = append(errs, fmt.Errorf("process[%d]: the name %q is taken", i, st.Name))
		}
		names[st.Name] = true
	}
	return errs
}
