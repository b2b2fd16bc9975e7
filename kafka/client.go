package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dialTimeout bounds one connection attempt, the TLS handshake included.
const dialTimeout = 10 * time.Second

// Connection says how to reach a cluster.
type Connection struct {
	Brokers []string          // host:port of some brokers; they name the others
	TLS     *TLS              // nil: no TLS
	SASL    *SASL             // nil: no login
	Options map[string]string // client settings by Kafka's own names; see Options

	// Voice is shared by the clients of a pipeline, so that what is wrong for all of them is said once. Nil:
	// the client speaks for itself alone.
	Voice *Voice

	// Dialer opens connections. Nil uses the network; tests use one in memory.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

// clientOpts returns what all clients have in common. Trouble with brokers goes to t.
func (c *Connection) clientOpts(ctx context.Context, set *settings, t *troubles) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithContext(ctx),
		kgo.SoftwareNameAndVersion("enricher", "1"),
		kgo.SeedBrokers(c.Brokers...),
		kgo.Dialer(c.dialer()),
		kgo.WithLogger(clientLogger{t.log}),
		kgo.WithHooks(hooks{t}),
		kgo.DisableClientMetrics(),
	}
	if c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL.mechanism()))
	}
	return append(opts, set.opts()...)
}

// dialer opens connections, with TLS if c says so. The files of TLS are read for each of them, so that
// a new certificate is used without a restart.
func (c *Connection) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := c.Dialer
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if c.TLS == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		cfg, err := tlsConfig(c.TLS)
		if err != nil {
			return nil, err
		}
		if cfg.ServerName == "" {
			if cfg.ServerName, _, err = net.SplitHostPort(addr); err != nil {
				return nil, fmt.Errorf("splitting address %q: %w", addr, err)
			}
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("agreeing on TLS with %s: %w", addr, err), conn.Close())
		}
		return secure, nil
	}
}

// clientLogger passes what the library says on as debug messages. What an operator must know is said by
// this package, once.
type clientLogger struct{ log *slog.Logger }

func (l clientLogger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

func (l clientLogger) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Debug("kafka client: "+msg, keyvals...)
}

// hooks lets the library tell about connections and the group.
type hooks struct{ t *troubles }

var (
	_ kgo.HookBrokerConnect    = hooks{}
	_ kgo.HookGroupManageError = hooks{}
)

// OnBrokerConnect is called when a connection is ready for requests, or could not be made so.
func (h hooks) OnBrokerConnect(meta kgo.BrokerMetadata, d time.Duration, conn net.Conn, err error) {
	about := trouble{kind: troubleBroker, about: net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))}
	switch {
	case err == nil:
		h.t.healed(about)
	case conn != nil && timedOut(err):
		h.t.note(about, &noAnswerError{about.about, d.Round(time.Second), err})
	case !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed):
		h.t.note(about, fmt.Errorf("connecting to broker %s: %w", about.about, loginError(err)))
	}
}

func (h hooks) OnGroupManageError(err error) {
	h.t.note(trouble{kind: troubleGroup}, fmt.Errorf("taking part in the consumer group: %w", err))
}
