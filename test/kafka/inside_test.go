//go:build unix

package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// inside is a pipeline that runs inside the test, so that what it says and thinks can be looked at.
type inside struct {
	t    *testing.T
	runs *streammanager.Supervisor
	reg  *prometheus.Registry
	stop func() error
	done chan struct{} // closed at its end

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

func (in *inside) Write(b []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.log.Write(b)
}

func (in *inside) said(part string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return strings.Count(in.log.String(), part)
}

// places are the topics and the group of a test, with names of their own.
type places struct {
	in, out, errors, group string
	books                  *ledger
}

var placed atomic.Int64

func newPlaces() places {
	name := fmt.Sprintf("inside-%d", placed.Add(1))
	return places{name + "-in", name + "-out", name + "-errors", name, &ledger{}}
}

func makeTopic(t *testing.T, c *cluster.Cluster, topic string, partitions int32, configs ...string) {
	t.Helper()
	settings := map[string]*string{}
	for _, s := range configs {
		name, value, _ := strings.Cut(s, "=")
		settings[name] = &value
	}
	waitFor(t, "topic "+topic+" is made", func() bool { // one that was deleted may linger
		made, err := c.Admin.CreateTopic(t.Context(), partitions, -1, settings, topic)
		return errors.Join(err, made.Err) == nil
	})
}

func deleteTopic(t *testing.T, c *cluster.Cluster, topic string) {
	t.Helper()
	gone, err := c.Admin.DeleteTopic(t.Context(), topic)
	must(t, errors.Join(err, gone.Err))
	c.Client.PurgeTopicsFromClient(topic)
}

// put writes values to a partition, with keys of that partition in turn.
func put(t *testing.T, c *cluster.Cluster, topic string, partition int32, values ...string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Direct()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))
	must(t, err)
	defer client.Close()
	for i, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "%d-%d", partition, i%5), Value: []byte(v)}
		must(t, client.ProduceSync(within(t, patience), r).FirstErr())
	}
}

// numbers returns JSON numbers from, from+1, … as text.
func numbers(from, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(from + i)
	}
	return all
}

// written returns the values of a topic.
func written(t *testing.T, c *cluster.Cluster, topic string) map[string]int {
	t.Helper()
	records, err := c.ReadBack(t.Context(), topic, cluster.ReadOptions{Committed: true})
	must(t, err)
	got := map[string]int{}
	for _, r := range records {
		got[string(r.Value)]++
	}
	return got
}

// run starts a pipeline that passes events on as they are, with overrides. When it ends, at the end of the test at the
// latest, the ledger compares what it has counted to what the broker has.
func (p places) run(t *testing.T, c *cluster.Cluster, set ...string) *inside {
	t.Helper()
	return p.runAs(t, c, "", set...)
}

func (p places) runAs(t *testing.T, c *cluster.Cluster, user string, set ...string) *inside {
	t.Helper()
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := fmt.Sprintf(`
name: %s
kafka: %s
source:
  kafka:
    topics: [%s]
    options: {session.timeout.ms: 6000, heartbeat.interval.ms: 250, metadata.max.age.ms: 1000}
commit_interval: 100ms
shutdown_timeout: 10s
restart: {initial: 100ms, max: 1s}
sink:
  kafka: {topic: %s}
error_sink:
  kafka: {topic: %s}
`, p.group, c.Connection(user), p.in, p.out, p.errors)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	loaded, err := pipeline.Load(file, pipeline.Options{Set: set})
	must(t, err)
	in := &inside{t: t, reg: prometheus.NewRegistry()}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(in, t.Output()), nil))
	in.runs, err = loaded.Supervise(pipeline.Deps{Logger: log, Metrics: in.reg})
	must(t, err)
	p.books.open(t, c, p, in)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var failed error
	in.done = make(chan struct{})
	go func() { failed = in.runs.Run(ctx); close(in.done) }()
	t.Cleanup(func() { stop(); <-in.done })
	var once sync.Once
	in.stop = func() error {
		once.Do(func() {
			p.books.settle()
			stop()
			<-in.done
			p.books.close(in)
		})
		return failed
	}
	t.Cleanup(func() { _ = in.stop() })
	return in
}

func (in *inside) ended() bool {
	select {
	case <-in.done:
		return true
	default:
		return false
	}
}

// ready waits until all is well.
func (in *inside) ready() {
	in.t.Helper()
	waitFor(in.t, "the pipeline is ready", func() bool { return in.runs.Status().Ready == nil })
}

// unready waits until it says that something is wrong, in these words.
func (in *inside) unready(words ...string) {
	in.t.Helper()
	waitFor(in.t, fmt.Sprintf("the pipeline is not ready and says %q", words), func() bool {
		err := in.runs.Status().Ready
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				return false
			}
		}
		return true
	})
}

// emitted waits until so many events have left.
func (in *inside) emitted(n int64) {
	in.t.Helper()
	waitFor(in.t, fmt.Sprintf("%d events have left", n), func() bool { return in.runs.Status().Emitted >= n })
}

// counted returns the sum of the series of a counter that have the labels, each written name=value.
func (in *inside) counted(name string, labels ...string) float64 {
	in.t.Helper()
	found, err := in.reg.Gather()
	must(in.t, err)
	return job.Gathered(found).Value(name, labels...)
}

// offset returns what a group has committed, -1 for nothing.
func offset(t *testing.T, c *cluster.Cluster, group, topic string, partition int32) int64 {
	t.Helper()
	found, err := c.Admin.FetchOffsetsForTopics(t.Context(), group, topic)
	if err != nil {
		return -1
	}
	o, _ := found.Lookup(topic, partition)
	return o.At
}
