package pipeline

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
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
	c.errors()
	c.window()
	c.items()
	c.ends()
	c.loops()
	if _, _, err := net.SplitHostPort(cfg.Gateway.Listen); err != nil && !c.fault("gateway") {
		c.problem("gateway.listen", "%q is no host:port", cfg.Gateway.Listen)
	}
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

func (c *checker) items() {
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
		if c.fault(it.place()) {
			continue
		}
		c.construct(it)
	}
}

// construct builds a function to see whether its constructor finds fault with the options, and lets it go.
func (c *checker) construct(it *item) {
	client := asynchttp.NewClient(asynchttp.ClientConfig{Workers: 1, Transport: offline{}})
	defer client.Close()
	env := functions.Env{
		Name: it.label(), Pipeline: c.cfg.Name, Workers: max(c.cfg.Workers, 1),
		Logger: slog.New(slog.DiscardHandler), Metrics: discard{}, HTTP: client.HTTP(),
	}
	built, err := it.spec.Build(env, it.options)
	if err != nil {
		c.optionProblem(it.place(), err)
		return
	}
	if _, own := abilityOf[callTimer](built); own && !it.Timeout.IsZero() {
		c.problem(join(it.path, "timeout"), "%s bounds its own calls: write its timeout under %s:", it.spec.Name(), it.spec.Name())
	}
	if f, ok := abilityOf[closer](built); ok {
		_ = f.Close(context.Background()) // nothing was processed: there is nothing to lose
	}
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
		if f := s.sink.File; f != nil && src.File != nil && f.Path != "-" && f.Path != "" && f.Path == src.File.Path {
			c.problem(s.path+".file.path", "is the file that the source reads")
		}
		k := s.sink.Kafka
		if k == nil || src.Kafka == nil || !c.sameCluster(src.Kafka.connection, k.connection) {
			continue
		}
		if topic, ok := k.literalTopic(); ok && !c.fault("source.kafka.topics") && src.Kafka.Topics.has(topic) {
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

// has reports whether the topics name topic.
func (t *topics) has(topic string) bool {
	if t.Regexp == "" {
		return slices.Contains(t.Names, topic)
	}
	re, err := regexp.Compile(t.Regexp) // anywhere in the name, as the client matches
	return err == nil && re.MatchString(topic)
}

func (c *checker) sameCluster(a, b connection) bool {
	a, b = a.or(c.cfg.Kafka), b.or(c.cfg.Kafka)
	return slices.ContainsFunc(a.Brokers, func(x string) bool {
		return slices.ContainsFunc(b.Brokers, func(y string) bool { return strings.EqualFold(x, y) })
	})
}
