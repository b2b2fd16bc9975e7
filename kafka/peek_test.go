package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

func TestAPartitionIsSetGoingInsideATransactionThatIsOpenWhereThatIsRead(t *testing.T) {
	c, _, _ := fake(t, 1)
	r := open(t, c, func(cfg *kafka.SourceConfig) {
		cfg.Options = map[string]string{"heartbeat.interval.ms": "100", "metadata.max.age.ms": "200", "isolation.level": "read_uncommitted"}
	})
	r.untilHeld(t, 1)
	p := keepPolling(t, r)
	tx, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("x"), kgo.DefaultProduceTopic("in"))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"0", "1"} {
		if v == "1" {
			r.src.Client().PauseFetchPartitions(map[string][]int32{"in": {0}}) // as if the library had forgotten it
		}
		if err := tx.ProduceSync(t.Context(), kgo.StringRecord(v)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if got := p.next(t, r); got != v {
			t.Errorf("got %q, want %q", got, v)
		}
	}
}

func TestAPeekTellsRecordsFromEmptyBatches(t *testing.T) {
	batch := func(first int64, delta, records int32, body int) []byte {
		b := kmsg.RecordBatch{FirstOffset: first, Length: int32(49 + body), LastOffsetDelta: delta, NumRecords: records, Magic: 2, Records: make([]byte, body)}
		return b.AppendTo(nil)
	}
	for _, test := range []struct {
		name    string
		batches []byte
		from    int64
		want    bool
	}{
		{"nothing", nil, 0, false},
		{"a record", batch(5, 0, 1, 10), 5, true},
		{"records before it alone", batch(0, 4, 5, 10), 5, false},
		{"an empty batch", batch(5, 3, 0, 0), 5, false},
		{"a record behind an empty batch", append(batch(5, 3, 0, 0), batch(9, 0, 1, 3)...), 5, true},
		{"a batch that is cut off", batch(5, 0, 1, 100)[:70], 5, true},
		{"a head that is cut off", batch(5, 0, 1, 100)[:40], 5, false},
	} {
		if got := kafka.RecordIn(test.batches, test.from); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}
