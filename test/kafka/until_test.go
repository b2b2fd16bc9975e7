//go:build unix

package kafka_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// bounded runs the binary over a part of a topic, to its end, and returns the values it wrote and its log. What that says
// at its end is what was written, and what the broker has of the part that the group has committed.
func bounded(t *testing.T, c *cluster.Cluster, topic, group string, set ...string) (values []string, log string) {
	t.Helper()
	isolation := "read_committed"
	for _, s := range set {
		if level, ok := strings.CutPrefix(s, `source.kafka.options["isolation.level"]=`); ok {
			isolation = level
		}
	}
	before, m, commits := recordsOf(t, c, topic, isolation), job.Families(nil), 0
	part := stretchOf(t, c, group, topic, func() {
		commits = len(commitsOf(t, c, group))
		values, log, m = runBounded(t, c.Direct(), topic, group, set...)
	})
	e, least, most := endedBy(t, log), part.of(recordsOf(t, c, topic, isolation)), part.of(before)
	t.Logf("group %s has read from %v to %v, where the broker has %d records: %+v", group, part.from, part.to, most, e)
	if e.Read < least || e.Read > most { // the cleaner may take some away meanwhile
		t.Errorf("group %s has counted %d records as read, and the broker had %d there before and %d after", group, e.Read, most, least)
	}
	if e.Outputs != int64(len(values)) || e.Emitted != e.Outputs {
		t.Errorf("group %s has counted %d events as emitted and %d outputs, and wrote %d", group, e.Emitted, e.Outputs, len(values))
	}
	if want := (ended{Read: e.Read, Emitted: e.Read, Outputs: e.Read}); e != want {
		t.Errorf("group %s has ended with %+v, want %+v", group, e, want)
	}
	report.add(line{
		suite: t.Name(), rounds: 1, events: int(least), lost: int(max(least-int64(len(values)), 0)), repeated: int(max(int64(len(values))-most, 0)), keyless: true,
	})
	checkAlone(t, c, group, m, e, commits)
	return values, log
}

func runBounded(t *testing.T, brokers []string, topic, group string, set ...string) (values []string, log string, m job.Families) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.jsonl")
	text := fmt.Sprintf(`name: %s
kafka: {brokers: ["%s"]}
gateway: {listen: 127.0.0.1:0}
source: {kafka: {topics: [%s], until: latest, options: {isolation.level: read_committed}}}
sink: {file: {path: %q}}
`, group, strings.Join(brokers, `", "`), topic, out)
	began := time.Now()
	w := job.StartWorker(t, job.WorkerConfig{Binary: enricherBinary, File: overridden(t, text, set), Patience: time.Minute, Keep: true})
	m = keptMetrics(t, w)
	t.Logf("group %s took %v", group, time.Since(began).Round(time.Millisecond))
	written, err := os.ReadFile(out)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(written)), w.Log(), m
}

// The end is met where the topic ends in marks of transactions, and where compaction has taken records away; times are
// resolved by the broker.
func TestABoundedReadOfTransactionsTimesAndCompactedTopicsEnds(t *testing.T) {
	c := shared.one(t)
	ctx := within(t, 2*time.Minute)
	tx, err := kgo.NewClient(kgo.SeedBrokers(c.Direct()...), kgo.TransactionalID("until"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	defer tx.Close()
	adm := kadm.NewClient(tx)
	policy, small := "compact", "100"
	_, err = adm.CreateTopic(ctx, 2, 1, nil, "until.tx")
	must(t, err)
	_, err = adm.CreateTopic(ctx, 1, 1, map[string]*string{
		"cleanup.policy": &policy, "segment.ms": &small, "min.cleanable.dirty.ratio": ptr("0.01"), "max.compaction.lag.ms": &small,
	}, "until.compacted")
	must(t, err)

	n := 0
	batch := func(topic string, end kgo.TransactionEndTry, age time.Duration, keys ...string) {
		must(t, tx.BeginTransaction())
		for _, k := range keys {
			r := &kgo.Record{Topic: topic, Key: []byte(k), Value: fmt.Appendf(nil, `{"n":%d}`, n), Timestamp: time.Now().Add(-age)}
			n++
			must(t, tx.ProduceSync(ctx, r).FirstErr())
		}
		must(t, tx.EndTransaction(ctx, end))
	}
	batch("until.tx", kgo.TryCommit, 48*time.Hour, "a", "b") // 0 1
	batch("until.tx", kgo.TryCommit, 12*time.Hour, "a", "b") // 2 3
	batch("until.tx", kgo.TryAbort, time.Hour, "a")          // 4
	for range 3 {                                            // of 5 to 16 the newest of each key stay
		batch("until.compacted", kgo.TryCommit, 0, "a", "b", "c")
		pause(t, 300*time.Millisecond)
		batch("until.compacted", kgo.TryAbort, 0, "d")
	}

	for _, read := range []struct {
		group, topic, want string
		set                []string
	}{
		{"until-all", "until.tx", `{"n":0} {"n":1} {"n":2} {"n":3}`, nil},
		{"until-day", "until.tx", `{"n":2} {"n":3}`, []string{"source.kafka.start=-24h"}},
		{"until-yesterday", "until.tx", `{"n":0} {"n":1}`, []string{"source.kafka.until=-24h"}},
	} {
		got, log := bounded(t, c, read.topic, read.group, read.set...)
		if strings.Join(got, " ") != read.want || !strings.Contains(log, "all is read up to the end") {
			t.Errorf("%s read %q, want %s; said\n%s", read.group, got, read.want, log)
		}
		got, log = bounded(t, c, read.topic, read.group, read.set...)
		if len(got) > 0 || !strings.Contains(log, "nothing is left to read") {
			t.Errorf("%s read %q in a second run, and said\n%s", read.group, got, log)
		}
	}
	got, log := bounded(t, c, "until.compacted", "until-compacted")
	if len(got) < 3 || !strings.Contains(log, "all is read up to the end") {
		t.Errorf("read %q of a compacted topic, and said\n%s", got, log)
	}
	ends, err := adm.ListEndOffsets(ctx, "until.compacted", "until.tx")
	must(t, err)
	for _, group := range []string{"until-all", "until-compacted"} {
		found, err := adm.FetchOffsets(ctx, group)
		must(t, err)
		found.Each(func(o kadm.OffsetResponse) {
			if end, _ := ends.Lookup(o.Topic, o.Partition); o.At != end.Offset {
				t.Errorf("group %s is at %d of %s, want its end %d", group, o.At, o.Topic, end.Offset)
			}
		})
	}
}

func ptr(s string) *string { return &s }
