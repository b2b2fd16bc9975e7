package pipeline

import (
	"errors"
	"fmt"
	"sync"

	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/kafka"
)

// embeddedPartitions is how many partitions the topics of the embedded broker have.
const embeddedPartitions = 8

// Embedded is the broker inside the process that pipelines with `brokers: embedded` share. The zero
// Embedded is ready for use: the broker starts when the first pipeline that needs it is built, with the
// topics of all that were named to Prepare. It is safe for concurrent use.
type Embedded struct {
	mu      sync.Mutex // guards all below
	broker  *kafka.Embedded
	topics  map[string]int32
	dataDir string
}

// Prepare notes the topics of pipelines that will share the broker. It has an effect before the first
// of them is built.
func (e *Embedded) Prepare(ps ...*Pipeline) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range ps {
		if err := e.prepare(p); err != nil {
			return fmt.Errorf("preparing the embedded broker for pipeline %q: %w", p.Name(), err)
		}
	}
	return nil
}

func (e *Embedded) prepare(p *Pipeline) error {
	for _, d := range p.cfg.dataDirs() {
		if e.dataDir != "" && file.Same(d.dir, e.dataDir) {
			continue
		}
		if e.dataDir != "" || e.broker != nil {
			return fmt.Errorf("data_dir: %q differs from %q of an earlier pipeline, and a process has one embedded broker", d.dir, e.dataDir)
		}
		e.dataDir = d.dir
	}
	if e.topics == nil {
		e.topics = map[string]int32{}
	}
	for _, t := range p.embeddedTopics() {
		if e.topics[t] == 0 && e.broker != nil {
			return fmt.Errorf("the embedded broker was started without topic %q: name all pipelines to Prepare before one is built", t)
		}
		e.topics[t] = embeddedPartitions
	}
	return nil
}

// addrs returns where the broker listens, after starting it with the topics of p.
func (e *Embedded) addrs(p *Pipeline) ([]string, error) {
	if e == nil {
		return nil, errors.New("there is no embedded broker")
	}
	if err := e.Prepare(p); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broker == nil {
		b, err := kafka.StartEmbedded(kafka.EmbeddedConfig{Topics: e.topics, Partitions: embeddedPartitions, DataDir: e.dataDir})
		if err != nil {
			return nil, err
		}
		e.broker = b
	}
	return e.broker.Addrs(), nil
}

// Where says where the broker keeps its data.
func (e *Embedded) Where() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dataDir == "" {
		return "in memory, gone with this process"
	}
	return e.dataDir
}

// Addrs returns where the broker listens, nil before it was started.
func (e *Embedded) Addrs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broker == nil {
		return nil
	}
	return e.broker.Addrs()
}

// Close ends the broker, if it was started.
func (e *Embedded) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broker != nil {
		e.broker.Close()
		e.broker = nil
	}
	return nil
}

// embeddedTopics returns the topics that the embedded broker must have for the pipeline.
func (p *Pipeline) embeddedTopics() []string {
	var topics []string
	take := func(own connection, names ...string) {
		if own.or(p.cfg.Kafka).embedded() {
			topics = append(topics, names...)
		}
	}
	if k := p.cfg.Source.Kafka; k != nil {
		take(k.connection, k.Topics.Names...)
	}
	sinks := []*kafkaSink{p.cfg.Sink.Kafka}
	if p.cfg.ErrorSink != nil {
		sinks = append(sinks, p.cfg.ErrorSink.Kafka)
	}
	for _, k := range sinks {
		if k == nil {
			continue
		}
		if topic, ok := k.literalTopic(); ok {
			take(k.connection, topic)
		}
	}
	return topics
}
