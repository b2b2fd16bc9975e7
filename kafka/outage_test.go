package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// dialer opens a connection.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// wire is a network that may be cut.
type wire struct {
	dial dialer

	mu    sync.Mutex // guards the rest
	cut   bool
	conns []*wireConn
	tries int // while it was cut
}

type wireConn struct {
	net.Conn
	w      *wire
	closed bool
}

func (c *wireConn) Close() error {
	c.w.mu.Lock()
	c.closed = true
	c.w.mu.Unlock()
	return c.Conn.Close()
}

func (w *wire) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	if cut {
		w.tries++
	}
	w.mu.Unlock()
	if cut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	conn, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, w: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c, nil
}

// set cuts the wire, with all that is under way on it, or mends it.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	w.cut = cut
	conns := w.conns
	w.mu.Unlock()
	if cut {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

func (w *wire) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.conns {
		if !c.closed {
			n++
		}
	}
	return n
}

// ends are a source and a sink of topic "in" over one wire.
func ends(t *testing.T, dial dialer, login *kafka.SASL) (*wire, *record, written) {
	t.Helper()
	w := &wire{dial: dial}
	conn := kafka.Connection{Brokers: []string{"127.0.0.1:9092"}, Dialer: w.DialContext, SASL: login}
	r := open(t, nil, func(cfg *kafka.SourceConfig) { cfg.Connection = conn })
	return w, r, sinkTo(t, nil, func(cfg *kafka.SinkConfig) { cfg.Connection, cfg.Topic = conn, "in" })
}

func TestSourceAndSinkGoOnSoonAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w, r, sink := ends(t, dial, nil)
		defer r.src.Close(context.Background())
		for i, outage := range []time.Duration{20 * time.Second, 10 * time.Minute} {
			before, during := fmt.Sprint("before ", i), fmt.Sprint("during ", i)
			if err := sink.send(t, streammanager.Record{Value: []byte(before)})[0]; err != nil {
				t.Fatal(err)
			}
			if got := text(r.poll(t, 1)); got != before {
				t.Fatalf("got %q, want %q", got, before)
			}
			if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: int64(2*i + 1)})); err != nil {
				t.Fatal(err)
			}
			w.set(true)
			answer := make(chan error, 1)
			sink.Produce(t.Context(), &streammanager.Record{Value: []byte(during)}, func(err error) { answer <- err })
			r.nothing(t, outage)
			select {
			case err := <-answer:
				t.Fatalf("a record that could not be written was told %v after %v at most", err, outage)
			default:
			}
			if r.src.Health() == nil || sink.Health() == nil {
				t.Errorf("in the outage the source is %v and the sink %v", r.src.Health(), sink.Health())
			}
			w.set(false)
			mended := time.Now()
			if err := <-answer; err != nil {
				t.Errorf("the record that waited was told %v", err)
			}
			if got := text(r.poll(t, 1)); got != during {
				t.Errorf("got %q, want %q", got, during)
			}
			if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: int64(2*i + 2)})); err != nil {
				t.Error(err)
			}
			if d := time.Since(mended); d > 10*time.Second {
				t.Errorf("after an outage of %v it took %v to go on", outage, d)
			}
			wait(5 * time.Second)
			if r.src.Health() != nil || sink.Health() != nil {
				t.Errorf("afterwards the source is %v and the sink %v", r.src.Health(), sink.Health())
			}
		}
		if perSecond := w.tries / (10*60 + 20); perSecond > 20 {
			t.Errorf("brokers that were away were tried %d times", w.tries)
		}
	})
}

func TestALoginIsRepeatedBeforeItEndsAndNothingIsLost(t *testing.T) {
	logins := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "p"), kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "5000"})}
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w, r, sink := ends(t, dial, &kafka.SASL{Mechanism: "SCRAM-SHA-256", Username: "u", Password: "p"})
		defer r.src.Close(context.Background())
		for i := range 300 {
			if err := sink.send(t, streammanager.Record{Value: fmt.Append(nil, i)})[0]; err != nil {
				t.Fatal(err)
			}
			if got := text(r.poll(t, 1)); got != fmt.Sprint(i) {
				t.Fatalf("got %q, want %d", got, i)
			}
			wait(100 * time.Millisecond)
		}
		if r.log.count(said)+sink.log.count(said) != 0 || r.heard() != "assigned 1" {
			t.Errorf("told %q, said %s%s", r.heard(), r.log.text.String(), sink.log.text.String())
		}
		if n := len(w.conns); n > 12 {
			t.Errorf("%d connections were opened, want that they log in again", n)
		}
	}, logins...)
}

// What lies between may drop a connection that nobody uses without a word.
func TestAConnectionThatNobodyUsesIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := &wire{dial: dial}
		sink := sinkTo(t, nil, func(cfg *kafka.SinkConfig) {
			cfg.Connection, cfg.Topic = kafka.Connection{Brokers: []string{"127.0.0.1:9092"}, Dialer: w.DialContext}, "in"
			cfg.Options = map[string]string{"metadata.max.age.ms": "600000"} // that alone would use one
		})
		for range 2 {
			if err := sink.send(t, value(1))[0]; err != nil {
				t.Fatal(err)
			}
			if w.open() == 0 {
				t.Error("no connection is open")
			}
			wait(50 * time.Second)
			if n := w.open(); n != 0 {
				t.Errorf("%d connections are open after 50 idle seconds", n)
			}
		}
	})
}

func TestARecordFollowsItsPartitionToAnotherBroker(t *testing.T) {
	c, _, _ := fake(t, 1, kfake.NumBrokers(3), kfake.SeedTopics(1, "out"))
	w := sinkTo(t, c)
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Topics, cfg.Options = []string{"out"}, nil })
	for i := range 4 {
		began := time.Now()
		if err := w.send(t, streammanager.Record{Value: fmt.Append(nil, i)})[0]; err != nil {
			t.Fatal(err)
		}
		if got := text(r.poll(t, 1)); got != fmt.Sprint(i) {
			t.Errorf("got %q, want %d", got, i)
		}
		if d := time.Since(began); d > 10*time.Second { // metadata.max.age.ms is 30 s
			t.Errorf("it took %v", d)
		}
		if err := c.MoveTopicPartition("out", 0, (c.LeaderFor("out", 0)+1)%3); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClosedSinkAnswersEveryRecord(t *testing.T) {
	c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out"))
	w := sinkTo(t, c)
	if err := w.send(t, value(1))[0]; err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs := make([]streammanager.Record, 20000)
	for _, err := range w.send(t, rs...) {
		if !errors.Is(err, kgo.ErrClientClosed) || !strings.Contains(err.Error(), `topic "out"`) || rejected(err) != "" {
			t.Fatalf("a record was told %v", err)
		}
	}
}
