package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Side tells the options of a source from those of a sink.
type Side string

// The sides.
const (
	SourceSide Side = "source"
	SinkSide   Side = "sink"
)

// OptionDoc describes one client setting.
type OptionDoc struct {
	Name    string
	Default string
	Doc     string
	Sides   []Side
}

type option struct {
	OptionDoc
	apply func(value string) (kgo.Opt, error)
}

var both = []Side{SourceSide, SinkSide}

// defaultFetchBytes bounds one fetch, and so the memory of the source's client.
const defaultFetchBytes = 8 << 20

// defaultMaxRequest is Kafka's own default of max.request.size.
const defaultMaxRequest = 1 << 20

// defaultBufferBytes bounds what the producer holds.
const defaultBufferBytes = 32 << 20

var table = []option{
	{OptionDoc{"client.id", "enricher", "name of this client in the broker's logs and quotas", both}, text(kgo.ClientID)},
	{OptionDoc{"client.rack", "", "rack of this client, to fetch from the nearest replica", []Side{SourceSide}}, text(kgo.Rack)},
	{OptionDoc{"connections.max.idle.ms", "20000", "idle connections are closed after this time", both}, millis(kgo.ConnIdleTimeout)},
	{OptionDoc{"metadata.max.age.ms", "30000", "how often topics and partitions are looked up anew", both}, millis(kgo.MetadataMaxAge)},
	{OptionDoc{"request.timeout.ms", "10000", "what a request may take beyond its own time limit", both}, millis(kgo.RequestTimeoutOverhead)},
	{OptionDoc{"fetch.max.bytes", strconv.Itoa(defaultFetchBytes), "bytes of one fetch", []Side{SourceSide}}, bytesOf(kgo.FetchMaxBytes)},
	{OptionDoc{"max.partition.fetch.bytes", "1048576", "bytes of one partition in a fetch", []Side{SourceSide}}, bytesOf(kgo.FetchMaxPartitionBytes)},
	{OptionDoc{"fetch.min.bytes", "1", "bytes that the broker waits for", []Side{SourceSide}}, bytesOf(kgo.FetchMinBytes)},
	{OptionDoc{"fetch.max.wait.ms", "500", "how long the broker waits for fetch.min.bytes", []Side{SourceSide}}, millis(kgo.FetchMaxWait)},
	{OptionDoc{"session.timeout.ms", "45000", "a member not heard of for this time is out of the group", []Side{SourceSide}}, millis(kgo.SessionTimeout)},
	{OptionDoc{"heartbeat.interval.ms", "3000", "time between heartbeats", []Side{SourceSide}}, millis(kgo.HeartbeatInterval)},
	{OptionDoc{"max.poll.interval.ms", "60000", "what a rebalance may take", []Side{SourceSide}}, millis(kgo.RebalanceTimeout)},
	{OptionDoc{"group.instance.id", "", "static membership: a restart within session.timeout.ms moves no partition", []Side{SourceSide}}, text(kgo.InstanceID)},
	{OptionDoc{"isolation.level", "read_committed", "read_committed or read_uncommitted", []Side{SourceSide}}, isolation},
	{OptionDoc{"linger.ms", "5", "how long a record waits for others of its partition", []Side{SinkSide}}, millis(kgo.ProducerLinger)},
	{OptionDoc{"batch.size", "1048576", "bytes of one batch of a partition", []Side{SinkSide}}, bytesOf(kgo.ProducerBatchMaxBytes)},
	{OptionDoc{"compression.type", "snappy", "none, gzip, snappy, lz4 or zstd", []Side{SinkSide}}, compression},
	{OptionDoc{"max.request.size", strconv.Itoa(defaultMaxRequest), "bytes of the largest record, together with the topic's max.message.bytes", []Side{SinkSide}}, nil},
	{OptionDoc{"buffer.memory", strconv.Itoa(defaultBufferBytes), "bytes that wait to be sent", []Side{SinkSide}}, nil},
}

// Options describes every setting that options may hold.
func Options() []OptionDoc {
	docs := make([]OptionDoc, len(table))
	for i := range table {
		docs[i] = table[i].OptionDoc
	}
	return docs
}

// CheckOption says what is wrong with one setting, and what to do instead.
func CheckOption(side Side, name, value string) error {
	switch {
	case strings.HasPrefix(name, "sasl."):
		return errors.New("write it under `sasl:` instead")
	case strings.HasPrefix(name, "ssl."), name == "security.protocol":
		return errors.New("write it under `tls:` instead")
	case name == "acks":
		if value != "all" && value != "-1" {
			return errors.New("only all is possible: with less an acknowledged record could be lost")
		}
		return nil
	case name == "enable.auto.commit", name == "auto.commit.interval.ms":
		return errors.New("offsets are committed when events are finished; see commit_interval")
	case name == "auto.offset.reset":
		return errors.New("write `start` or `out_of_range` of the source instead")
	case name == "group.id":
		return errors.New("write `group` of the source instead")
	case name == "bootstrap.servers":
		return errors.New("write `brokers` instead")
	case name == "enable.idempotence", name == "retries", name == "delivery.timeout.ms":
		return errors.New("the producer is always idempotent and tries until the record is written")
	}
	o := find(name)
	if o == nil {
		return fmt.Errorf("unknown setting; known are %s", strings.Join(names(side), ", "))
	}
	if !slices.Contains(o.Sides, side) {
		return fmt.Errorf("is no setting of a %s", side)
	}
	if o.apply == nil {
		_, err := positive(value)
		return err
	}
	_, err := o.apply(value)
	return err
}

func names(side Side) []string {
	var out []string
	for i := range table {
		if slices.Contains(table[i].Sides, side) {
			out = append(out, table[i].Name)
		}
	}
	return out
}

func find(name string) *option {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}

// applyOptions checks all settings and turns them into the client's, defaults included.
func applyOptions(side Side, set map[string]string) ([]kgo.Opt, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if err := CheckOption(side, name, set[name]); err != nil {
			errs = append(errs, fmt.Errorf("options[%q]: %w", name, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var opts []kgo.Opt
	for i := range table {
		o := &table[i]
		value, ok := set[o.Name]
		if !ok {
			value = o.Default
		}
		if o.apply == nil || value == "" || !slices.Contains(o.Sides, side) {
			continue
		}
		opt, err := o.apply(value)
		if err != nil {
			return nil, fmt.Errorf("options[%q]: %w", o.Name, err)
		}
		opts = append(opts, opt)
	}
	return opts, nil
}

// number returns a setting that this package uses itself.
func number(set map[string]string, name string) int64 {
	value, ok := set[name]
	if !ok {
		value = find(name).Default
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func positive(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no whole number of 0 or more", value)
	}
	return n, nil
}

func text[O kgo.Opt](fn func(string) O) func(string) (kgo.Opt, error) {
	return func(value string) (kgo.Opt, error) { return fn(value), nil }
}

func millis[O kgo.Opt](fn func(time.Duration) O) func(string) (kgo.Opt, error) {
	return func(value string) (kgo.Opt, error) {
		n, err := positive(value)
		return fn(time.Duration(n) * time.Millisecond), err
	}
}

func bytesOf[O kgo.Opt](fn func(int32) O) func(string) (kgo.Opt, error) {
	return func(value string) (kgo.Opt, error) {
		n, err := positive(value)
		if err == nil && n > 1<<30 {
			err = fmt.Errorf("%d is over 1073741824", n)
		}
		return fn(int32(n)), err
	}
}

func isolation(value string) (kgo.Opt, error) {
	switch value {
	case "read_committed":
		return kgo.FetchIsolationLevel(kgo.ReadCommitted()), nil
	case "read_uncommitted":
		return kgo.FetchIsolationLevel(kgo.ReadUncommitted()), nil
	}
	return nil, fmt.Errorf("%q is none of read_committed, read_uncommitted", value)
}

func compression(value string) (kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	c, ok := codecs[value]
	if !ok {
		return nil, fmt.Errorf("%q is none of none, gzip, snappy, lz4, zstd", value)
	}
	return kgo.ProducerBatchCompression(c), nil
}
