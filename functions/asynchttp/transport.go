package asynchttp

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/a0c75104/enricher/secrets"
)

// The bounds of a connection. They are no options: the bound that a user sets is that of a whole try.
const (
	dialTimeout     = 10 * time.Second
	tlsTimeout      = 10 * time.Second
	idleTimeout     = 50 * time.Second // many servers and balancers close at 60 s: be first
	pingAfter       = 15 * time.Second // silence on an HTTP/2 connection with requests in flight
	pingTimeout     = 10 * time.Second
	maxHeaderBytes  = 1 << 20
	receiveAhead    = 512 << 10 // of an HTTP/2 answer that nobody reads yet, since it waits for room; else it is 4 MiB each
	defaultWorkers  = 64
	idlePerWorker   = 4 // idle connections over all hosts, for URLs that spread over many
	continueTimeout = time.Second
	filesEvery      = time.Second // how often the files of TLS are looked at
)

// settings are what connections may be shared by: those of a function with other ones are its own.
type settings struct {
	tls    secrets.TLS
	socket string // path of a unix socket to which all connections go; "" the network
	public bool   // no connection to an address that is not of the public network
}

// transport makes the connections of s, at most workers to one host.
func (s settings) transport(workers int, cfg *tls.Config) *http.Transport {
	if workers <= 0 {
		workers = defaultWorkers
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        cfg,
		TLSHandshakeTimeout:    tlsTimeout,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           workers * idlePerWorker,
		MaxIdleConnsPerHost:    workers,
		MaxConnsPerHost:        workers,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: receiveAhead},
	}
	if s.public {
		dialer.ControlContext = publicOnly
		t.Proxy = nil // a proxy would look the name up itself
	}
	if s.socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", s.socket)
		}
	}
	return t
}

// connections are those of one settings. Where files of TLS change they are made anew, and the old ones
// are closed as soon as no request uses them.
type connections struct {
	settings settings
	workers  int
	log      *slog.Logger

	mu     sync.RWMutex // guards the rest
	now    *http.Transport
	stamp  string    // of the files behind now, or of those that could not be used
	looked time.Time // when the files were looked at
}

// open makes what s says. The error is that of secrets.TLS.Config.
func (s settings) open(workers int, log *slog.Logger) (*connections, error) {
	c := &connections{settings: s, workers: workers, log: log, stamp: s.tls.Stamp(), looked: time.Now()}
	var err error
	c.now, err = c.make()
	return c, err
}

func (c *connections) make() (*http.Transport, error) {
	if c.settings.tls == (secrets.TLS{}) {
		return c.settings.transport(c.workers, nil), nil
	}
	cfg, err := c.settings.tls.Config()
	if err != nil {
		return nil, err
	}
	return c.settings.transport(c.workers, cfg), nil
}

// RoundTrip implements http.RoundTripper.
func (c *connections) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.current().RoundTrip(r)
}

// current looks at the files once a second. Those that cannot be used change nothing: a certificate and
// its key are seldom replaced in one act.
func (c *connections) current() *http.Transport {
	c.mu.RLock()
	now, due := c.now, c.stamp != "" && time.Since(c.looked) >= filesEvery
	c.mu.RUnlock()
	if !due {
		return now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < filesEvery {
		return c.now
	}
	c.looked = time.Now()
	stamp := c.settings.tls.Stamp()
	if stamp == c.stamp {
		return c.now
	}
	c.stamp = stamp
	fresh, err := c.make()
	if err != nil {
		c.log.Warn("the files of tls have changed and cannot be used, connections are made by the old ones", "err", err)
		return c.now
	}
	c.log.Info("the files of tls have changed, connections are made anew")
	c.now.CloseIdleConnections()
	c.now = fresh
	return fresh
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.CloseIdleConnections()
}
