package kafka

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

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
	lock       *os.File // of DataDir, nil without one
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
	lock, err := lockDir(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("starting the embedded broker: %w", err)
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		_ = lock.Close() // an error for want of a lock says nothing
		return nil, fmt.Errorf("starting the embedded broker: %w", err)
	}
	e := &Embedded{cluster: cluster, partitions: cfg.Partitions, lock: lock}
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
	err := CheckTopic(topic) // which the broker does not do
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

// Close ends the broker and its connections.
func (e *Embedded) Close() {
	e.cluster.Close()
	_ = e.lock.Close() // after the last write to the directory
}

// lockDir keeps a second broker out of dir: two would give out the same offsets twice, and each would
// write over what the other wrote. Without a directory it returns a nil file, which can be closed.
func lockDir(dir string) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making data_dir: %w", err)
	}
	f, taken, err := lockFile(filepath.Join(dir, "lock"))
	switch {
	case taken:
		return nil, fmt.Errorf("data_dir %q is in use by another process: stop it, or give both files to one enricher run", dir)
	case err != nil:
		return nil, fmt.Errorf("taking data_dir %q: %w", dir, err)
	}
	return f, nil
}
