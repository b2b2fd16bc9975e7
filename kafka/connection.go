package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Connection says how brokers are reached.
type Connection struct {
	Brokers []string          // host:port, at least one
	TLS     *TLS              // nil: plain text
	SASL    *SASL             // nil: no authentication
	Options map[string]string // client settings by Kafka's own names; see Options
	// Dialer opens connections; nil: the net package's. A seam for tests.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

// clientOptions are those that sources and sinks share.
func (c Connection) clientOptions(side Side, log *slog.Logger) ([]kgo.Opt, error) {
	if len(c.Brokers) == 0 {
		return nil, errors.New("brokers: none given")
	}
	opts := []kgo.Opt{kgo.SeedBrokers(c.Brokers...), kgo.WithLogger(clientLog{log})}
	if c.Dialer != nil && c.TLS == nil {
		opts = append(opts, kgo.Dialer(c.Dialer))
	}
	if c.TLS != nil {
		dial, err := c.TLS.dialer(c.Dialer)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		opts = append(opts, kgo.Dialer(dial))
	}
	if c.SASL != nil {
		mechanism, err := c.SASL.mechanism()
		if err != nil {
			return nil, fmt.Errorf("sasl: %w", err)
		}
		opts = append(opts, kgo.SASL(mechanism))
	}
	own, err := applyOptions(side, c.Options)
	if err != nil {
		return nil, err
	}
	return append(opts, own...), nil
}

// clientLog passes the client's own messages on: warnings and errors only, at debug level, since what
// matters for an operator is said by this package.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelNone
}

func (l clientLog) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Debug("kafka client: "+msg, keyvals...)
}
