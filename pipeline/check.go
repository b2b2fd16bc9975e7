package pipeline

import (
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
	"github.com/a0c75104/enricher/streammanager"
)

// checker finds what no single key can tell.
type checker struct {
	*decoder
	cfg *config
}

var jobName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)

func (c *checker) check() {
	cfg := c.cfg
	if cfg.Name != "" && !jobName.MatchString(cfg.Name) {
		c.problem("name", "%q is no name of a job: letters, digits, dot, underscore and dash, at most 200", cfg.Name)
	}
	c.oneOf("source", cfg.Source.Kafka != nil, cfg.Source.File != nil)
	c.oneOf("sink", cfg.Sink.Kafka != nil, cfg.Sink.File != nil)
	c.condition("filter", cfg.Filter)
	c.errors()
	c.window()
	c.repartition()
	// The parts are made as for a run, with nothing behind them, to see what they find fault with.
	a := &assembly{p: &Pipeline{cfg: *cfg}, log: slog.New(slog.DiscardHandler), dry: true}
	if c.fault("repartition") {
		a.p.cfg.Repartition = nil // what is wrong with it was said
	}
	a.deps = Deps{Logger: a.log, Metrics: prometheus.NewRegistry(), Transport: offline{}}
	if !c.fault("name") { // a name that is none is no label either
		a.metrics = prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": cfg.Name}, a.deps.Metrics)
	}
	defer func() { _ = a.close() }() // nothing was processed: there is nothing to lose
	steps := c.items(a)
	c.ends(a)
	c.delivery(a)
	c.stream(a, steps)
	c.loops()
	c.dataDirs()
	if r := cfg.Restart; r.Max.Duration() < r.Initial.Duration() && !c.fault("restart") {
		at := "restart.max"
		if c.values[at] == nil {
			at = "restart.initial"
		}
		c.problem(at, "max %v is less than initial %v: raise max, or lower initial", r.Max, r.Initial)
	}
	c.gateway()
}

// oneOf holds a source or sink to naming exactly one place.
func (c *checker) oneOf(path string, kafka, file bool) {
	if c.fault(path) || c.values[path] == nil {
		return
	}
	switch {
	case kafka && file:
		c.problem(path, "names both kafka and file: keep one")
	case !kafka && !file && c.values[join(path, "kafka")] == nil && c.values[join(path, "file")] == nil:
		c.problem(path, "names neither kafka nor file")
	}
}

// condition holds an expression that is asked whether it is true to asking something.
func (c *checker) condition(path string, e functions.Expr) {
	if e.IsZero() || c.fault(path) {
		return
	}
	if err := e.CheckCondition(); err != nil {
		c.optionProblem(path, err)
	}
}

func (c *checker) errors() {
	e := c.cfg.ErrorSink
	if e == nil {
		return
	}
	c.oneOf("error_sink", e.Kafka != nil, e.File != nil)
	if c.cfg.OnError != "" {
		c.problem("on_error", "has no meaning beside error_sink: every error event goes there; take one of the two out")
	}
	if c.fault("error_sink") {
		return
	}
	switch {
	case e.Format == "event_platform" && e.Stream == "":
		c.problem("error_sink.stream", "is required by format: event_platform: it becomes meta.stream")
	case e.Format == "record" && e.Stream != "":
		c.problem("error_sink.stream", "is used by format: event_platform only")
	}
}

func (c *checker) window() {
	w, l := c.cfg.Window, c.cfg.Limits
	if w == nil || c.fault("window") || c.fault("limits") {
		return
	}
	switch {
	case w.Count == 0 && w.Bytes == 0 && w.Timeout == 0:
		c.problem("window", "says not when to close: give count, bytes or timeout, or leave window out")
	case w.Timeout == 0 && (w.Count > 1 || w.Bytes > 0):
		c.problem("window", "needs a timeout: a window that does not fill would wait for ever")
	case w.Timeout == 0 && w.Eager:
		c.problem("window.eager", "needs a timeout: without one each event is a window of its own")
	}
	if w.Count > l.InFlightEvents {
		c.problem("window.count", "%d can never fill within limits.in_flight_events %d", w.Count, l.InFlightEvents)
	}
	if w.Count > l.UncommittedEvents {
		c.problem("window.count", "%d can never fill from one partition within limits.uncommitted_events %d", w.Count, l.UncommittedEvents)
	}
	if w.Bytes > l.InFlightBytes {
		c.problem("window.bytes", "%s can never fill within limits.in_flight_bytes %s", w.Bytes, l.InFlightBytes)
	}
}

// items makes the functions.
func (c *checker) items(a *assembly) []streammanager.Step {
	client := a.client()
	var steps []streammanager.Step
	labels := map[string]string{}
	for i := range c.cfg.Process {
		it := &c.cfg.Process[i]
		if !it.found {
			continue
		}
		if other, ok := labels[it.label()]; ok {
			c.problem(join(it.path, "name"), "%q is the name of %s too", it.label(), other)
		}
		labels[it.label()] = it.path
		c.condition(join(it.path, "when"), it.When)
		if c.fault(it.place()) {
			continue
		}
		st, err := a.step(it, client)
		if err != nil {
			c.optionProblem(it.place(), err)
			continue
		}
		steps = append(steps, st)
		if _, own := abilityOf[callTimer](st.Func, st.Batch); own && !it.Timeout.IsZero() {
			c.problem(join(it.path, "timeout"), "%s bounds its own calls: write its timeout under %s:", it.spec.Name(), it.spec.Name())
		}
		if o, ok := it.options.(*asynchttp.Options); ok && o.Bulk != nil {
			c.bulk(join(it.place(), "bulk"), o.Bulk)
		}
		if st.Batch != nil && st.Inline {
			c.problem(it.place(), "takes the events of a window together, and promises that it never waits: it cannot do both")
		}
	}
	return steps
}

// bulk holds requests for many events to there being more than one event at a time.
func (c *checker) bulk(at string, b *asynchttp.BulkOptions) {
	w := c.cfg.Window
	switch {
	case c.fault("window"):
	case w == nil || w.Count == 1:
		c.problem(at, "needs a window of more than one event: without it each is a request of its own, such as window: {count: %d, timeout: 100ms}", b.Max)
	case w.By.IsZero() && c.onlyKey(b.Match.Event):
		c.problem("window", "is one for each key, and match.event of %s asks for the key: each request would be for a single one; say by window.by what may share a request", at)
	}
}

// onlyKey reports whether an expression is all of the key that orders events.
func (c *checker) onlyKey(e functions.Expr) bool {
	p, bare := e.Path()
	fields := c.cfg.PartitionBy.Fields
	return bare && c.cfg.PartitionBy.set && len(fields) == 1 && fields[0].Path.String() == p.String()
}

// stream finds what only the whole can tell. Nothing is left for it while the rules above are complete;
// it holds validate to finding all that run would.
func (c *checker) stream(a *assembly, steps []streammanager.Step) {
	if len(c.problems) > 0 || c.unset {
		return
	}
	_, err := a.streamOf(steps)
	c.client("", err)
}

// offline answers no request: while a file is checked no socket is opened.
type offline struct{}

func (offline) RoundTrip(*http.Request) (*http.Response, error) { return nil, net.ErrClosed }

// loops finds sinks that write what the source reads.
func (c *checker) loops() {
	src := c.cfg.Source
	for _, s := range []struct {
		path string
		sink *sink
	}{{"sink", &c.cfg.Sink}, {"error_sink", c.errorSink()}} {
		if s.sink == nil {
			continue
		}
		if f := s.sink.File; f != nil && src.File != nil && f.Path != "-" && f.Path != "" && src.File.Path != "" && file.Same(f.Path, src.File.Path) {
			c.problem(s.path+".file.path", "is the file that the source reads")
		}
		k := s.sink.Kafka
		if k == nil || src.Kafka == nil || !c.cfg.sameCluster(src.Kafka.connection, k.connection) {
			continue
		}
		if topic, ok := k.literalTopic(); ok && !c.fault("source.kafka.topics") && src.Kafka.Topics.matcher()(topic) {
			c.problem(s.path+".kafka.topic", "%q is a topic that the source reads: every output would be an input again", topic)
		}
	}
}

func (c *checker) errorSink() *sink {
	if c.cfg.ErrorSink == nil {
		return nil
	}
	return &c.cfg.ErrorSink.sink
}

// sameCluster reports whether two ends have a broker in common.
func (c *config) sameCluster(a, b connection) bool {
	a, b = a.or(c.Kafka), b.or(c.Kafka)
	return slices.ContainsFunc(a.Brokers, func(x string) bool {
		return slices.ContainsFunc(b.Brokers, func(y string) bool { return strings.EqualFold(x, y) })
	})
}
