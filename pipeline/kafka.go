package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// nowhere stands for the embedded broker while a file is only checked.
const nowhere = "127.0.0.1:1"

// kafkaConnection makes the connection of a kafka: block for one side. Settings of the default
// connection that belong to the other side are left out; those of the block itself were checked.
func (a *assembly) kafkaConnection(own connection, side kafka.Side) (kafka.Connection, error) {
	c := own.or(a.p.cfg.Kafka)
	out := kafka.Connection{Brokers: c.Brokers, Options: map[string]string{}, Voice: &a.voice, Dialer: a.deps.Dialer}
	if c.embedded() {
		out.Brokers = []string{nowhere}
		if !a.dry {
			addrs, err := a.deps.Embedded.addrs(a.p)
			if err != nil {
				return out, err
			}
			out.Brokers = addrs
		}
	}
	for name, v := range c.Options {
		if _, mine := own.Options[name]; mine || optionFor(name, side) {
			out.Options[name] = string(v)
		}
	}
	out.TLS, out.SASL = c.encryption(), c.SASL.client()
	return out, nil
}

// optionFor reports whether a client setting belongs to side.
func optionFor(name string, side kafka.Side) bool {
	return slices.ContainsFunc(kafka.Options(), func(o kafka.OptionDoc) bool { return o.Name == name && slices.Contains(o.Sides, side) })
}

// checkOptions checks the client settings of one block. Those of the default connection may belong to
// either side.
func (c *checker) checkOptions(path string, conn connection, sides ...kafka.Side) {
	for name, v := range conn.Options {
		at := join(join(path, "options"), name)
		if c.values[at] == nil || c.fault(at) {
			continue
		}
		var first error
		for i, side := range sides {
			err := kafka.CheckOption(side, name, string(v))
			if err == nil {
				first = nil
				break
			}
			if i == 0 || optionFor(name, side) {
				first = err
			}
		}
		if first == nil {
			continue
		}
		if near := nearest(name, settings()); near != "" && near != name {
			c.problem(at, "unknown setting, did you mean %s?", near)
			continue
		}
		c.problem(at, "%v", first)
	}
}

// Idle returns the client settings that have no effect where they stand. They are no fault of the file; a run
// logs them.
func (p *Pipeline) Idle() Problems {
	d := p.reader()
	idle := func(path string, c connection, side kafka.Side, other string) {
		for name := range c.Options {
			if at := join(join(path, "options"), name); p.has(at) && !optionFor(name, side) && slices.Contains(settings(), name) {
				d.problem(at, "warning: has no effect here, it belongs to the %s", other)
			}
		}
	}
	if k := p.cfg.Source.Kafka; k != nil {
		idle("source.kafka", k.connection, kafka.SourceSide, "sink")
	}
	if k := p.cfg.Sink.Kafka; k != nil {
		idle("sink.kafka", k.connection, kafka.SinkSide, "source")
	}
	if e := p.cfg.ErrorSink; e != nil && e.Kafka != nil {
		idle("error_sink.kafka", e.Kafka.connection, kafka.SinkSide, "source")
	}
	return d.problems.sorted()
}

func settings() []string {
	var names []string
	for _, o := range kafka.Options() {
		names = append(names, o.Name)
	}
	return names
}

func (a *assembly) kafkaSource(k *kafkaSource) (streammanager.Source, error) {
	cfg, err := a.kafkaSourceConfig(k)
	if err != nil {
		return nil, err
	}
	return kafka.NewSource(cfg, a.log)
}

// kafkaSourceConfig says what is read: k, which may be nil in a replay.
func (a *assembly) kafkaSourceConfig(k *kafkaSource) (kafka.SourceConfig, error) {
	if r := a.deps.replay; r != nil {
		return r.sourceConfig(a)
	}
	conn, err := a.kafkaConnection(k.connection, kafka.SourceSide)
	if err != nil {
		return kafka.SourceConfig{}, err
	}
	cfg := kafka.SourceConfig{Connection: conn, Topics: k.Topics.Names, Group: k.Group, Start: string(k.Start.At), Force: k.Start.Force, Until: string(k.Until), OutOfRange: k.OutOfRange}
	if k.Topics.Regexp != "" {
		cfg.Topics = []string{"/" + k.Topics.Regexp + "/"}
	}
	if cfg.Group == "" {
		cfg.Group = a.p.cfg.Name
	}
	if r := a.p.cfg.Repartition; r != nil {
		cfg.Repartition = &kafka.Repartition{Topic: r.Topic, Partitions: int32(r.Partitions)}
	}
	return cfg, nil
}

func (a *assembly) kafkaSink(k *kafkaSink, errors bool) (streammanager.Sink, error) {
	cfg, err := a.kafkaSinkConfig(k, errors)
	if err != nil {
		return nil, err
	}
	return kafka.NewSink(cfg, a.log)
}

func (a *assembly) kafkaSinkConfig(k *kafkaSink, errors bool) (kafka.SinkConfig, error) {
	conn, err := a.kafkaConnection(k.connection, kafka.SinkSide)
	if err != nil {
		return kafka.SinkConfig{}, err
	}
	// An error event has nowhere else to go.
	cfg := kafka.SinkConfig{Connection: conn, Now: k.Timestamp == "now", WaitForTopics: errors}
	ctx := a.named(context.Background())
	if topic, ok := k.literalTopic(); ok {
		cfg.Topic = topic
	} else {
		reads := a.sourceReads(k)
		cfg.TopicOf = func(ev *event.Event) (string, error) { return topicOf(ctx, k.Topic, ev, reads) }
	}
	if !k.Key.IsZero() {
		cfg.KeyOf = func(ev *event.Event) ([]byte, error) {
			key, err := rawKey(ctx, k.Key, ev)
			if err != nil && errors {
				return ev.Key(), nil // an error event must not fail over its key
			}
			return key, err
		}
	}
	return cfg, nil
}

// literalTopic returns the topic, if it is the same for every event.
func (k *kafkaSink) literalTopic() (string, bool) {
	if k.Topic.IsZero() || !k.Topic.Literal() {
		return "", false
	}
	topic, err := k.Topic.Text(context.Background(), event.New(event.Position{}, nil, nil, nil, epoch))
	return topic, err == nil
}

// sourceReads tells which topics are both the source's and within reach of k.
func (a *assembly) sourceReads(k *kafkaSink) func(topic string) bool {
	src := a.p.cfg.Source.Kafka
	if src == nil || !a.p.cfg.sameCluster(src.connection, k.connection) {
		return func(string) bool { return false }
	}
	own := src.Topics.matcher()
	return func(topic string) bool {
		r := a.p.cfg.Repartition
		return own(topic) || r != nil && topic == r.Topic
	}
}

// topicOf returns the topic that t names for ev. One that the source reads would make an endless loop: the
// file is refused where that is the topic of every event, and the event where it names such a topic itself.
func topicOf(ctx context.Context, t functions.Template, ev *event.Event, reads func(topic string) bool) (string, error) {
	topic, err := t.Text(ctx, ev)
	if err != nil {
		return "", err
	}
	if err := kafka.CheckTopic(topic); err != nil {
		return "", event.Reject(event.Rejected, err)
	}
	if reads(topic) {
		return "", event.Rejectf(event.Rejected, "%q is a topic that the source reads: the output would be an input again", topic)
	}
	return topic, nil
}

// rawKey returns the record key that e gives: text as it is, null for none, anything else as JSON.
func rawKey(ctx context.Context, e functions.Expr, ev *event.Event) ([]byte, error) {
	raw, err := e.JSON(ctx, ev)
	switch {
	case err != nil || string(raw) == "null":
		return nil, err
	case strings.HasPrefix(string(raw), `"`):
		text, err := event.Unquote(raw)
		if err != nil {
			return nil, event.Reject(event.Expression, fmt.Errorf("reading the key that %q gives: %w", e, err))
		}
		return []byte(text), nil
	default:
		return raw, nil
	}
}

// options lists the client settings.
func (d *documenter) options() {
	d.printf("\n## `options`\n\n| setting | of | default | meaning |\n|---|---|---|---|\n")
	for _, o := range kafka.Options() {
		sides := make([]string, len(o.Sides))
		for i, s := range o.Sides {
			sides[i] = string(s)
		}
		def := o.Default
		if def != "" {
			def = "`" + def + "`"
		}
		d.printf("| `%s` | %s | %s | %s |\n", o.Name, strings.Join(sides, ", "), def, cell(o.Doc))
	}
}
