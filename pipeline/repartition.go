package pipeline

import (
	"math"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// repartitionSinkConfig is of what writes to the repartition topic: on the source's cluster, with the settings of the
// default connection that are for a sink. Records may be as large as the topic takes.
func (a *assembly) repartitionSinkConfig() (kafka.SinkConfig, error) {
	own := a.p.cfg.Source.Kafka.connection
	own.Options = nil
	conn, err := a.kafkaConnection(own, kafka.SinkSide)
	if err != nil {
		return kafka.SinkConfig{}, err
	}
	return kafka.SinkConfig{Connection: conn, Topic: a.p.cfg.Repartition.Topic, AnySize: true, SourceMakes: true, Group: a.p.cfg.group()}, nil
}

func (a *assembly) repartitionSink() (streammanager.Sink, error) {
	cfg, err := a.repartitionSinkConfig()
	if err != nil {
		return nil, err
	}
	return kafka.NewSink(cfg, a.log)
}

// through is the way through a topic, nil where there is none. A replay goes without: it reads the error topic
// with few workers, and its events would mix in the topic with those of the job, whose group reads them.
func (a *assembly) through() *repartition {
	if a.deps.replay != nil {
		return nil
	}
	return a.p.cfg.Repartition
}

// repartition finds what a way through a topic cannot be with.
func (c *checker) repartition() {
	r, src := c.cfg.Repartition, c.cfg.Source.Kafka
	if r == nil || c.fault("repartition") {
		return
	}
	if !c.cfg.PartitionBy.set && !c.fault("partition_by") {
		c.problem("repartition", "needs partition_by: it says which events must stay together")
	}
	if r.Partitions > math.MaxInt32 {
		c.problem("repartition.partitions", "%d is more than a topic can have", r.Partitions)
	}
	if src == nil {
		if !c.fault("source") {
			c.problem("repartition", "needs a source of kafka: the topic is shared by the workers of its group")
		}
		return
	}
	c.settings("repartition.topic", kafka.CheckTopic(r.Topic))
	if !c.fault("source.kafka.topics") && src.Topics.Regexp == "" && src.Topics.matcher()(r.Topic) {
		c.problem("repartition.topic", "%q is a topic that the source reads: name one that nothing else uses", r.Topic)
	}
	if c.cfg.exactlyOnce() && src.or(c.cfg.Kafka).Options["isolation.level"] == "read_uncommitted" {
		c.problem("repartition", "with exactly_once the repartition topic is read as it is committed: take isolation.level: read_uncommitted out")
	}
	for _, s := range []struct {
		path string
		sink *sink
	}{{"sink", &c.cfg.Sink}, {"error_sink", c.errorSink()}} {
		if s.sink == nil || s.sink.Kafka == nil || c.fault(s.path) || !c.cfg.sameCluster(src.connection, s.sink.Kafka.connection) {
			continue
		}
		if topic, ok := s.sink.Kafka.literalTopic(); ok && topic == r.Topic {
			c.problem("repartition.topic", "%q is the topic of %s: name one that nothing else uses", topic, s.path)
		}
	}
}
