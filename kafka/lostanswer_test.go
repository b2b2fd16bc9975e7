//go:build synctests

package kafka_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// forgetfulConn carries requests to the broker, and ends when the answer to an EndTxn comes back while lost is set.
type forgetfulConn struct {
	net.Conn
	lost  *atomic.Bool
	heard *atomic.Int32
	ends  atomic.Bool
}

func (c *forgetfulConn) Write(b []byte) (int, error) {
	if len(b) > 6 && c.lost.Load() && binary.BigEndian.Uint16(b[4:]) == uint16(kmsg.EndTxn) {
		c.ends.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *forgetfulConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.ends.Load() {
		c.heard.Add(1)
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// It runs with the build tag synctests alone; see tagged.
//
// The brokers commit a transaction, and no answer to that ever comes: the group's offsets say that it was.
func TestACommitWhoseAnswerNeverComesIsNotWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		var lost atomic.Bool
		var heard atomic.Int32
		conn := kafka.Connection{
			Brokers: c.ListenAddrs(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				inner, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return &forgetfulConn{Conn: inner, lost: &lost, heard: &heard}, nil
			},
		}
		log, cancel, ended := inTransactions(t, conn, conn)
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(dial))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for i := range 30 {
			lost.Store(i == 10)
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			wait(3 * time.Second)
			if i == 10 {
				wait(5 * time.Minute)
			}
		}
		wait(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		seen := map[string]int{}
		for _, r := range allOf(t, c, dial, "out") {
			seen[string(r.Value)]++
		}
		for i := range 30 {
			if n := seen[fmt.Sprint(i)]; n != 1 {
				t.Errorf("event %d is seen %d times", i, n)
			}
		}
		if heard.Load() == 0 {
			t.Error("no answer was lost")
		}
		if t.Failed() {
			t.Log(log.text.String())
		}
	}, kfake.SeedTopics(1, "out"))
}

// allOf reads what is committed in a topic of one partition.
func allOf(t *testing.T, c *kfake.Cluster, dial dialer, topic string) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(dial), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var all []*kgo.Record
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		got := cl.PollFetches(ctx).Records()
		cancel()
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
	}
}

// inTransactions runs a stream from in to out in transactions, which cancel ends.
func inTransactions(t *testing.T, source, sink kafka.Connection) (log *lines, cancel context.CancelFunc, ended <-chan error) {
	t.Helper()
	log = &lines{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	tx, err := kafka.NewTransaction(kafka.TransactionConfig{
		ID: "one", Source: kafka.SourceConfig{Connection: source, Topics: []string{"in"}, Group: "g"},
		Sinks: []*kafka.SinkConfig{{Connection: sink, Topic: "out"}},
	}, logger)
	if err != nil {
		t.Fatal(err)
	}
	s, err := streammanager.New(streammanager.Config{Name: "g", Logger: logger}).From(tx.Source()).To(tx.Sink(0)).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return log, cancel, done
}
