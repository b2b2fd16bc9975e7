package cli

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/gateway"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

func (a *app) runCommand() *cobra.Command {
	var load loadFlags
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run pipelines until they are stopped or every bounded source has ended",
		Args:  files,
		RunE: func(cmd *cobra.Command, paths []string) error {
			log, err := a.log.logger(a.stderr, slog.LevelInfo)
			if err != nil {
				return err
			}
			loaded, err := a.load(a.stderr, paths, load, false)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), log, loaded)
		},
	}
	load.register(cmd)
	return cmd
}

// job is one pipeline that runs in the process.
type job struct {
	pipeline *pipeline.Pipeline
	runs     *streammanager.Supervisor
	local    *gateway.Local
	log      *slog.Logger
	ended    atomic.Bool
}

// run runs the pipelines together. The first that fails for good ends the others, which drain.
func (a *app) run(ctx context.Context, log *slog.Logger, loaded []*pipeline.Pipeline) error {
	ctx, shutDown := context.WithCancelCause(ctx)
	defer shutDown(nil)
	cfg, isDefault := pipeline.Gateway(loaded...)
	l, err := gateway.Listen(ctx, cfg.Listen, isDefault, log)
	if err != nil {
		return failed(err)
	}
	embedded := &pipeline.Embedded{}
	var jobs []*job
	var gatherers prometheus.Gatherers
	if err = embedded.Prepare(loaded...); err == nil {
		jobs, gatherers, err = a.build(loaded, embedded, log)
	}
	if err != nil {
		return failed(errors.Join(err, l.Close(), embedded.Close()))
	}
	cfg.ShutDown = func() { shutDown(errors.New("DELETE /cluster")) }
	server, err := serve(cfg, l, jobs, gatherers, log)
	if err != nil {
		err = errors.Join(err, l.Close())
		for _, j := range jobs {
			err = errors.Join(err, j.runs.Close())
		}
		return failed(errors.Join(err, embedded.Close()))
	}
	if addrs := embedded.Addrs(); len(addrs) > 0 {
		log.Info("embedded broker listens", "addr", strings.Join(addrs, ","), "data", embedded.Where())
	}
	defer boundMemory(loaded, log)()
	late, forget := lateness(ctx, jobs)
	defer forget()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	var served sync.WaitGroup
	served.Go(func() { server.Run(serving) })

	ok := runJobs(ctx, log, jobs)
	settle(ctx, late, server, log)
	stopServing()
	served.Wait()
	if err := errors.Join(server.Close(), embedded.Close()); err != nil {
		log.Warn("closing the HTTP server and the embedded broker", "err", err)
	}
	if !ok {
		return &exitError{status: exitFailed}
	}
	return nil
}

// build makes the pipelines, each with a registry of its own.
func (a *app) build(loaded []*pipeline.Pipeline, embedded *pipeline.Embedded, log *slog.Logger) ([]*job, prometheus.Gatherers, error) {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gatherers := prometheus.Gatherers{process}
	var jobs []*job
	for _, p := range loaded {
		registry := prometheus.NewRegistry()
		registry.MustRegister(buildInfo(p.Name()))
		gatherers = append(gatherers, registry)
		runs, err := p.Supervise(pipeline.Deps{
			Logger: log, Metrics: registry, Embedded: embedded, Stdin: a.stdin, Stdout: a.stdout,
		})
		if err != nil {
			for _, j := range jobs {
				err = errors.Join(err, j.runs.Close())
			}
			return nil, nil, err
		}
		jobs = append(jobs, &job{pipeline: p, runs: runs, log: log.With("pipeline", p.Name())})
	}
	return jobs, gatherers, nil
}

// buildInfo is the metric that says which build a pipeline runs in.
func buildInfo(name string) prometheus.Collector {
	b := buildOf()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "enricher_build_info", Help: "Always 1; the labels say what the binary was made from.",
		ConstLabels: prometheus.Labels{"pipeline": name, "version": b.version, "commit": b.commit, "goversion": b.goVersion},
	})
	info.Set(1)
	return info
}

// left counts the jobs that run.
func left(jobs []*job) int {
	n := 0
	for _, j := range jobs {
		if !j.ended.Load() {
			n++
		}
	}
	return n
}

// runJobs runs all jobs until they have ended and reports whether none failed.
func runJobs(asked context.Context, log *slog.Logger, jobs []*job) bool {
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	unwatch := context.AfterFunc(ctx, func() {
		if n := left(jobs); n > 0 {
			log.Info("stopping: what is in progress is finished and committed, as far as the time reaches; a second signal ends it at once",
				"cause", context.Cause(ctx), "pipelines", n)
		}
	})
	defer unwatch()
	var running sync.WaitGroup
	ok := make([]bool, len(jobs))
	for i, j := range jobs {
		running.Go(func() {
			if err := j.run(ctx); err != nil {
				stop(errors.New("pipeline " + j.pipeline.Name() + " failed"))
				return
			}
			ok[i] = true
		})
	}
	running.Wait()
	for _, good := range ok {
		if !good {
			return false
		}
	}
	return true
}

func (j *job) run(ctx context.Context) error {
	if worst, err := j.pipeline.WorstCaseBytes(); err == nil {
		j.log.Info("starting", "file", j.pipeline.File(), "buffers", worst.String())
	}
	began := time.Now()
	err := j.local.Run(ctx)
	j.ended.Store(true)
	if err != nil {
		j.log.Error("the pipeline failed", "err", err)
	}
	s := j.runs.Status()
	j.log.Info("ended", "read", s.Read, "emitted", s.Emitted, "dropped", s.Dropped, "errors", s.Errors, "outputs", s.Outputs, "unfinished", s.Unfinished, "returned", s.Returned,
		"passed_over", s.PassedOver, "skipped", s.Skipped, "took", time.Since(began).Round(time.Millisecond))
	return err
}
