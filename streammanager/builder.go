package streammanager

import (
	"context"
	"log/slog"
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
	InFlightBytes     int64 // default 64 MiB: inputs, and outputs until they are acknowledged
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

// ErrorFormat makes the record of an error event. It runs on a worker or in the emitter.
type ErrorFormat func(f *Failure) (*event.Event, error)

// Builder gathers the parts of a stream; Build checks them all.
type Builder struct {
	cfg         Config
	source      Source
	sink        Sink
	errorSink   Sink
	errorFormat ErrorFormat
	filter      func(ctx context.Context, ev *event.Event) (bool, error)
	partitionBy func(ctx context.Context, ev *event.Event) (Key, error)
	keyOfValue  bool
	by          func(ctx context.Context, ev *event.Event) (string, error)
	window      window.Config
	steps       []Step
	paths       *event.Paths
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
	b.partitionBy, b.keyOfValue = fn, true
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
func (b *Builder) Build() (*Stream, error) { panic("to come") }

// Stream is a built stream. It runs once.
type Stream struct{}

// Run carries events until ctx ends, the source ends, or something fails for good. When ctx ends it
// drains within ShutdownTimeout and returns nil; what is unfinished then stays uncommitted.
func (s *Stream) Run(ctx context.Context) error { panic("to come") }

// Status tells how the stream does. It may be called at any time from any goroutine.
func (s *Stream) Status() Status { panic("to come") }

// Status is a picture of a stream.
type Status struct {
	// Ready is nil, or says in words why the stream is not ready: not joined yet, a sink that does not answer, …
	Ready error
	// Counts since the start.
	Read, Emitted, Dropped, Errors, Outputs int64
	ErrorsByType                            map[event.Type]int64
	InFlightEvents                          int
	InFlightBytes                           int64
}
