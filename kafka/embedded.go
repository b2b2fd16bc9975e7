package kafka

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kfake"
)

// EmbeddedConfig is what a user sets of the broker inside the process.
type EmbeddedConfig struct {
	Topics     map[string]int32 // partitions by topic
	Partitions int32            // of topics that are made when first used; default 8
	DataDir    string           // empty: in memory
	Port       int              // 0: a free one
}

// Embedded is a broker inside the process, on the loopback interface, for trying things out.
type Embedded struct{ cluster *kfake.Cluster }

// StartEmbedded starts the broker. Close ends it.
func StartEmbedded(cfg EmbeddedConfig) (*Embedded, error) {
	if cfg.Partitions == 0 {
		cfg.Partitions = 8
	}
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(int(cfg.Partitions))}
	for _, topic := range slices.Sorted(maps.Keys(cfg.Topics)) {
		opts = append(opts, kfake.SeedTopics(cfg.Topics[topic], topic))
	}
	if cfg.DataDir != "" {
		opts = append(opts, kfake.DataDir(cfg.DataDir))
	}
	if cfg.Port != 0 {
		opts = append(opts, kfake.Ports(cfg.Port))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("starting the embedded broker: %w", err)
	}
	return &Embedded{cluster}, nil
}

// Addrs returns the addresses that clients connect to.
func (e *Embedded) Addrs() []string { return e.cluster.ListenAddrs() }

// Close ends the broker.
func (e *Embedded) Close() { e.cluster.Close() }
