package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// openTransaction starts a source in transactions, which record looks at.
func openTransaction(t *testing.T, c *kfake.Cluster, id string) (*record, streammanager.Source) {
	t.Helper()
	conn := kafka.Connection{Brokers: c.ListenAddrs(), Options: quick}
	r := &record{log: &lines{}, starts: map[tp]int64{}, finished: map[tp][]streammanager.Range{}, changed: make(chan struct{})}
	tx, err := kafka.NewTransaction(kafka.TransactionConfig{
		ID: id, Source: kafka.SourceConfig{Connection: conn, Topics: []string{"in"}, Group: "g"},
		Sinks: []*kafka.SinkConfig{{Connection: kafka.Connection{Brokers: conn.Brokers}, Topic: "out"}},
	}, slog.New(slog.NewTextHandler(r.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	src, sink := tx.Source(), tx.Sink(0)
	if err := errors.Join(sink.Open(t.Context()), src.Open(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close(context.Background()); _ = sink.Close(context.Background()) })
	return r, src
}

// The library tells of the first partitions that are taken away before a transaction ends, and of no further ones.
func TestPartitionsThatAreTakenAwayOneAfterTheOtherWithinATransactionAreAllLetGo(t *testing.T) {
	c := newCluster(t)
	r, src := openTransaction(t, c.fake, "one")
	eventually(t, "the partitions are assigned", func() bool { return len(r.held()) == 4 })
	c.produce(0, 40)
	if _, err := src.Poll(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	if err := src.(streammanager.Transactor).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 4; n++ {
		next := open(t, c.fake)
		eventually(t, fmt.Sprintf("the worker that is number %d has its share, and the first the rest", n), func() bool {
			return len(next.held()) >= 4/n && len(r.held()) <= (4+n-1)/n
		})
	}
	eventually(t, "the first holds one", func() bool { return len(r.held()) == 1 })
	kept, err := src.(streammanager.Transactor).End(t.Context(), true, nil)
	if err != nil || kept {
		t.Errorf("End = %v, %v after partitions were taken away, want the transaction aborted", kept, err)
	}
}
