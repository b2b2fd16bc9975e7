package asynchttp

import (
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	// Around watches what the transport is asked; nil: nobody does.
	Around func(http.RoundTripper) http.RoundTripper
}

// Client is the connection pool of a pipeline and what it knows of the hosts behind it.
type Client struct{ pool *pool }

// NewClient makes a client. It panics where cfg.Metrics holds other metrics of the same names.
func NewClient(cfg ClientConfig) *Client {
	p := &pool{
		canned: cfg.Transport, around: cfg.Around, workers: cfg.Workers, hosts: newHosts(cfg.Workers), metrics: newMetrics(cfg.Metrics),
		opened: map[settings]*connections{},
	}
	p.shared, _ = p.through(settings{}, nil) // without files nothing can be wrong
	return &Client{pool: p}
}

// HTTP returns the client that is put into functions.Env. It has no time-out of its own: pass a context
// that has one.
func (c *Client) HTTP() *http.Client { return &http.Client{Transport: c.pool} }

// For is HTTP for the Go function of that name: its requests count in the metrics.
func (c *Client) For(function string) *http.Client {
	return &http.Client{Transport: &metered{pool: c.pool, meters: c.pool.metrics.of(function)}}
}

// Close closes the connections that no request uses. The pipeline calls it once, after its last call.
func (c *Client) Close() { c.pool.close() }

// pool is the connections of a pipeline. It deliberately has no method CloseIdleConnections: go-retryablehttp
// calls it whenever it gives a request up, which would close the connections of all other calls.
type pool struct {
	canned  http.RoundTripper // answers in place of the network; nil: none does
	around  func(http.RoundTripper) http.RoundTripper
	shared  http.RoundTripper // of all that have no settings of their own
	workers int
	hosts   *hosts
	metrics *metrics

	mu     sync.Mutex // guards opened
	opened map[settings]*connections
}

// RoundTrip implements http.RoundTripper.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) { return p.shared.RoundTrip(r) }

// through returns the connections of s, shared by all that have the same. The error is that of
// secrets.TLS.Config, also where answers are canned.
func (p *pool) through(s settings, log *slog.Logger) (http.RoundTripper, error) {
	rt, err := p.connect(s, log)
	if err != nil || p.around == nil {
		return rt, err
	}
	return p.around(rt), nil
}

func (p *pool) connect(s settings, log *slog.Logger) (http.RoundTripper, error) {
	if p.canned != nil {
		_, err := s.tls.Config()
		return p.canned, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.opened[s]; ok {
		return c, nil
	}
	c, err := s.open(p.workers, log)
	if err != nil {
		return nil, err
	}
	p.opened[s] = c
	return c, nil
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.opened {
		c.close()
	}
}

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
