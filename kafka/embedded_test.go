package kafka_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

func embedded(t *testing.T, cfg kafka.EmbeddedConfig) *kafka.Embedded {
	t.Helper()
	e, err := kafka.StartEmbedded(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// through reaches the embedded broker.
func through(e *kafka.Embedded) func(*kafka.SourceConfig) {
	return func(cfg *kafka.SourceConfig) {
		cfg.Connection = reaching(e)
		for name, v := range quick {
			cfg.Options[name] = v
		}
	}
}

// fill writes records to topic "in" of the embedded broker.
func fill(t *testing.T, e *kafka.Embedded, values ...string) {
	t.Helper()
	w := sinkTo(t, nil, func(cfg *kafka.SinkConfig) { cfg.Connection, cfg.Topic = reaching(e), "in" })
	for _, v := range values {
		if err := w.send(t, streammanager.Record{Key: []byte("k"), Value: []byte(v)})[0]; err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheEmbeddedBrokerGoesOnFromItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when", "needed")
	cfg := kafka.EmbeddedConfig{Topics: map[string]int32{"in": 2}, DataDir: dir}
	e := embedded(t, cfg)
	fill(t, e, "a", "b", "c")
	r := open(t, nil, through(e))
	got := r.poll(t, 3)
	if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in", Partition: got[0].Partition}: 2})); err != nil {
		t.Fatal(err)
	}
	r.src.Close(t.Context())
	crashed := filepath.Join(t.TempDir(), "crashed")
	if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	e.Close()
	for name, at := range map[string]string{"closed": dir, "killed": crashed} {
		t.Run(name, func(t *testing.T) {
			cfg.DataDir = at
			e := embedded(t, cfg)
			fill(t, e, "d")
			r := open(t, nil, through(e))
			r.untilHeld(t, 2)
			if got := text(r.poll(t, 2)); got != "c d" {
				t.Errorf("went on with %q, want what was not committed and what came later", got)
			}
		})
	}
}

func TestTheEmbeddedBrokerWithoutADirectoryBeginsAnew(t *testing.T) {
	cfg := kafka.EmbeddedConfig{Topics: map[string]int32{"in": 1}}
	e := embedded(t, cfg)
	fill(t, e, "a")
	e.Close()
	e = embedded(t, cfg)
	fill(t, e, "b")
	if got := text(open(t, nil, through(e)).poll(t, 1)); got != "b" {
		t.Errorf("got %q", got)
	}
}

func TestATopicOfTheEmbeddedBrokerComesIntoBeingWhenItIsUsed(t *testing.T) {
	e := embedded(t, kafka.EmbeddedConfig{Topics: map[string]int32{"in": 0}, Partitions: 3})
	if err := e.CreateTopic("in", 5); err != nil {
		t.Errorf("a topic that exists: %v", err)
	}
	r := open(t, nil, through(e), func(cfg *kafka.SourceConfig) { cfg.Topics = []string{"in", "unheard"} })
	r.untilHeld(t, 6)
	if err := e.CreateTopic("no/name", 1); err == nil || !strings.Contains(err.Error(), `creating topic "no/name"`) {
		t.Errorf("CreateTopic = %v", err)
	}
}

func TestTheEmbeddedBrokerKeepsToLoopbackAndSaysWhyItCannotStart(t *testing.T) {
	e := embedded(t, kafka.EmbeddedConfig{})
	for _, addr := range e.Addrs() {
		if host, _, err := net.SplitHostPort(addr); err != nil || !net.ParseIP(host).IsLoopback() {
			t.Errorf("it listens on %q", addr)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, cfg := range map[string]kafka.EmbeddedConfig{
		"a port that is taken":         {Port: taken.Addr().(*net.TCPAddr).Port},
		"a file in place of directory": {DataDir: file(t, "text")},
		"no name of a topic":           {Topics: map[string]int32{"no/name": 1}},
	} {
		if e, err := kafka.StartEmbedded(cfg); err == nil {
			e.Close()
			t.Errorf("%s: it started", name)
		} else if !strings.Contains(err.Error(), "embedded broker") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two that write to one directory destroy its log.
func TestADirectoryServesOneEmbeddedBrokerAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := kafka.EmbeddedConfig{DataDir: dir}
	first := embedded(t, cfg)
	second, err := kafka.StartEmbedded(cfg)
	if err == nil {
		second.Close()
	}
	want := fmt.Sprintf("data_dir %q is in use by another process: stop it, or give both files to one enricher run", dir)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a second broker in the directory: %v, want %q", err, want)
	}
	first.Close()
	embedded(t, cfg)
}

// reaching returns how a client reaches the broker, which makes topics for it.
func reaching(e *kafka.Embedded) kafka.Connection {
	return kafka.Connection{Brokers: e.Addrs(), Options: map[string]string{"allow.auto.create.topics": "true"}}
}
