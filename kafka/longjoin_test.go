//go:build synctests

package kafka_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

// patientConn hands on the answer to a JoinGroup after a while, as a group answers that waits for another member.
type patientConn struct {
	net.Conn
	takes *atomic.Int64
	held  *atomic.Int32
	joins atomic.Bool
}

func (c *patientConn) Write(b []byte) (int, error) {
	if len(b) > 6 && c.takes.Load() > 0 && binary.BigEndian.Uint16(b[4:]) == uint16(kmsg.JoinGroup) {
		c.joins.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *patientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.joins.Swap(false) {
		c.held.Add(1)
		wait(time.Duration(c.takes.Swap(0)))
	}
	return n, err
}

// It runs with the build tag synctests alone; see tagged.
//
// The library commits nothing during a rebalance. Where that takes longer than brokers leave a transaction open, the
// transaction must be aborted before, else this worker is fenced off by the brokers' own abort.
func TestATransactionOutlivesARebalanceThatTakesLonger(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		var takes atomic.Int64
		var held atomic.Int32
		conn := kafka.Connection{
			Brokers: c.ListenAddrs(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				inner, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return &patientConn{Conn: inner, takes: &takes, held: &held}, nil
			},
		}
		from, at := conn, conn
		from.Options = map[string]string{"session.timeout.ms": "200000", "heartbeat.interval.ms": "1000"}
		at.Options = map[string]string{kafka.TransactionTimeout: "20000"}
		log, cancel, ended := inTransactions(t, from, at)
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(dial))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for i := range 30 {
			if i == 10 {
				takes.Store(int64(50 * time.Second))
				refuse(c, kmsg.Heartbeat, kerr.RebalanceInProgress, 1)
				wait(2 * time.Second)
			}
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			wait(4 * time.Second)
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
		if held.Load() == 0 {
			t.Error("no rebalance took long")
		}
		if log.count("as in a long rebalance") == 0 {
			t.Error("nothing is said of it")
		}
		if t.Failed() {
			t.Log(log.text.String())
		}
	}, kfake.SeedTopics(1, "out"))
}
