package kafka_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/kafka"
)

// clientOf returns a client, not yet connected, as the source or the sink would open it.
func clientOf(t *testing.T, side kafka.Side, options map[string]string) *kgo.Client {
	t.Helper()
	conn := kafka.Connection{Brokers: []string{"127.0.0.1:1"}, Options: options}
	var opts []kgo.Opt
	if side == kafka.SourceSide {
		src, err := kafka.NewSource(kafka.SourceConfig{Connection: conn, Topics: []string{"in"}, Group: "g"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		opts = src.ClientOptions()
	} else {
		sink, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "out"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		opts = sink.ClientOptions()
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func balancers(v any) string {
	var names []string
	for _, b := range v.([]kgo.GroupBalancer) {
		names = append(names, b.ProtocolName())
	}
	return strings.Join(names, ",")
}

// optionCases has a case for each option.
var optionCases = []struct {
	name  string
	opt   any
	value string
	want  any // for value
	left  any // when it is left out
	bad   string
}{
	{name: "allow.auto.create.topics", opt: kgo.AllowAutoTopicCreation, value: "true", want: true, left: false, bad: "yes"},
	{name: "client.id", opt: kgo.ClientID, value: "me", want: "me", left: "enricher"},
	{name: "client.rack", opt: kgo.Rack, value: "r1", want: "r1", left: ""},
	{name: "connections.max.idle.ms", opt: kgo.ConnIdleTimeout, value: "5000", want: 5 * time.Second, left: 20 * time.Second, bad: "999"},
	{name: "metadata.max.age.ms", opt: kgo.MetadataMaxAge, value: "5000", want: 5 * time.Second, left: 30 * time.Second, bad: "5s"},
	{name: "request.timeout.ms", opt: kgo.RequestTimeoutOverhead, value: "5000", want: 5 * time.Second, left: 10 * time.Second, bad: "1"},
	{name: "fetch.max.bytes", opt: kgo.FetchMaxBytes, value: "1048576", want: int32(1 << 17), left: int32(1 << 20), bad: "8MiB"}, // an eighth, until it is known how much records grow
	{name: "fetch.max.wait.ms", opt: kgo.FetchMaxWait, value: "50", want: 50 * time.Millisecond, left: 500 * time.Millisecond, bad: "1"},
	{name: "fetch.min.bytes", opt: kgo.FetchMinBytes, value: "10", want: int32(10), left: int32(1), bad: "0"},
	{name: "max.partition.fetch.bytes", opt: kgo.FetchMaxPartitionBytes, value: "16384", want: int32(2048), left: int32(1 << 17), bad: "-1"}, // an eighth too
	{name: "isolation.level", opt: kgo.FetchIsolationLevel, value: "read_uncommitted", want: "0", left: "1", bad: "committed"},
	{name: "group.instance.id", opt: kgo.InstanceID, value: "i", want: "i", left: ""},
	{name: "heartbeat.interval.ms", opt: kgo.HeartbeatInterval, value: "500", want: 500 * time.Millisecond, left: 3 * time.Second, bad: "0"},
	{name: "max.poll.interval.ms", opt: kgo.RebalanceTimeout, value: "90000", want: 90 * time.Second, left: time.Minute, bad: "5"},
	{name: "partition.assignment.strategy", opt: kgo.Balancers, value: "range, sticky", want: "range,sticky", left: "cooperative-sticky", bad: "range,fair"},
	{name: "session.timeout.ms", opt: kgo.SessionTimeout, value: "9000", want: 9 * time.Second, left: 45 * time.Second, bad: "soon"},
	{name: "buffer.memory", opt: kgo.MaxBufferedBytes, value: "100000", want: 100000, left: 32 << 20, bad: "1"},
	{name: "compression.type", opt: kgo.ProducerBatchCompression, value: "zstd", want: []kgo.CompressionCodec{kgo.ZstdCompression(), kgo.NoCompression()}, left: []kgo.CompressionCodec{kgo.SnappyCompression(), kgo.NoCompression()}, bad: "brotli"},
	{name: "linger.ms", opt: kgo.ProducerLinger, value: "0", want: time.Duration(0), left: 5 * time.Millisecond, bad: "0.5"},
	{name: "transaction.timeout.ms", opt: kgo.TransactionTimeout, value: "5000", want: 5 * time.Second, left: time.Minute, bad: "1"},
	{name: "max.request.size", opt: kgo.BrokerMaxWriteBytes, value: "200000000", want: int32(201048576), left: int32(100 << 20), bad: "1"},
}

func TestEachOptionReachesTheClientAsDoesItsDefault(t *testing.T) {
	seen := map[string]bool{}
	for _, tt := range optionCases {
		t.Run(tt.name, func(t *testing.T) {
			seen[tt.name] = true
			i := slices.IndexFunc(kafka.Options(), func(o kafka.OptionDoc) bool { return o.Name == tt.name })
			if i < 0 {
				t.Fatal("the table does not hold it")
			}
			doc := kafka.Options()[i]
			for _, side := range doc.Sides {
				got := func(cl *kgo.Client) string {
					v := cl.OptValue(tt.opt)
					if tt.name == "partition.assignment.strategy" {
						v = balancers(v)
					}
					return fmt.Sprint(v)
				}
				if is, want := got(clientOf(t, side, map[string]string{tt.name: tt.value})), fmt.Sprint(tt.want); is != want {
					t.Errorf("a %s with %s has %s, want %s", side, tt.value, is, want)
				}
				if is, want := got(clientOf(t, side, nil)), fmt.Sprint(tt.left); is != want {
					t.Errorf("a %s without it has %s, want %s", side, is, want)
				}
				if doc.Default != "" && kafka.CheckOption(side, tt.name, doc.Default) != nil {
					t.Errorf("its own default %q is refused", doc.Default)
				}
				if err := kafka.CheckOption(side, tt.name, tt.bad); tt.bad != "" && err == nil {
					t.Errorf("%q was taken", tt.bad)
				}
			}
		})
	}
	for _, o := range kafka.Options() {
		if !seen[o.Name] {
			t.Errorf("option %q has no case here", o.Name)
		}
	}
}

func TestAnOptionThatCannotBeSetIsRefusedWithTheCure(t *testing.T) {
	for _, tt := range []struct{ name, value, cure string }{
		{"acks", "1", "only all is possible"},
		{"acks", "0", "leave it out"},
		{"sasl.mechanism", "PLAIN", "write it under `sasl:`"},
		{"sasl.jaas.config", "x", "write it under `sasl:`"},
		{"ssl.truststore.location", "x", "write it under `tls:`"},
		{"auto.offset.reset", "earliest", "write start"},
		{"bootstrap.servers", "h:1", "write brokers"},
		{"group.id", "g", "write source.kafka.group"},
		{"enable.auto.commit", "true", "leave it out"},
		{"auto.commit.interval.ms", "1", "write commit_interval"},
		{"batch.size", "16384", "linger.ms says how long it gathers"},
		{"max.poll.records", "500", "limits.in_flight_events"},
		{"max.in.flight.requests.per.connection", "1", "leave it out"},
		{"delivery.timeout.ms", "1", "leave it out"},
		{"transactional.id", "x", "write transactional_id"},
		{"security.protocol", "SASL_SSL", "write tls and sasl"},
		{"no.such.option", "x", "known are allow.auto.create.topics"},
	} {
		for _, side := range []kafka.Side{kafka.SourceSide, kafka.SinkSide} {
			if err := kafka.CheckOption(side, tt.name, tt.value); err == nil || !strings.Contains(err.Error(), tt.cure) {
				t.Errorf("%s=%s for a %s: %v, want %q", tt.name, tt.value, side, err, tt.cure)
			}
		}
	}
	for _, all := range []string{"all", "-1"} {
		if err := kafka.CheckOption(kafka.SinkSide, "acks", all); err != nil {
			t.Errorf("acks=%s, which holds anyway: %v", all, err)
		}
	}
	conn := kafka.Connection{Brokers: []string{"h:1"}, Options: map[string]string{"retries": "1", "acks": "1", "linger.ms": "5"}}
	_, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "out"}, nil)
	if err == nil || !strings.Contains(err.Error(), `options["acks"]`) || !strings.Contains(err.Error(), `options["retries"]`) {
		t.Errorf("NewSink = %v, want both problems at once", err)
	}
}

func TestTimesOfTheGroupThatCannotGoTogetherAreRefusedAtTheOneThatIsGiven(t *testing.T) {
	for _, tt := range []struct {
		name  string
		given map[string]string
		at    string // nothing: they can go together
	}{
		{"a session no longer than a heartbeat", map[string]string{"session.timeout.ms": "3000"}, "session.timeout.ms"},
		{"a heartbeat as long as a session", map[string]string{"heartbeat.interval.ms": "45000", "max.poll.interval.ms": "100000"}, "heartbeat.interval.ms"},
		{"a rebalance of two heartbeats", map[string]string{"max.poll.interval.ms": "6000"}, "max.poll.interval.ms"},
		{"heartbeats of half a rebalance", map[string]string{"heartbeat.interval.ms": "30000"}, "heartbeat.interval.ms"},
		{"a rebalance longer than two heartbeats", map[string]string{"max.poll.interval.ms": "6001"}, ""},
		{"a short rebalance with quick heartbeats", map[string]string{"max.poll.interval.ms": "1000", "heartbeat.interval.ms": "300"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := kafka.Connection{Brokers: []string{"h:1"}, Options: tt.given}
			_, err := kafka.NewSource(kafka.SourceConfig{Connection: conn, Topics: []string{"in"}, Group: "g"}, nil)
			at := ""
			if k, ok := errors.AsType[*kafka.KeyError](err); ok {
				at = k.Key
			}
			if tt.at != "" {
				tt.at = fmt.Sprintf("options[%q]", tt.at)
			}
			if at != tt.at || (err == nil) != (tt.at == "") {
				t.Errorf("%v: refused at %q: %v, want at %q", tt.given, at, err, tt.at)
			}
		})
	}
}

// What the table takes, the library takes; it would refuse with names of its own, and only the first.
func TestTheBoundsOfEachOptionAreThoseOfTheLibrary(t *testing.T) {
	group := map[string]string{"heartbeat.interval.ms": "100"} // shorter than any session
	for name, values := range map[string][]string{
		"connections.max.idle.ms": {"1000", "900000"}, "metadata.max.age.ms": {"100", "3600000"}, "request.timeout.ms": {"100", "900000"},
		"fetch.max.bytes": {"1024", "1073741824"}, "fetch.max.wait.ms": {"10", "2147483647"}, "fetch.min.bytes": {"1", "1073741824"},
		"max.partition.fetch.bytes": {"1024", "1073741824"}, "max.poll.interval.ms": {"1000", "2147483647"},
		"session.timeout.ms": {"1000", "2147483647"}, "linger.ms": {"0", "60000"}, "max.request.size": {"1024", "1073741824"},
		"buffer.memory": {"65536", "1099511627776"}, "client.id": {strings.Repeat("i", 256)}, "client.rack": {strings.Repeat("r", 512)},
	} {
		for i, v := range values {
			options := maps.Clone(group)
			options[name] = v
			conn := kafka.Connection{Brokers: []string{"h:1"}, Options: options}
			if _, err := kafka.NewSource(kafka.SourceConfig{Connection: conn, Topics: []string{"in"}, Group: "g"}, nil); err != nil {
				t.Errorf("%s=%.20s for a source: %v", name, v, err)
			}
			if _, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "out"}, nil); err != nil {
				t.Errorf("%s=%.20s for a sink: %v", name, v, err)
			}
			over := v + "0"
			if i == 0 && len(values) > 1 {
				over = "-1"
			}
			if err := kafka.CheckOption(kafka.SinkSide, name, over); err == nil {
				t.Errorf("%s=%.20s was taken", name, over)
			}
		}
	}
}

func TestAnOptionOfTheOtherSideIsTakenAndSaidToHaveNoEffect(t *testing.T) {
	c, _, _ := fake(t, 1, kfake.SeedTopics(1, "out"))
	const said = "option has no effect here"
	r := open(t, c, func(cfg *kafka.SourceConfig) {
		cfg.Options = map[string]string{"linger.ms": "5", "fetch.min.bytes": "1"}
	})
	if r.log.count(said) != 1 || r.log.count("option=linger.ms given_to=source belongs_to=sink") != 1 {
		t.Errorf("the source said %q", r.log.text.String())
	}
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) {
		cfg.Options = map[string]string{"fetch.max.bytes": "2048", "client.id": "me"}
	})
	if w.log.count(said) != 1 || w.log.count("option=fetch.max.bytes given_to=sink belongs_to=source") != 1 {
		t.Errorf("the sink said %q", w.log.text.String())
	}
	if err := kafka.CheckOption(kafka.SourceSide, "linger.ms", "soon"); err == nil {
		t.Error("a bad value was taken")
	}
}
