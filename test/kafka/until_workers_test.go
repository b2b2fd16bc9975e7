//go:build unix

package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// Three workers read a range together, and one is killed midway: the others take over and end well, all of the range and
// nothing behind it is there, and a further run finds nothing left.
func TestABoundedReadOfWorkersOfWhichOneIsKilledEndsWithAllOfIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		set  func(instance string) []string
		once bool
	}{
		{name: "plain", file: suiteFile, set: func(string) []string { return nil }},
		{name: "repartition", file: repartitionFile, set: func(string) []string { return nil }},
		{name: "exactly_once", file: suiteFile, set: once, once: true},
		{name: "repartition and exactly_once", file: repartitionFile, set: once, once: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newSuite(t, shared.one(t), setup{partitions: 6, file: tt.file, delay: time.Second, limit: 100})
			maker := job.NewMaker(t, 1, 0)
			u.events = maker.Load(t, u.c.Client, u.input, rounds(1500, 6000), func(i int) int { return i % u.setup.keys }, 0)
			var err error
			u.until, err = job.Ends(t.Context(), u.c.Admin, u.input)
			must(t, err)
			var workers []*worker
			for _, instance := range []string{"a", "b", "c"} {
				workers = append(workers, u.startKept(append(tt.set(instance), "source.kafka.until=latest", "workers=4")...))
			}
			var way *passage
			if u.through() {
				way = u.follow()
			}
			for _, w := range workers {
				u.working(w)
			}
			u.api.Take(20 * time.Millisecond)                                       // nobody was to come to the end before all had a part in it
			maker.Load(t, u.c.Client, u.input, 50, func(i int) int { return i }, 0) // too late; read would not know them
			u.progress(len(u.events) / 5)
			u.rounds = 1
			u.crash(workers[1])
			for _, w := range []*worker{workers[0], workers[2]} {
				if u.restKept(w); !strings.Contains(w.Log(), "all is read up to the end") {
					t.Errorf("%s ended without saying that all is read", w.Name)
				}
			}
			u.checkCommits()
			again := u.startKept(append(tt.set("b"), "source.kafka.until=latest")...)
			if u.restKept(again); !strings.Contains(again.Log(), "nothing is left to read") {
				t.Errorf("a further run ended without saying that nothing is left:\n%s", again.Log())
			}
			waitFor(t, "the transaction that the killed worker had left open has timed out", func() bool { // it hides what came behind it
				stable, err := u.c.Admin.ListCommittedOffsets(t.Context(), u.output)
				must(t, err)
				all, err := u.c.Admin.ListEndOffsets(t.Context(), u.output)
				must(t, err)
				return fmt.Sprint(stable.Offsets()) == fmt.Sprint(all.Offsets())
			})
			allowed := u.caused(taken)
			if u.through() {
				allowed = func(b books, kept []commit) int { return way.explained(u, b, kept) }
			}
			if tt.once {
				allowed = nothing
			}
			u.checkSettled(allowed)
		})
	}
}

// The last records of a topic may be tombstones that compaction takes away, or of a transaction that was aborted, and
// nothing may follow them: the end is met all the same.
func TestABoundedReadEndsWhereNoRecordIsLeftAtItsEnd(t *testing.T) {
	c := shared.one(t)
	ctx := within(t, 2*time.Minute)
	makeTopic(t, c, "tail.compacted", 1, "cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.01", "max.compaction.lag.ms=100", "delete.retention.ms=0")
	makeTopic(t, c, "tail.aborted", 1)
	plain, err := kgo.NewClient(kgo.SeedBrokers(c.Direct()...), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	must(t, err)
	defer plain.Close()
	write := func(topic, key string, value []byte, age time.Duration) {
		must(t, plain.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(key), Value: value, Timestamp: time.Now().Add(-age)}).FirstErr())
	}
	for i := range 6 {
		write("tail.compacted", fmt.Sprint(i), []byte(`{"n":1}`), time.Hour)
	}
	pause(t, 200*time.Millisecond) // a segment is closed by what is written after its time
	for i := range 6 {
		write("tail.compacted", fmt.Sprint(i), nil, time.Hour)
	}
	for i := range 3 {
		pause(t, 200*time.Millisecond)
		write("tail.compacted", "5", nil, time.Duration(3-i)*time.Minute)
	}
	tx, err := kgo.NewClient(kgo.SeedBrokers(c.Direct()...), kgo.TransactionalID("tail"))
	must(t, err)
	defer tx.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryAbort} {
		must(t, tx.BeginTransaction())
		must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: "tail.aborted", Value: []byte(`{"n":1}`)}).FirstErr())
		must(t, tx.EndTransaction(ctx, end))
	}
	// The broker's cleaner comes when it likes: the read has to end in either case.
	var left []cluster.Record
	for range 30 {
		left, err = c.ReadBack(ctx, "tail.compacted", cluster.ReadOptions{})
		must(t, err)
		if len(left) <= 2 {
			break
		}
		pause(t, time.Second)
	}
	t.Logf("%d of 15 records are left", len(left))
	for _, topic := range []string{"tail.compacted", "tail.aborted"} {
		for _, isolation := range []string{"read_committed", "read_uncommitted"} {
			group := topic + "-" + isolation
			got, log := bounded(t, c, topic, group, `source.kafka.options["isolation.level"]=`+isolation)
			ends, err := job.Ends(ctx, c.Admin, topic)
			must(t, err)
			if at, end := offset(t, c, group, topic, 0), ends[0]; at != end {
				t.Errorf("%s is committed to %d, want its end %d; read %q and said\n%s", group, at, end, got, log)
			}
		}
	}
}
