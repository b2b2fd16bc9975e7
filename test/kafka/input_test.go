//go:build unix

package kafka_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// Input and output are compressed in each way that there is, and the brokers have them so.
func TestEveryCompressionIsReadAndWritten(t *testing.T) {
	c := shared.one(t)
	for id, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			u := newSuite(t, c, setup{codec: codec, backlog: rounds(300, 2000), size: func(i int) int { return i % 7 * 1000 }, same: true})
			u.begin()
			w := u.start(`sink.kafka.options["compression.type"]=` + codec)
			u.working(w)
			u.progress(300)
			u.rounds++
			for range rounds(0, 5) {
				u.rounds++
				u.working(w)
				u.stop(w)
				w = u.start(`sink.kafka.options["compression.type"]=` + codec)
				u.progress(100)
			}
			u.check(0)
			for _, topic := range []string{u.input, u.output} {
				if found := compressions(t, c, topic); len(found) != 1 || found[0] != uint8(id) {
					t.Errorf("%s has batches of the compressions %v, want %d alone", topic, found, id)
				}
			}
		})
	}
}

// seen notes how batches are compressed.
type seen struct {
	mu     sync.Mutex // guards codecs
	codecs map[uint8]bool
}

func (s *seen) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codecs[m.CompressionType] = true
}

// compressions returns how the batches of topic are compressed, by Kafka's numbers.
func compressions(t *testing.T, c *cluster.Cluster, topic string) []uint8 {
	t.Helper()
	s := &seen{codecs: map[uint8]bool{}}
	job.EachRecord(t, c.Admin, c.Direct(), topic, func(*kgo.Record) {}, kgo.WithHooks(s))
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []uint8
	for codec := range s.codecs {
		found = append(found, codec)
	}
	slices.Sort(found)
	return found
}

// What a transaction wrote is read once it is committed, and never where it was aborted. Its markers are no events, and
// offsets are committed beyond them.
func TestATransactionalInputIsReadWithoutWhatWasAborted(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{})
	client, err := kgo.NewClient(kgo.SeedBrokers(u.c.Direct()...), kgo.TransactionalID(u.input), kgo.ProducerLinger(0))
	must(t, err)
	defer client.Close()
	random := rand.New(rand.NewPCG(3, 4))
	good, bad := job.NewMaker(t, 1, 0), job.NewMaker(t, 2, 1_000_000) // check fails for an event of the latter
	w := u.start()
	for i := range rounds(30, 400) {
		u.rounds++
		must(t, client.BeginTransaction())
		aborted := random.IntN(3) == 0
		for range 1 + random.IntN(60) {
			if aborted {
				_, _, r := bad.Make(u.input, bad.AnyOf(u.setup.keys), 0)
				client.Produce(t.Context(), r, nil)
			} else {
				u.put(client, good)
			}
		}
		must(t, client.Flush(t.Context()))
		must(t, client.EndTransaction(t.Context(), kgo.TransactionEndTry(!aborted)))
		if i%10 == 9 {
			u.working(w)
			u.stop(w)
			w = u.start()
		}
	}
	u.check(0)
}

// put writes an event that is in the books.
func (u *suite) put(client *kgo.Client, maker *job.Maker) {
	id, origin, record := maker.Make(u.input, maker.AnyOf(u.setup.keys), 0)
	u.mu.Lock()
	u.events = append(u.events, origin)
	u.mu.Unlock()
	client.Produce(context.WithoutCancel(u.t.Context()), record, func(r *kgo.Record, err error) {
		if err != nil {
			u.t.Errorf("writing event %d: %v", id, err)
			return
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.events[id].Partition, u.events[id].Offset = r.Partition, r.Offset
	})
}

// Of a compacted topic most records are gone. Their offsets are holes, for which nobody waits.
func TestACompactedInputIsReadToItsEndOverItsHoles(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{keys: 40, configs: map[string]string{
		"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100",
	}})
	maker := job.NewMaker(t, 1, 0)
	for range rounds(2, 15) {
		u.rounds++
		from := u.written()
		for range 1000 {
			u.put(u.c.Client, maker)
		}
		must(t, u.c.Client.Flush(t.Context()))
		u.compact(maker, from)
		w := u.start()
		u.settle()
		u.stop(w)
		u.noteGone(from)
	}
	if len(u.gone) < u.written()/2 {
		t.Errorf("%d of %d events are gone, want most: the topic was not compacted", len(u.gone), u.written())
	}
	u.start()
	u.check(0)
}

// compact has most events from a number on taken away. What the cleaner has begun it ends later.
func (u *suite) compact(maker *job.Maker, from int) {
	u.t.Helper()
	u.setInput("cleanup.policy", "compact")
	pause(u.t, 200*time.Millisecond) // segment.ms: the next record begins a segment, and those before can be compacted
	for range 100 {
		u.put(u.c.Client, maker)
	}
	must(u.t, u.c.Client.Flush(u.t.Context()))
	waitFor(u.t, "the input is compacted", func() bool { return len(u.missing(from)) > (len(u.events)-from)/2 })
	u.setInput("cleanup.policy", "delete") // what the cleaner leaves stays
}

// noteGone notes which events from a number on the input has no more, once it was read: all that it has now were there.
func (u *suite) noteGone(from int) {
	u.t.Helper()
	for _, id := range u.missing(from) {
		u.gone[id] = true
	}
}

// missing returns the events from a number on that the input does not have.
func (u *suite) missing(from int) []int {
	u.t.Helper()
	left := job.Records(u.t, u.c.Admin, u.c.Direct(), u.input)
	var missing []int
	for id := from; id < len(u.events); id++ {
		if e := u.events[id]; !left[job.Place{Partition: e.Partition, Offset: e.Offset}] {
			missing = append(missing, id)
		}
	}
	return missing
}

func (u *suite) setInput(name, value string) {
	u.t.Helper()
	changed, err := u.c.Admin.AlterTopicConfigs(u.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, u.input)
	must(u.t, err)
	for _, c := range changed {
		must(u.t, c.Err)
	}
}
