package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// Deps is what a pipeline gets from the process it runs in. The zero Deps is fit for use.
type Deps struct {
	// Logger is slog.Default() where nil.
	Logger *slog.Logger
	// Metrics takes the metrics, to which the label pipeline is added. Two streams of one pipeline need
	// a registry each. nil: none are kept.
	Metrics prometheus.Registerer
	// Dialer opens connections to Kafka; nil: the network.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// Transport answers HTTP requests in place of the network; nil: the network.
	Transport http.RoundTripper
	// Around watches the requests on their way to the network; nil: nobody does.
	Around func(http.RoundTripper) http.RoundTripper
	// Embedded is the broker of `brokers: embedded`, shared by all pipelines of the process. nil: the
	// pipeline starts one of its own where it needs one.
	Embedded *Embedded
	// Stdin and Stdout stand behind the path -; nil: those of the process.
	Stdin  io.Reader
	Stdout io.Writer

	again  *again  // what functions have registered, where the pipeline may be made again
	replay *Replay // reads error events in place of the source
	stage  *stage  // in place of source and sinks
}

// epoch is the time of an event that stands for none.
var epoch = time.Unix(0, 0)

// closeTimeout bounds how long functions may take to close.
const closeTimeout = 5 * time.Second

// Optional abilities of functions, beside those that package functions names.
type (
	// reader tells which paths of the value a function reads, so that they are found in one pass.
	reader interface {
		Paths() []event.Path
		ReadsValue() bool
	}
	// callTimer bounds its calls itself and tells how long one takes at most.
	callTimer interface{ CallTimeout() time.Duration }
	closer    interface {
		Close(ctx context.Context) error
	}
)

func abilityOf[T any](f event.Func, batch event.BatchFunc) (T, bool) {
	var of any = f
	if batch != nil {
		of = batch
	}
	t, ok := of.(T)
	return t, ok
}

// assembly is a stream in the making.
type assembly struct {
	p       *Pipeline
	deps    Deps
	log     *slog.Logger
	metrics prometheus.Registerer
	paths   []event.Path
	reads   bool
	dry     bool        // nothing is opened: the parts are made to be looked at
	voice   kafka.Voice // of all clients of Kafka
	closers []func(context.Context) error
}

// Build makes the stream of the pipeline. It opens nothing but the embedded broker, where the file asks
// for one. The caller calls the function that it returns after the stream has ended.
func (p *Pipeline) Build(deps Deps) (*streammanager.Stream, func() error, error) {
	if p.unset {
		return nil, nil, errors.New("building the pipeline: it was loaded although variables are not set")
	}
	a := p.assembly(deps)
	s, err := a.stream()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("building pipeline %q: %w", p.cfg.Name, err), a.close())
	}
	return s, a.close, nil
}

// assembly begins to make a stream.
func (p *Pipeline) assembly(deps Deps) *assembly {
	if deps.Logger == nil {
		deps.Logger = slog.Default()
	}
	a := &assembly{p: p, deps: deps, log: deps.Logger.With("pipeline", p.cfg.Name)}
	if deps.Metrics != nil {
		a.metrics = prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": p.cfg.Name}, deps.Metrics)
	}
	if deps.Embedded == nil {
		a.deps.Embedded = &Embedded{}
		a.closers = append(a.closers, func(context.Context) error { return a.deps.Embedded.Close() })
	}
	return a
}

// close frees what was opened, the last first.
func (a *assembly) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i](ctx))
	}
	a.closers = nil
	return errors.Join(errs...)
}

func (a *assembly) stream() (*streammanager.Stream, error) {
	steps, err := a.steps()
	if err != nil {
		return nil, err
	}
	return a.streamOf(steps)
}

// streamOf puts the parts together, the functions being made.
func (a *assembly) streamOf(steps []streammanager.Step) (*streammanager.Stream, error) {
	cfg := &a.p.cfg
	commit, stop := cfg.CommitInterval.Duration(), cfg.ShutdownTimeout.Duration()
	if a.deps.stage != nil {
		commit, stop = rehearsalCommit, rehearsalStop
	}
	b := streammanager.New(streammanager.Config{
		Name: cfg.Name, Workers: cfg.Workers, Order: streammanager.Order(cfg.Order),
		Tombstones: streammanager.Tombstones(cfg.Tombstones), OnError: streammanager.OnError(cfg.OnError),
		Limits: streammanager.Limits{
			InFlightEvents: cfg.Limits.InFlightEvents, InFlightBytes: cfg.Limits.InFlightBytes.Bytes(),
			UncommittedEvents: cfg.Limits.UncommittedEvents,
		},
		CommitInterval: commit, ShutdownTimeout: stop,
		Logger: a.deps.Logger, Metrics: a.deps.Metrics,
	})
	if err := a.ends(b); err != nil {
		return nil, err
	}
	if r := a.deps.replay; r != nil {
		b.Unwrap(r.open)
	}
	a.choose(b)
	b.Process(steps...)
	if a.reads {
		b.Reads(event.NewPaths(a.paths...))
	}
	return b.Build()
}

func (a *assembly) ends(b *streammanager.Builder) error {
	if a.deps.stage != nil {
		return a.rehearse(b)
	}
	if a.p.cfg.exactlyOnce() {
		if err := a.transaction(b); err != nil {
			return fmt.Errorf("making source and sinks: %w", err)
		}
		return nil
	}
	src, err := a.source()
	if err != nil {
		return fmt.Errorf("making the source: %w", err)
	}
	dst, err := a.sink(&a.p.cfg.Sink, false)
	if err != nil {
		return fmt.Errorf("making the sink: %w", err)
	}
	b.From(a.replayed(src)).To(dst)
	if r := a.through(); r != nil {
		between, err := a.repartitionSink()
		if err != nil {
			return fmt.Errorf("making the sink of the repartition topic: %w", err)
		}
		b.Repartition(r.Topic, between)
	}
	e := a.p.cfg.ErrorSink
	if e == nil {
		return nil
	}
	errs, err := a.sink(&e.sink, true)
	if err != nil {
		return fmt.Errorf("making the error sink: %w", err)
	}
	b.ErrorsTo(errs, a.errorFormat())
	return nil
}

// errorFormat is nil for the record as it came.
func (a *assembly) errorFormat() streammanager.ErrorFormat {
	if e := a.p.cfg.ErrorSink; e.Format == "event_platform" {
		return platformFormat(e.Stream)
	}
	return nil
}

func (a *assembly) source() (streammanager.Source, error) {
	if k := a.p.cfg.Source.Kafka; k != nil || a.deps.replay != nil {
		return a.kafkaSource(k)
	}
	return file.NewSource(a.fileSource())
}

// fileSource is zero where the source is no file.
func (a *assembly) fileSource() file.SourceConfig {
	if f := a.p.cfg.Source.File; f != nil {
		return file.SourceConfig{Path: f.Path, Stdin: a.deps.Stdin}
	}
	return file.SourceConfig{}
}

func (a *assembly) sink(s *sink, errors bool) (streammanager.Sink, error) {
	if s.Kafka != nil {
		return a.kafkaSink(s.Kafka, errors)
	}
	return file.NewSink(file.SinkConfig{Path: s.File.Path, Stdout: a.deps.Stdout, Source: a.fileSource()})
}

// choose sets filter, key and window.
func (a *assembly) choose(b *streammanager.Builder) {
	cfg := &a.p.cfg
	if !cfg.Filter.IsZero() {
		a.expr(cfg.Filter)
		b.Filter(a.deps.stage.condition("filter", a.condition(cfg.Filter)))
	}
	if cfg.PartitionBy.set {
		for _, f := range cfg.PartitionBy.Fields {
			a.paths, a.reads = append(a.paths, f.Path), true
		}
		b.PartitionBy(a.deps.stage.key(cfg.PartitionBy.keyOf))
	}
	w := cfg.Window
	if w == nil {
		return
	}
	b.Window(window.Config{Count: w.Count, Bytes: w.Bytes.Bytes(), Timeout: w.Timeout.Duration(), Eager: w.Eager})
	if !w.By.IsZero() {
		a.expr(w.By)
		b.WindowBy(a.deps.stage.group(func(ctx context.Context, ev *event.Event) (string, error) {
			raw, err := w.By.JSON(ctx, ev)
			if err != nil {
				return "", err
			}
			group, err := event.AppendCanonical(nil, raw)
			return string(group), err
		}))
	}
}

// named ties the pipeline's name to ctx, for $pipeline.
func (a *assembly) named(ctx context.Context) context.Context {
	return event.WithPipeline(ctx, a.p.cfg.Name)
}

func (a *assembly) condition(e functions.Expr) func(context.Context, *event.Event) (bool, error) {
	return func(ctx context.Context, ev *event.Event) (bool, error) { return e.Bool(ctx, ev) }
}

func (a *assembly) expr(r reader) {
	if r.ReadsValue() {
		a.paths, a.reads = append(a.paths, r.Paths()...), true
	}
}

// client makes what the functions share to call others.
func (a *assembly) client() *asynchttp.Client {
	client := asynchttp.NewClient(asynchttp.ClientConfig{Workers: a.p.cfg.Workers, Metrics: a.metrics, Transport: a.deps.Transport, Around: a.deps.Around})
	a.closers = append(a.closers, func(context.Context) error { client.Close(); return nil })
	return client
}

func (a *assembly) steps() ([]streammanager.Step, error) {
	if len(a.p.cfg.Process) == 0 {
		return nil, nil
	}
	client := a.client()
	var steps []streammanager.Step
	for i := range a.p.cfg.Process {
		st, err := a.step(&a.p.cfg.Process[i], client)
		if err != nil {
			return nil, fmt.Errorf("making %s: %w", a.p.cfg.Process[i].place(), err)
		}
		steps = append(steps, st)
	}
	return steps, nil
}

func (a *assembly) step(it *item, client *asynchttp.Client) (streammanager.Step, error) {
	metrics := a.metrics
	if metrics == nil {
		metrics = discard{}
	}
	env := functions.Env{
		Name: it.label(), Pipeline: a.p.cfg.Name, Workers: a.p.cfg.Workers,
		Logger: a.log.With("function", it.label()), Metrics: a.deps.again.over(metrics), HTTP: client.HTTP(),
	}
	if !builtin(it.spec.Name()) {
		env.HTTP = client.For(it.label())
	}
	built, err := it.spec.Build(env, it.options)
	if err != nil {
		return streammanager.Step{}, err
	}
	if f, ok := abilityOf[closer](built.Func, built.Batch); ok {
		a.closers = append(a.closers, f.Close)
	}
	if r, ok := abilityOf[reader](built.Func, built.Batch); ok {
		a.expr(r)
	} else {
		a.templates(reflect.ValueOf(it.options).Elem())
	}
	st := streammanager.Step{
		Name: it.label(), Func: built.Func, Batch: built.Batch, Timeout: it.Timeout.Duration(),
		Attempts: built.Attempts, Inline: built.Inline,
	}
	if t, ok := abilityOf[callTimer](built.Func, built.Batch); ok {
		st.Timeout = t.CallTimeout()
	}
	if st.Timeout == 0 && a.p.cfg.exactlyOnce() {
		st.Timeout = a.p.cfg.quickEnough()
	}
	if !it.When.IsZero() {
		a.expr(it.When)
		st.When = a.condition(it.When)
	}
	return a.deps.stage.step(st), nil
}

func builtin(name string) bool {
	return slices.ContainsFunc(Builtins(), func(s functions.Spec) bool { return s.Name() == name })
}

// templates notes the paths of the templates in a function's options: those are always of the event.
func (a *assembly) templates(v reflect.Value) {
	if t, ok := v.Interface().(functions.Template); ok {
		if !t.IsZero() {
			a.expr(t)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			a.templates(v.Elem())
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v) {
			a.templates(f.v)
		}
	case reflect.Slice:
		for i := range v.Len() {
			a.templates(v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			a.templates(it.Value())
		}
	}
}

// discard takes metrics and keeps none.
type discard struct{}

func (discard) Register(prometheus.Collector) error  { return nil }
func (discard) MustRegister(...prometheus.Collector) {}
func (discard) Unregister(prometheus.Collector) bool { return true }
