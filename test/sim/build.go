package sim

import (
	"fmt"
	"log/slog"
	"maps"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

const (
	inTopic      = "in"
	outTopic     = "out"
	errTopic     = "err"
	throughTopic = "between"
	group        = "sim"
)

// ends are what a stream reads from and writes to.
type ends struct {
	source              streammanager.Source
	out, failed, hopped streammanager.Sink
}

// connection is how a worker reaches the brokers.
func (w *world) connection(k *worker, by *network, options map[string]string) kafka.Connection {
	all := map[string]string{"client.id": k.name, "metadata.max.age.ms": "5000"}
	maps.Copy(all, options)
	return kafka.Connection{Brokers: w.addrs, Dialer: by.Dial, Options: all}
}

func (w *world) sourceConfig(k *worker) kafka.SourceConfig {
	options := map[string]string{"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
	if w.plan.static {
		options["group.instance.id"] = fmt.Sprintf("i%d", k.slot)
	}
	cfg := kafka.SourceConfig{
		Connection: w.connection(k, k.net, options), Topics: []string{inTopic}, Group: group, Start: kafka.Earliest, OutOfRange: w.plan.outOfRange,
	}
	if w.plan.bounded {
		cfg.Until = kafka.Latest
	}
	if n := w.plan.through; n > 0 {
		cfg.Repartition = &kafka.Repartition{Topic: throughTopic, Partitions: n}
	}
	return cfg
}

// sinkConfigs are of the output topic, the error topic and the repartition topic.
func (w *world) sinkConfigs(k *worker) []kafka.SinkConfig {
	// A batch is not compressed, so that the broker in memory can tell poison by looking.
	options, by := map[string]string{"compression.type": "none"}, k.out
	if w.plan.exactlyOnce {
		options["transaction.timeout.ms"], by = fmt.Sprint(transactionTimeout.Milliseconds()), k.net
	}
	at := w.connection(k, by, options)
	return []kafka.SinkConfig{{Connection: at, Topic: outTopic}, {Connection: at, Topic: errTopic, WaitForTopics: true}, {Connection: at, Topic: throughTopic, AnySize: true, Group: group}}
}

// ends makes both ends of a stream, each by itself, or over one client.
func (w *world) ends(k *worker, log *slog.Logger) (*ends, error) {
	sinks := w.sinkConfigs(k)
	if w.plan.once {
		tx, err := transaction(k, w.sourceConfig(k).Connection, w.connection(k, k.net, map[string]string{"compression.type": "none"}), log)
		if err != nil {
			return nil, err
		}
		return &ends{source: tx.Source(), out: tx.Sink(0), failed: tx.Sink(1)}, nil
	}
	if w.plan.exactlyOnce {
		return w.boundEnds(k, sinks, log)
	}
	src, err := kafka.NewSource(w.sourceConfig(k), log)
	if err != nil {
		return nil, err
	}
	var made []*kafka.Sink
	for _, cfg := range sinks {
		s, err := kafka.NewSink(cfg, log)
		if err != nil {
			return nil, err
		}
		made = append(made, s)
	}
	return &ends{source: &source{Source: src, b: k.b}, out: &sink{Sink: made[0], b: k.b}, failed: &sink{Sink: made[1], b: k.b, failed: true}, hopped: made[2]}, nil
}

func (w *world) boundEnds(k *worker, sinks []kafka.SinkConfig, log *slog.Logger) (*ends, error) {
	cfg := kafka.TransactionConfig{ID: fmt.Sprintf("sim-%d", k.slot), Source: w.sourceConfig(k)}
	for i := range sinks {
		if i < 2 || w.plan.through > 0 {
			cfg.Sinks = append(cfg.Sinks, &sinks[i])
		}
	}
	t, err := kafka.NewTransaction(cfg, log)
	if err != nil {
		return nil, err
	}
	src, ok := t.Source().(transactional)
	if !ok {
		return nil, fmt.Errorf("the source of a transaction lacks abilities")
	}
	e := &ends{source: &boundSource{transactional: src, b: k.b}, out: &sink{Sink: t.Sink(0), b: k.b}, failed: &sink{Sink: t.Sink(1), b: k.b, failed: true}}
	if w.plan.through > 0 {
		e.hopped = t.Sink(2)
	}
	return e, nil
}

func (w *world) build(k *worker) (*streammanager.Stream, error) {
	set, log := w.plan.set, w.ledger.logger(k.b)
	e, err := w.ends(k, log)
	if err != nil {
		return nil, err
	}
	b := streammanager.New(streammanager.Config{
		Name: "sim", Workers: set.workers, Order: set.order, Tombstones: set.tombstones, OnError: set.onError,
		Limits: set.limits, CommitInterval: set.commit, ShutdownTimeout: set.shutdown, Logger: log,
		Metrics: k.registry,
	}).From(e.source).To(e.out).Window(set.window).Filter(w.keep)
	if set.errorSink {
		b.ErrorsTo(e.failed, nil)
	}
	if w.plan.through > 0 {
		b.Repartition(throughTopic, e.hopped)
	}
	if set.byValue {
		b.PartitionBy(w.keyOf)
	}
	if set.byGroup {
		b.WindowBy(w.groupOf)
	}
	for i, s := range w.plan.steps {
		f := &function{step: i, plan: w.plan, b: k.b, api: &w.api, mended: &w.mended, end: w.end}
		step := streammanager.Step{Name: s.name, Inline: s.inline, Timeout: s.timeout, Attempts: s.attempts, When: w.when(i)}
		if s.batch {
			step.Batch = f
		} else {
			step.Func = f
		}
		b.Process(step)
	}
	return b.Build()
}
