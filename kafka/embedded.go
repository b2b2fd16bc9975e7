package kafka

import (
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kfake"
)

// embeddedPartitions is how many partitions a topic gets that nobody made before it was used.
const embeddedPartitions = 8

// EmbeddedConfig says what broker to start inside the process.
type EmbeddedConfig struct {
	Topics     map[string]int32 // topics to make, with their partitions; 0: as many as other topics get
	Partitions int32            // of topics that are made when they are used; 0: 8
	DataDir    string           // directory that keeps its data; empty: memory, gone with the process
	Port       int              // port on loopback; 0: a free one

	// Listen opens the listener. Nil listens on loopback; tests use a network in memory.
	Listen func(network, addr string) (net.Listener, error)
}

// Embedded is a broker inside the process, for trying things out. It keeps to loopback, has no replicas
// and asks for no login. A topic comes into being when it is used.
type Embedded struct {
	cluster    *kfake.Cluster
	partitions int32
}

// StartEmbedded starts a broker.
func StartEmbedded(cfg EmbeddedConfig) (*Embedded, error) {
	if cfg.Partitions <= 0 {
		cfg.Partitions = embeddedPartitions
	}
	opts := []kfake.Opt{
		kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(int(cfg.Partitions)), kfake.ClusterID("embedded"),
	}
	if cfg.Port != 0 {
		opts = append(opts, kfake.Ports(cfg.Port))
	} else {
		opts = append(opts, kfake.NumBrokers(1))
	}
	if cfg.DataDir != "" {
		opts = append(opts, kfake.DataDir(cfg.DataDir))
	}
	if cfg.Listen != nil {
		opts = append(opts, kfake.ListenFn(cfg.Listen))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("starting the embedded broker: %w", err)
	}
	e := &Embedded{cluster: cluster, partitions: cfg.Partitions}
	for topic, partitions := range cfg.Topics {
		if err := e.CreateTopic(topic, partitions); err != nil {
			e.Close()
			return nil, err
		}
	}
	return e, nil
}

// CreateTopic makes a topic unless it exists. With 0 partitions it gets as many as other topics.
func (e *Embedded) CreateTopic(topic string, partitions int32) error {
	if e.cluster.TopicInfo(topic) != nil {
		return nil
	}
	if partitions <= 0 {
		partitions = e.partitions
	}
	err := checkTopic(topic) // which the broker does not do
	if err == nil {
		err = e.cluster.CreateTopic(topic, partitions, nil)
	}
	if err != nil {
		return fmt.Errorf("creating topic %q in the embedded broker: %w", topic, err)
	}
	return nil
}

// Addrs returns where the broker listens, as host:port.
func (e *Embedded) Addrs() []string { return e.cluster.ListenAddrs() }

// Connection returns how to reach the broker.
func (e *Embedded) Connection() Connection {
	return Connection{Brokers: e.Addrs(), Options: map[string]string{"allow.auto.create.topics": "true"}}
}

// Close ends the broker and its connections.
func (e *Embedded) Close() { e.cluster.Close() }
