package pipeline

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/streammanager"
)

// Supervise makes the stream of the pipeline, and has it made again when it fails for a cause that may pass, as
// the file's restart says. Metrics go on over that: counters do not go back.
func (p *Pipeline) Supervise(deps Deps) (*streammanager.Supervisor, error) {
	if deps.Logger == nil {
		deps.Logger = slog.Default()
	}
	cfg := streammanager.SupervisorConfig{
		Name: p.cfg.Name, Logger: deps.Logger, Metrics: deps.Metrics,
		Restart: streammanager.Restart{
			Initial: p.cfg.Restart.Initial.Duration(), Max: p.cfg.Restart.Max.Duration(),
			ResetAfter: p.cfg.Restart.ResetAfter.Duration(), Attempts: p.cfg.Restart.Attempts,
		},
	}
	if deps.Embedded == nil { // what is in it outlives a stream
		deps.Embedded = &Embedded{}
		cfg.Close = deps.Embedded.Close
	}
	if deps.Metrics != nil {
		deps.again = &again{}
	}
	return streammanager.NewSupervisor(cfg, func() (streammanager.Made, error) {
		deps.again.begin()
		s, done, err := p.Build(deps)
		return streammanager.Made{Stream: s, Close: done}, err
	})
}

// Run carries events until ctx ends, the source ends or something fails for good, and closes what it opened.
func (p *Pipeline) Run(ctx context.Context, deps Deps) error {
	s, err := p.Supervise(deps)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// again lets functions register their metrics anew when a pipeline is made again: what they registered for the
// stream before gives way.
type again struct {
	mu sync.Mutex // guards of
	of []func() bool
}

// begin takes out what is left of the stream before. A nil a does nothing.
func (a *again) begin() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, unregister := range a.of {
		unregister()
	}
	a.of = nil
}

// over returns reg, and has a know what is registered there. A nil a returns reg as it is.
func (a *again) over(reg prometheus.Registerer) prometheus.Registerer {
	if a == nil {
		return reg
	}
	return renewed{reg, a}
}

// renewed is a registerer whose metrics give way when the pipeline is made again.
type renewed struct {
	prometheus.Registerer
	again *again
}

// Register implements prometheus.Registerer.
func (r renewed) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.again.mu.Lock()
		defer r.again.mu.Unlock()
		r.again.of = append(r.again.of, func() bool { return r.Registerer.Unregister(c) })
	}
	return err
}

// MustRegister implements prometheus.Registerer.
func (r renewed) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}
