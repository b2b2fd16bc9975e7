package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

// Runner is what runs a job: a streammanager.Supervisor.
type Runner interface {
	Run(ctx context.Context) error
	Status() streammanager.Status
	Watch(started func(), failed func(error))
	End(how streammanager.Ending)
	Resize(workers int)
}

var _ Runner = (*streammanager.Supervisor)(nil)

// LocalConfig describes a job to those who ask for it.
type LocalConfig struct {
	Name     string // of the job, required
	Labels   Labels
	Settings []Setting
	Restart  string
	Process  func() Process // of this process
	Logger   *slog.Logger   // default slog.Default()
}

// Local is a job as this process carries it out.
type Local struct {
	cfg      LocalConfig
	runs     Runner
	course   *Course
	restarts atomic.Int64
	workers  atomic.Int64 // as it was rescaled to; 0: as the job began
	stopped  atomic.Bool  // Stop was called
	ended    chan struct{}
}

var _ Job = (*Local)(nil)

// NewLocal makes the job that runs carries out. Run runs it.
func NewLocal(cfg LocalConfig, runs Runner) *Local {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Logger = cfg.Logger.With("pipeline", cfg.Name)
	j := &Local{cfg: cfg, runs: runs, course: NewCourse(), ended: make(chan struct{})}
	runs.Watch(func() { j.to(Running) }, func(err error) {
		j.course.Add(exceptionOf(err, cfg.Process().ID))
		j.restarts.Add(1)
		j.to(Restarting)
	})
	return j
}

// to changes the state where that may be: a job that is being cancelled does not run again.
func (j *Local) to(s State) bool { return j.course.To(s) == nil }

// ID implements Job.
func (j *Local) ID() string { return JobID(j.cfg.Name) }

// Run runs the job until it has ended, and notes how it ended. The end of ctx is the worker's, not the job's.
func (j *Local) Run(ctx context.Context) error {
	defer close(j.ended)
	j.to(Created)
	err := j.runs.Run(ctx)
	switch {
	case err != nil:
		j.course.Add(exceptionOf(err, j.cfg.Process().ID))
		j.to(Failing)
		j.to(Failed)
	case j.to(Canceled): // as it was asked to
	case ctx.Err() != nil && !j.stopped.Load():
		j.to(Suspended)
	default:
		j.to(Finished)
	}
	return err
}

// Look implements Job.
func (j *Local) Look(context.Context) (Picture, error) {
	p := Picture{
		Name: j.cfg.Name, History: j.course.History(), Restarts: int(j.restarts.Load()), Labels: j.cfg.Labels,
		Settings: j.cfg.Settings, Restart: j.cfg.Restart,
	}
	w := Worker{Process: j.cfg.Process(), State: p.State, Status: j.runs.Status()}
	if n := int(j.workers.Load()); n > 0 {
		w.Status.Workers = n // it may not have come there yet
	}
	p.Workers = []Worker{w}
	return p, nil
}

// Cancel implements Job.
func (j *Local) Cancel(context.Context) error {
	var wrong *TransitionError
	if err := j.course.To(Cancelling); errors.As(err, &wrong) {
		if wrong.From == Cancelling || wrong.From == Canceled {
			return nil
		}
		return &EndedError{wrong.From}
	}
	j.cfg.Logger.Info("the job is cancelled: what is in progress is dropped and will be read again")
	j.runs.End(streammanager.Cancelled)
	return nil
}

// Stop implements Job.
func (j *Local) Stop(ctx context.Context, how Stop) (Stopped, error) {
	if s := j.course.State(); s.Final() {
		return Stopped{}, &EndedError{s}
	}
	ending := streammanager.Suspended
	if how.Drain {
		ending = streammanager.Drained
	}
	j.cfg.Logger.Info("the job is stopped", "drain", how.Drain)
	j.stopped.Store(true)
	j.runs.End(ending)
	select {
	case <-j.ended:
	case <-ctx.Done():
		return Stopped{}, fmt.Errorf("waiting for the end of the job: %w", ctx.Err())
	}
	h := j.course.History()
	if f := h.Failure(); f != nil {
		return Stopped{}, fmt.Errorf("the job failed while it was stopped: %s", f.Text)
	}
	if h.State != Finished {
		return Stopped{}, fmt.Errorf("the job is %s, since it was asked for that while it was stopped", h.State)
	}
	return Stopped{Unfinished: j.runs.Status().Unfinished}, nil
}

// Rescale implements Job.
func (j *Local) Rescale(_ context.Context, workers int) error {
	if workers < 1 || workers > streammanager.MostWorkers {
		return fmt.Errorf("workers must be 1 to %d, not %d", streammanager.MostWorkers, workers)
	}
	if s := j.course.State(); s.Final() {
		return &EndedError{s}
	}
	j.workers.Store(int64(workers))
	j.runs.Resize(workers)
	return nil
}

// exceptionOf makes a failure one of the history.
func exceptionOf(err error, worker string) Exception {
	e := Exception{Name: "enricher.Failure", Text: err.Error(), At: time.Now(), Worker: worker}
	var f *streammanager.FailedError
	if errors.As(err, &f) {
		e.Name = "enricher.Failure." + string(f.Reason)
		e.Labels = map[string]string{"reason": string(f.Reason)}
	}
	return e
}
