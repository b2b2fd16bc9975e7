package cli

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/a0c75104/enricher/gateway"
)

// serve makes the HTTP server of the process, and of each pipeline a job that it can be asked about.
func serve(cfg gateway.Config, l net.Listener, jobs []*job, metrics prometheus.Gatherer, log *slog.Logger) (*gateway.Gateway, error) {
	quiet := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	build := buildOf()
	cfg.Worker, cfg.Version, cfg.Commit, cfg.Logger = workerID(jobs), build.version, build.commit, log
	cfg.Metrics = promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: quiet, EnableOpenMetrics: true})
	endpoint := gateway.Endpoint(cfg.Advertise, l)
	host, port, _ := net.SplitHostPort(endpoint)
	cfg.Settings = []gateway.Setting{{Key: "rest.address", Value: host}, {Key: "rest.port", Value: port}, {Key: "worker", Value: cfg.Worker}}
	process := gateway.ThisProcess(cfg.Worker, endpoint)
	var all []gateway.Job
	for _, j := range jobs {
		p := j.pipeline
		j.local = gateway.NewLocal(gateway.LocalConfig{
			Name: p.Name(), Labels: p.Labels(), Settings: p.Settings(), Restart: p.RestartText(), Process: process, Logger: log,
		}, j.runs)
		all = append(all, j.local)
		cfg.Settings = append(cfg.Settings, gateway.Setting{Key: "pipeline." + p.Name(), Value: p.File()})
		cfg.Probes = append(cfg.Probes, gateway.Probe{Pipeline: p.Name(), Ready: func() error { return j.runs.Status().Ready }})
	}
	return gateway.New(cfg, l, all...)
}

// workerID names the process to those who look at its jobs: as the first file does that names its instance.
func workerID(jobs []*job) string {
	for _, j := range jobs {
		if name := j.pipeline.Instance(); name != "" {
			return name
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return host + "-" + gateway.NewID()[:8]
}

// pollEvery is the longest time that clients let pass between two questions about an operation.
const pollEvery = 2 * time.Second

// settle waits until the results of operations were fetched: a client whose process is gone reports that as a failure.
// After a signal it is not for long, since whoever sent it wants the end of the process more, and not beyond late.
func settle(ctx, late context.Context, server *gateway.Gateway, log *slog.Logger) {
	if !server.Pending() {
		return
	}
	log.Info("waiting for results of operations to be fetched", "signalled", ctx.Err() != nil)
	last, cancel := context.WithCancel(late)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(pollEvery+pollEvery/4, cancel) })()
	if !server.Settle(last) {
		log.Info("results of operations were left", "cause", cmp.Or(context.Cause(ctx), last.Err()))
	}
}

// lateness returns a context that ends when the time is over that a signal leaves the process.
func lateness(ctx context.Context, jobs []*job) (late context.Context, stop func()) {
	most := time.Duration(0)
	for _, j := range jobs {
		most = max(most, j.pipeline.ShutdownTimeout())
	}
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() { time.AfterFunc(most, cancel) })
	return late, func() { unwatch(); cancel() }
}
