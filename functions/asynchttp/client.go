package asynchttp

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds of a connection. They are no options: the bound that a user sets is that of a whole try.
const (
	dialTimeout     = 10 * time.Second
	tlsTimeout      = 10 * time.Second
	idleTimeout     = 50 * time.Second // many servers and balancers close at 60 s: be first
	pingAfter       = 15 * time.Second // silence on an HTTP/2 connection with requests in flight
	pingTimeout     = 10 * time.Second
	maxHeaderBytes  = 1 << 20
	defaultWorkers  = 64
	idlePerWorker   = 4 // idle connections over all hosts, for URLs that spread over many
	continueTimeout = time.Second
)

// ClientConfig is what a Client is made of.
type ClientConfig struct {
	// Workers bounds the calls in progress; the pool keeps as many connections to one host.
	// Zero means 64.
	Workers int
	// Metrics takes the client's metrics; nil: they are kept but nowhere registered.
	Metrics prometheus.Registerer
	// Transport answers in place of the network, for tests with canned answers. nil: the network.
	Transport http.RoundTripper
}

// Client is the connection pool of a pipeline and what it knows of the hosts behind it.
type Client struct {
	pool  *pool
	close func()
}

// NewClient makes a client. It panics where cfg.Metrics holds other metrics of the same names.
func NewClient(cfg ClientConfig) *Client {
	p := &pool{rt: cfg.Transport, hosts: newHosts(), metrics: newMetrics(cfg.Metrics)}
	c := &Client{pool: p, close: func() {}}
	if p.rt == nil {
		t := newTransport(cfg.Workers)
		p.rt, c.close = t, t.CloseIdleConnections
	}
	return c
}

// HTTP returns the client that is put into functions.Env. It has no time-out of its own: pass a context
// that has one.
func (c *Client) HTTP() *http.Client { return &http.Client{Transport: c.pool} }

// For is HTTP for the Go function of that name: its requests count in the metrics.
func (c *Client) For(function string) *http.Client {
	return &http.Client{Transport: &metered{pool: c.pool, meters: c.pool.metrics.of(function)}}
}

// Close closes the connections that no request uses. The pipeline calls it once, after its last call.
func (c *Client) Close() { c.close() }

func newTransport(workers int) *http.Transport {
	if workers <= 0 {
		workers = defaultWorkers
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    tlsTimeout,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           workers * idlePerWorker,
		MaxIdleConnsPerHost:    workers,
		MaxConnsPerHost:        workers,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// pool is the shared transport. It deliberately has no method CloseIdleConnections: go-retryablehttp
// calls it whenever it gives a request up, which would close the connections of all other calls.
type pool struct {
	rt      http.RoundTripper
	hosts   *hosts
	metrics *metrics
}

// RoundTrip implements http.RoundTripper.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) { return p.rt.RoundTrip(r) }

// poolOf returns the pool behind client, or a new one around its transport.
func poolOf(client *http.Client, cfg ClientConfig) *pool {
	if client != nil {
		switch t := client.Transport.(type) {
		case *pool:
			return t
		case *metered:
			return t.pool
		default:
			cfg.Transport = t
		}
	}
	return NewClient(cfg).pool
}

// metered is the pool as one Go function sees it.
type metered struct {
	pool   *pool
	meters *meters
}

// RoundTrip implements http.RoundTripper. The duration is that to the answer's header.
func (m *metered) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { m.meters.connection(i.Reused) }}
	resp, err := m.pool.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	m.meters.request(status, time.Since(began))
	return resp, err
}
