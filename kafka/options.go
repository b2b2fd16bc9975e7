package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
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
	Name    string // Kafka's own name
	Default string // what holds when it is left out
	Doc     string // one line
	Sides   []Side // whose it is
}

var (
	both   = []Side{SourceSide, SinkSide}
	source = []Side{SourceSide}
	sink   = []Side{SinkSide}
)

// option is one setting with how it is read and applied.
type option struct {
	OptionDoc
	least, most int64    // bounds of a number; most 0: the option is text
	words       []string // the words that a text may be, nil: any text
	longest     int      // bytes of a text, 0: any
	list        bool     // the text is a list of words, separated by commas
	apply       func(v string) kgo.Opt
}

// Options describes every setting that options may hold.
func Options() []OptionDoc {
	docs := make([]OptionDoc, 0, len(table))
	for i := range table {
		doc := table[i].OptionDoc
		if words := table[i].words; words != nil {
			doc.Doc += ": " + strings.Join(words, ", ")
		}
		docs = append(docs, doc)
	}
	return docs
}

// CheckOption says what is wrong with one setting, and what to do instead. A setting of the other side
// is not wrong, as in Kafka's own clients: it has no effect, which is said when the client is opened.
func CheckOption(side Side, name, value string) error {
	o := find(name)
	switch {
	case o != nil:
		return o.check(value)
	case name == "acks" && (value == "all" || value == "-1"):
		return nil // it is what holds
	case name == "acks":
		return errors.New("only all is possible: with less an acknowledged record could be lost; leave it out")
	case strings.HasPrefix(name, "sasl."):
		return errors.New("write it under `sasl:` instead")
	case strings.HasPrefix(name, "ssl."):
		return errors.New("write it under `tls:` instead")
	case cures[name] != "":
		return errors.New(cures[name])
	}
	var known []string
	for i := range table {
		if slices.Contains(table[i].Sides, side) {
			known = append(known, table[i].Name)
		}
	}
	return fmt.Errorf("unknown setting; known are %s", strings.Join(known, ", "))
}

// whole reads a number that was checked.
func whole(v string) int64 {
	n, _ := strconv.ParseInt(v, 10, 64)
	return n
}

func ms(v int64) time.Duration { return time.Duration(v) * time.Millisecond }

func text[O kgo.Opt](fn func(string) O) func(string) kgo.Opt {
	return func(v string) kgo.Opt { return fn(v) }
}

func millis[O kgo.Opt](fn func(time.Duration) O) func(string) kgo.Opt {
	return func(v string) kgo.Opt { return fn(ms(whole(v))) }
}

func bytesOf[O kgo.Opt](fn func(int32) O) func(string) kgo.Opt {
	return func(v string) kgo.Opt { return fn(int32(whole(v))) }
}

const (
	mostMillis = math.MaxInt32
	minute     = 60 * 1000 // milliseconds
)

var table = []option{
	{
		OptionDoc: OptionDoc{"allow.auto.create.topics", "false", "lets brokers that are set up for it create topics that do not exist", both},
		words:     []string{"true", "false"}, apply: func(v string) kgo.Opt {
			if v == "true" {
				return kgo.AllowAutoTopicCreation()
			}
			return nil
		},
	},
	{
		OptionDoc: OptionDoc{"client.id", "enricher", "name of this client in the broker's logs and quotas", both},
		longest:   256, apply: text(kgo.ClientID),
	},
	{
		OptionDoc: OptionDoc{"client.rack", "", "rack of this worker, so that it reads from brokers nearby", source},
		longest:   512, apply: text(kgo.Rack),
	},
	{
		OptionDoc: OptionDoc{"connections.max.idle.ms", "20000", "time after which an unused connection is closed", both},
		least:     1000, most: 15 * minute, apply: millis(kgo.ConnIdleTimeout),
	},
	{
		OptionDoc: OptionDoc{"metadata.max.age.ms", "30000", "time after which new topics and partitions are looked for", both},
		least:     100, most: 60 * minute, apply: millis(kgo.MetadataMaxAge),
	},
	{
		OptionDoc: OptionDoc{"request.timeout.ms", "10000", "time for an answer, beyond what the request itself asks the broker to wait", both},
		least:     100, most: 15 * minute, apply: millis(kgo.RequestTimeoutOverhead),
	},

	{
		OptionDoc: OptionDoc{"fetch.max.bytes", "8388608", "bytes that an answer of one broker takes at most, once it is unpacked; the first answers may take more", source},
		least:     1024, most: 1 << 30, apply: bytesOf(kgo.FetchMaxBytes),
	},
	{
		OptionDoc: OptionDoc{"fetch.max.wait.ms", "500", "time that a broker waits for fetch.min.bytes", source},
		least:     10, most: mostMillis, apply: millis(kgo.FetchMaxWait),
	},
	{
		OptionDoc: OptionDoc{"fetch.min.bytes", "1", "bytes for which a broker waits before it answers", source},
		least:     1, most: 1 << 30, apply: bytesOf(kgo.FetchMinBytes),
	},
	{
		OptionDoc: OptionDoc{"max.partition.fetch.bytes", "1048576", "bytes of one partition in an answer", source},
		least:     1024, most: 1 << 30, apply: bytesOf(kgo.FetchMaxPartitionBytes),
	},
	{
		OptionDoc: OptionDoc{"isolation.level", "read_committed", "read_committed leaves out records of aborted transactions", source},
		words:     []string{"read_committed", "read_uncommitted"}, apply: func(v string) kgo.Opt {
			if v == "read_committed" {
				return kgo.FetchIsolationLevel(kgo.ReadCommitted())
			}
			return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
		},
	},
	{
		OptionDoc: OptionDoc{"group.instance.id", "", "makes this worker a static member, whose restart moves no partitions", source},
		apply:     text(kgo.InstanceID),
	},
	{
		OptionDoc: OptionDoc{"heartbeat.interval.ms", "3000", "time between signs of life to the group", source},
		least:     100, most: mostMillis, apply: millis(kgo.HeartbeatInterval),
	},
	{
		OptionDoc: OptionDoc{"max.poll.interval.ms", "60000", "time that a worker has to give partitions back in a rebalance", source},
		least:     1000, most: mostMillis, apply: millis(kgo.RebalanceTimeout),
	},
	{
		OptionDoc: OptionDoc{"partition.assignment.strategy", "cooperative-sticky", "how partitions are shared out; a list offers several", source},
		words:     []string{"cooperative-sticky", "sticky", "range", "roundrobin"}, list: true, apply: func(v string) kgo.Opt { return kgo.Balancers(balancers(v, "")...) },
	},
	{
		OptionDoc: OptionDoc{"session.timeout.ms", "45000", "time without a sign of life after which the group gives a worker up", source},
		least:     1000, most: mostMillis, apply: millis(kgo.SessionTimeout),
	},

	{
		OptionDoc: OptionDoc{"buffer.memory", "33554432", "bytes that are held for sending; then the pipeline waits", sink},
		least:     1 << 16, most: 1 << 40, apply: func(v string) kgo.Opt { return kgo.MaxBufferedBytes(int(whole(v))) },
	},
	{
		OptionDoc: OptionDoc{"compression.type", "snappy", "how batches are compressed", sink},
		words:     []string{"none", "gzip", "snappy", "lz4", "zstd"}, apply: compression,
	},
	{
		OptionDoc: OptionDoc{"linger.ms", "5", "time that a record waits for others to share its request", sink},
		most:      60000, apply: millis(kgo.ProducerLinger),
	},
	{
		OptionDoc: OptionDoc{TransactionTimeout, "60000", "time after which brokers abort a transaction, with delivery: exactly_once; one that is not finished at half of it is aborted and read again in smaller parts", sink},
		least:     1000, most: 15 * minute, apply: millis(kgo.TransactionTimeout),
	},
	{
		OptionDoc: OptionDoc{"max.request.size", "1048576", "bytes of the largest record, together with the topic's max.message.bytes", sink},
		least:     1024, most: 1 << 30, apply: func(v string) kgo.Opt {
			return kgo.BrokerMaxWriteBytes(int32(min(max(whole(v)+requestOverhead, 100<<20), 1<<30)))
		},
	},
}

// TransactionTimeout is the option that says after how long brokers abort a transaction.
const TransactionTimeout = "transaction.timeout.ms"

// requestOverhead is what a request may take beside its largest record.
const requestOverhead = 1 << 20

// balancers returns how partitions are shared out. Those of the topic apart, if there is one, are shared out by themselves.
func balancers(v, apart string) []kgo.GroupBalancer {
	var chosen []kgo.GroupBalancer
	for _, name := range strings.Split(v, ",") {
		var b kgo.GroupBalancer
		switch strings.TrimSpace(name) {
		case "cooperative-sticky":
			b = kgo.CooperativeStickyBalancer()
		case "sticky":
			b = kgo.StickyBalancer()
		case "range":
			b = kgo.RangeBalancer()
		case "roundrobin":
			b = kgo.RoundRobinBalancer()
		}
		if apart != "" {
			b = evenly{b, apart}
		}
		chosen = append(chosen, b)
	}
	return chosen
}

func compression(v string) kgo.Opt {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[v]
	return kgo.ProducerBatchCompression(codec, kgo.NoCompression())
}

// settings holds the options that were given, checked.
type settings struct {
	side  Side
	given map[string]string
}

// sayIdle warns of settings that belong to the other side.
func (s *settings) sayIdle(log *slog.Logger) {
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		if o := find(name); o != nil && !slices.Contains(o.Sides, s.side) {
			log.Warn("kafka: option has no effect here", "option", name, "given_to", string(s.side), "belongs_to", string(o.Sides[0]))
		}
	}
}

func newSettings(side Side, given map[string]string) (*settings, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := CheckOption(side, name, given[name]); err != nil {
			errs = append(errs, &KeyError{optionKey(name), err})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s := &settings{side: side, given: given}
	if side == SourceSide {
		if err := s.checkBeat(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func optionKey(name string) string { return fmt.Sprintf("options[%q]", name) }

// checkBeat holds the times of the group to each other. It names a setting that was given, not a default.
func (s *settings) checkBeat() error {
	const heartbeat, session, rebalance = "heartbeat.interval.ms", "session.timeout.ms", "max.poll.interval.ms"
	at := func(name string) string {
		if _, ok := s.given[name]; ok {
			return optionKey(name)
		}
		return optionKey(heartbeat)
	}
	beat := s.number(heartbeat)
	if until := s.number(session); beat >= until {
		return keyErrorf(at(session), "a session of %d ms is not longer than heartbeat.interval.ms %d: make it three times that", until, beat)
	}
	// A worker may hear of a rebalance one heartbeat late, and needs another to say that it is done.
	if until := s.number(rebalance); until <= 2*beat {
		return keyErrorf(at(rebalance), "max.poll.interval.ms %d is not more than two heartbeats of %d ms: nothing would be left to give partitions back in", until, beat)
	}
	return nil
}

func (o *option) check(value string) error {
	if o.most > 0 {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no whole number", value)
		}
		if n < o.least || n > o.most {
			return fmt.Errorf("%d is not between %d and %d", n, o.least, o.most)
		}
		return nil
	}
	if o.longest > 0 && len(value) > o.longest {
		return fmt.Errorf("is longer than %d bytes", o.longest)
	}
	if o.words == nil {
		return nil
	}
	words := []string{value}
	if o.list {
		words = strings.Split(value, ",")
	}
	for _, w := range words {
		if !slices.Contains(o.words, strings.TrimSpace(w)) {
			return fmt.Errorf("%q is none of %s", w, strings.Join(o.words, ", "))
		}
	}
	return nil
}

func find(name string) *option {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}

// text returns the value of an option, or its default.
func (s *settings) text(name string) string {
	if v, ok := s.given[name]; ok {
		return v
	}
	return find(name).Default
}

func (s *settings) number(name string) int64 { return whole(s.text(name)) }

func (s *settings) millis(name string) time.Duration { return ms(s.number(name)) }

// opts returns the library's options for s. An empty text means that the option is left out.
func (s *settings) opts() []kgo.Opt {
	opts := s.choose(func(o *option) bool { return slices.Contains(o.Sides, s.side) })
	return append(opts, kgo.MetadataMinAge(min(quickMetadata, s.millis("metadata.max.age.ms"))))
}

// ownOpts returns those that the other side has not.
func (s *settings) ownOpts() []kgo.Opt {
	return s.choose(func(o *option) bool { return len(o.Sides) == 1 && o.Sides[0] == s.side })
}

func (s *settings) choose(wanted func(*option) bool) []kgo.Opt {
	var opts []kgo.Opt
	for i := range table {
		o := &table[i]
		if o.apply == nil || !wanted(o) || s.text(o.Name) == "" {
			continue
		}
		if opt := o.apply(s.text(o.Name)); opt != nil {
			opts = append(opts, opt)
		}
	}
	return opts
}

// quickMetadata is how soon a client may ask again where partitions are, after a broker has gone.
const quickMetadata = time.Second
