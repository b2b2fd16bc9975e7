package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// clients are a source and two sinks of one pipeline, with its logger.
func clients(t *testing.T, dial dialer) (src *kafka.Source, sink *kafka.Sink, log *lines) {
	t.Helper()
	return clientsOf(t, []string{"127.0.0.1:9092"}, dial)
}

func clientsOf(t *testing.T, brokers []string, dial dialer) (src *kafka.Source, sink *kafka.Sink, log *lines) {
	t.Helper()
	log = &lines{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	conn := kafka.Connection{Brokers: brokers, Dialer: dial, Voice: new(kafka.Voice)}
	src, err := kafka.NewSource(kafka.SourceConfig{Connection: conn, Topics: []string{"in"}, Group: "g"}, logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Open(t.Context(), &record{log: log, src: src, starts: map[tp]int64{}, finished: map[tp][]streammanager.Range{}, changed: make(chan struct{})}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close(context.Background()) })
	for range 2 {
		out, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "in"}, logger)
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = out.Close(context.Background()) })
		sink = out
	}
	return src, sink, log
}

// saidOnly fails the test unless the log says each of the parts once, and no other trouble.
func saidOnly(t *testing.T, log *lines, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if n := log.count(part); n != 1 {
			t.Errorf("%q was said %d times", part, n)
		}
	}
	if n := log.count(said); n != len(parts) {
		t.Errorf("trouble was said %d times, want %d:\n%s", n, len(parts), log.text.String())
	}
}

func TestTheClientsOfAPipelineSayOnceWhatTheyShare(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := &wire{dial: dial, cut: true}
		src, sink, log := clients(t, w.DialContext)
		wait(time.Minute)
		saidOnly(t, log, "connecting to broker 127.0.0.1:9092")
		w.set(false)
		wait(time.Minute)
		if n := log.count("trouble healed"); n != 1 || src.Health() != nil || sink.Health() != nil {
			t.Errorf("it was said to have healed %d times, the source is %v and the sink %v", n, src.Health(), sink.Health())
		}
		wait(300 * time.Millisecond) // past what happens every second
		w.set(true)
		wait(time.Minute)
		if n := log.count(said); n != 2 {
			t.Errorf("after another outage trouble was said %d times in all:\n%s", n, log.text.String())
		}
		w.set(false)
		wait(time.Minute)
		if n := log.count("trouble healed"); n != 2 {
			t.Errorf("two outages were said to have healed %d times:\n%s", n, log.text.String())
		}
	})
}

func TestABrokerThatStaysAwayHidesNothingThatHappensLater(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := &wire{dial: dial}
		var up atomic.Bool
		_, _, log := clientsOf(t, []string{"127.0.0.1:1", "127.0.0.1:9092"}, func(ctx context.Context, network, addr string) (net.Conn, error) {
			switch {
			case addr == "127.0.0.1:1":
				return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
			case !up.Load():
				return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route to host")}
			}
			return w.DialContext(ctx, network, addr)
		})
		wait(time.Minute)
		saidOnly(t, log, "about=127.0.0.1:1 ", "no route to host")
		up.Store(true)
		wait(time.Minute + 300*time.Millisecond)
		w.set(true)
		wait(time.Minute)
		saidOnly(t, log, "about=127.0.0.1:1 ", "no route to host", "about=localhost:9092")
	})
}

// Those of another pipeline are another matter.
func TestEachPipelineSaysWhatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := &wire{dial: dial, cut: true}
		for range 2 {
			_, _, log := clients(t, w.DialContext)
			wait(time.Minute)
			saidOnly(t, log, "connecting to broker 127.0.0.1:9092")
		}
	})
}

// A pipeline may have its source in one cluster and its sink in another.
func TestTheTroubleOfOneClusterHidesNoneOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := &wire{dial: dial, cut: true}
		log, voice := &lines{}, new(kafka.Voice)
		for _, brokers := range [][]string{{"127.0.0.1:9092"}, {"127.0.0.1:9092", "127.0.0.1:9092"}} {
			conn := kafka.Connection{Brokers: brokers, Dialer: w.DialContext, Voice: voice}
			out, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "in"}, slog.New(slog.NewTextHandler(log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if err := out.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = out.Close(context.Background()) })
		}
		wait(time.Minute)
		if n := log.count("connecting to broker 127.0.0.1:9092"); n != 2 {
			t.Errorf("the trouble of two clusters was said %d times:\n%s", n, log.text.String())
		}
		w.set(false)
		wait(time.Minute)
		if n := log.count("trouble healed"); n != 2 {
			t.Errorf("it was said to have healed %d times:\n%s", n, log.text.String())
		}
	})
}

func TestAClientThatIsClosedKeepsNoTroubleOpen(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := &wire{dial: dial, cut: true}
		src, _, log := clients(t, w.DialContext)
		wait(time.Minute)
		src.Close(t.Context())
		w.set(false)
		wait(time.Minute)
		if n := log.count("trouble healed"); n != 1 {
			t.Errorf("it was said to have healed %d times:\n%s", n, log.text.String())
		}
	})
}

func TestSomebodyWhoTakesConnectionsAndSaysNothingIsNamedWithTheCure(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, _ dialer) {
		silent := func(context.Context, string, string) (net.Conn, error) { return answering(t.Context(), ""), nil }
		src, sink, log := clients(t, silent)
		wait(2 * time.Minute)
		const cure = "no answer from 127.0.0.1:9092 in 10s: is it a Kafka listener, and is tls or sasl missing?"
		saidOnly(t, log, cure)
		for name, err := range map[string]error{"source": src.Health(), "sink": sink.Health()} {
			if err == nil || err.Error() != cure {
				t.Errorf("the %s is %v", name, err)
			}
		}
	})
}

func TestABrokerWhoseConnectionsFallSilentIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		var deaf atomic.Bool
		_, _, log := clients(t, func(ctx context.Context, network, addr string) (net.Conn, error) {
			if deaf.Load() {
				return answering(t.Context(), ""), nil
			}
			conn, err := dial(ctx, network, addr)
			return &mutedConn{Conn: conn, muted: &deaf}, err
		})
		wait(time.Minute)
		deaf.Store(true)
		wait(5 * time.Minute)
		saidOnly(t, log, ":9092 in 10s: is it a Kafka listener")
	})
}

func TestAChangedCauseIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, _ dialer) {
		var up atomic.Bool
		src, _, log := clients(t, func(_ context.Context, network, _ string) (net.Conn, error) {
			if up.Load() {
				return answering(t.Context(), "HTTP/1.1 400 Bad Request\r\n\r\n"), nil
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
		})
		wait(time.Minute)
		saidOnly(t, log, "connection refused")
		for i := range 3 { // what was said before is not said again
			up.Store(i%2 == 0)
			wait(time.Minute)
			saidOnly(t, log, "connection refused", "is your broker port correct?")
		}
		if err := src.Health(); err == nil || !strings.Contains(err.Error(), "asking the brokers at 127.0.0.1:9092 for topics: ") ||
			!strings.Contains(err.Error(), "beginning of an HTTP response") {
			t.Errorf("the source is %v", err)
		}
	})
}

// Ports, times and sizes differ from try to try.
func TestACauseThatDiffersInNumbersIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, _ dialer) {
		var tries atomic.Int64
		_, _, log := clients(t, func(_ context.Context, network, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("port %d went away", tries.Add(1))}
		})
		wait(time.Minute)
		saidOnly(t, log, "went away")
		if tries.Load() < 10 {
			t.Errorf("it was tried %d times", tries.Load())
		}
	})
}

// answering is a connection to somebody who says the same to whatever is said, or nothing.
func answering(ctx context.Context, words string) net.Conn {
	here, there := net.Pipe()
	context.AfterFunc(ctx, func() { _ = there.Close() })
	go func() {
		defer there.Close()
		heard := make([]byte, 4096)
		for {
			if _, err := there.Read(heard); err != nil {
				return
			}
			if words != "" {
				_, _ = io.WriteString(there, words)
				return
			}
		}
	}()
	return here
}

// mutedConn takes what is written, and what comes never arrives once it is muted.
type mutedConn struct {
	net.Conn
	muted *atomic.Bool
}

func (c *mutedConn) Write(b []byte) (int, error) {
	if c.muted.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
