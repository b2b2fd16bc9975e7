package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// probe tells whether one pipeline is ready, and if not, why.
type probe struct {
	pipeline string
	ready    func() error
}

// server answers /healthz, /readyz and /metrics for all pipelines of the process.
type server struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
}

// listen opens the address. Where it is the default and taken, a free port does.
func listen(ctx context.Context, addr string, isDefault bool, log *slog.Logger) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if isDefault && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(addr)
		l, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		if err == nil {
			log.Info("the default port is taken, another one serves", "default", addr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening gateway.listen: %w", err)
	}
	return l, nil
}

func newServer(l net.Listener, metrics prometheus.Gatherer, probes []probe, log *slog.Logger) *server {
	quiet := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { readyz(w, probes) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: quiet, EnableOpenMetrics: true}))
	return &server{listener: l, log: log, http: &http.Server{
		Handler: mux, ErrorLog: quiet,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}}
}

// readyz answers 503 as long as a pipeline is not ready, with a line for each that is not.
func readyz(w http.ResponseWriter, probes []probe) {
	var causes strings.Builder
	for _, p := range probes {
		if err := p.ready(); err != nil {
			fmt.Fprintf(&causes, "%s: %v\n", p.pipeline, err)
		}
	}
	if causes.Len() > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, causes.String())
		return
	}
	fmt.Fprintln(w, "ok")
}

// run serves until ctx ends.
func (s *server) run(ctx context.Context) {
	s.log.Info("serving /healthz, /readyz and /metrics", "url", "http://"+s.listener.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(s.listener) }()
	select {
	case err := <-ended:
		s.log.Error("the HTTP server ended, the pipelines go on without it", "err", err)
		return
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.http.Shutdown(last); err != nil {
		_ = s.http.Close() // ends connections that are still in use
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		s.log.Debug("server ended", "err", err)
	}
}
