package streammanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
)

// Restart says when a stream that has failed is made and run again. Zero means the default.
type Restart struct {
	Initial    time.Duration // wait after the first failure, which doubles with each; default 1s
	Max        time.Duration // longest wait, default 60s
	ResetAfter time.Duration // a run of that length ends the memory of failures before; default 5m
	Attempts   int           // starts in a row after the first; 0: for ever
}

// mostAtOnePlace is how often in a row a stream may fail at one position before that is the event's there.
const mostAtOnePlace = 3

// SupervisorConfig is what a user sets of a Supervisor.
type SupervisorConfig struct {
	Name    string // of the job, required
	Restart Restart
	Logger  *slog.Logger          // default slog.Default()
	Metrics prometheus.Registerer // the same as that of the streams, or nil
	// Close, if set, is called when the last stream has ended and was closed.
	Close func() error
}

// Made is a stream and what frees its parts after it has ended.
type Made struct {
	Stream *Stream
	Close  func() error // nil: nothing
}

// Supervisor runs a stream, and makes and runs it again when it fails for a cause that may pass. What is for
// good it returns: an event.Fatal, which on_error: stop, errors of files and workers that are all taken by calls
// which do not return come as; and a failure that comes again at one position, which is the event's there.
type Supervisor struct {
	cfg      SupervisorConfig
	log      *slog.Logger
	make     func() (Made, error)
	restarts *prometheus.CounterVec

	mu      sync.Mutex // guards what follows
	made    Made
	before  Status // counts of the streams that have ended
	waiting error  // why none runs
	ending  Ending // 0: not asked to end
	workers int    // 0: as the stream was made

	asked   chan struct{} // closed when it was asked to end
	started func()
	failed  func(error)
}

// NewSupervisor makes the first stream, so that what is wrong with it is an error here. Run, or Close in its
// place, frees it.
func NewSupervisor(cfg SupervisorConfig, mk func() (Made, error)) (*Supervisor, error) {
	if cfg.Name == "" {
		return nil, errors.New("name: a supervisor needs the name of the job")
	}
	cfg.Restart = cfg.Restart.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Supervisor{
		cfg: cfg, make: mk, log: cfg.Logger.With("pipeline", cfg.Name),
		restarts: counterVec("enricher_restarts_total", "Starts of the pipeline after a failure, by what failed.", "reason"),
		asked:    make(chan struct{}), started: func() {}, failed: func(error) {},
	}
	if cfg.Metrics != nil {
		reg := prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": cfg.Name}, cfg.Metrics)
		if err := goOn(reg, &s.restarts); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, r := range Reasons() {
		s.restarts.WithLabelValues(string(r))
	}
	var err error
	if s.made, err = mk(); err != nil {
		return nil, errors.Join(err, s.closeAll())
	}
	return s, nil
}

func (r Restart) withDefaults() Restart {
	or := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	or(&r.Initial, time.Second)
	or(&r.Max, time.Minute)
	or(&r.ResetAfter, 5*time.Minute)
	r.Max = max(r.Max, r.Initial)
	return r
}

// wait is how long the n-th failure in a row is waited after: between half and all of its time, so that
// workers that failed together do not come back together.
func (r Restart) wait(n int) time.Duration {
	d := r.Max
	if shift := n - 1; shift < 30 && r.Initial<<shift > 0 {
		d = min(d, r.Initial<<shift)
	}
	return d/2 + rand.N(d/2+1)
}

// mostPlaces bounds the partitions whose last failures are remembered.
const mostPlaces = 10_000

// failures is what is remembered of those in a row.
type failures struct {
	n      int
	places map[TopicPartition]spot // where each partition failed last
	last   *event.Position         // where the last was that was somewhere
	there  int                     // how often it was there, and nowhere else in that partition meanwhile
}

// spot is an offset of a partition, and how often in a row the failures of that partition were there.
type spot struct {
	offset int64
	times  int
}

// note adds a failure after a run of some length.
func (f *failures) note(err error, ran time.Duration, resetAfter time.Duration) {
	if ran >= resetAfter {
		f.n = 0
	}
	f.n++
	at := placeOf(err)
	if at == nil { // it says nothing of the places before
		return
	}
	if f.places == nil || len(f.places) >= mostPlaces {
		f.places = map[TopicPartition]spot{}
	}
	tp := TopicPartition{at.Topic, at.Partition}
	here := f.places[tp]
	if here.offset != at.Offset {
		here = spot{offset: at.Offset}
	}
	here.times++
	f.places[tp] = here
	f.last, f.there = at, here.times
}

func samePlace(a, b event.Position) bool {
	return a.Topic == b.Topic && a.Partition == b.Partition && a.Offset == b.Offset
}

func placeOf(err error) *event.Position {
	var f *FailedError
	if errors.As(err, &f) {
		return f.At
	}
	return nil
}

// Run carries events until ctx ends, the source ends, End was called, or something fails for good.
func (s *Supervisor) Run(ctx context.Context) error {
	var past failures
	for {
		began := time.Now()
		err := s.once(ctx)
		if err == nil || ctx.Err() != nil || s.toEnd() {
			return errors.Join(err, s.closeAll())
		}
		past.note(err, time.Since(began), s.cfg.Restart.ResetAfter)
		if err := s.forGood(err, &past); err != nil {
			return errors.Join(err, s.closeAll())
		}
		if !s.await(ctx, err, &past) {
			return s.closeAll()
		}
	}
}

// once runs the stream, making it first where there is none.
func (s *Supervisor) once(ctx context.Context) error {
	s.mu.Lock()
	made := s.made
	s.mu.Unlock()
	if made.Stream == nil {
		var err error
		if made, err = s.make(); err != nil {
			return failed(ReasonOpen, err)
		}
	}
	if !s.takeOver(made) {
		return nil // closeAll frees it
	}
	s.started()
	err := made.Stream.Run(ctx)
	s.mu.Lock()
	s.before = s.before.plus(made.Stream.Status())
	s.before.InFlightEvents, s.before.InFlightBytes = 0, 0
	s.made, s.waiting = Made{}, err
	s.mu.Unlock()
	return errors.Join(err, made.close())
}

func (m Made) close() error {
	if m.Close == nil {
		return nil
	}
	return m.Close()
}

// forGood returns err, or more than it, where the stream is not to be started again.
func (s *Supervisor) forGood(err error, past *failures) error {
	var fatal *event.FatalError
	switch {
	case errors.As(err, &fatal):
		return err
	case past.there >= mostAtOnePlace:
		return fmt.Errorf("the pipeline failed %d times in a row at %s, so that starting it again does not help: %w", past.there, where(*past.last), err)
	case s.cfg.Restart.Attempts > 0 && past.n > s.cfg.Restart.Attempts:
		return fmt.Errorf("the pipeline failed %d times in a row, and restart.attempts is %d: %w", past.n, s.cfg.Restart.Attempts, err)
	}
	return nil
}

// await waits for the time of the next start, and reports whether ctx goes on.
func (s *Supervisor) await(ctx context.Context, err error, past *failures) bool {
	reason := ReasonOther
	var f *FailedError
	if errors.As(err, &f) {
		reason = f.Reason
	}
	wait := s.cfg.Restart.wait(past.n)
	args := []any{"reason", string(reason), "err", err, "again_in", wait.Round(time.Millisecond), "failures", past.n}
	if at := placeOf(err); at != nil {
		args = append(args, "topic", at.Topic, "partition", at.Partition, "offset", at.Offset, "failures_there", past.there)
	}
	s.log.Error("the pipeline failed and is started again", args...)
	s.mu.Lock()
	s.waiting = fmt.Errorf("the pipeline failed (%s) and is started again at %s: %w", reason, time.Now().Add(wait).UTC().Format(time.RFC3339), err)
	s.mu.Unlock()
	s.failed(err)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false
	case <-s.asked:
		return false
	}
	s.restarts.WithLabelValues(string(reason)).Inc()
	s.log.Info("starting the pipeline again", "reason", string(reason), "failures", past.n)
	return true
}

// toEnd reports whether it was asked to end.
func (s *Supervisor) toEnd() bool {
	select {
	case <-s.asked:
		return true
	default:
		return false
	}
}

// Close frees the stream of a supervisor that was not run.
func (s *Supervisor) Close() error { return s.closeAll() }

func (s *Supervisor) closeAll() error {
	s.mu.Lock()
	made := s.made
	s.made = Made{}
	s.mu.Unlock()
	err := made.close()
	if s.cfg.Close != nil {
		err = errors.Join(err, s.cfg.Close())
	}
	return err
}

// Status tells how the stream does that runs, with the counts of those before it.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	stream, before, waiting := s.made.Stream, s.before, s.waiting
	s.mu.Unlock()
	if stream == nil {
		before.Ready = waiting
		before.ErrorsByType = maps.Clone(before.ErrorsByType)
		return before
	}
	return before.plus(stream.Status())
}

// plus adds the counts of a later stream; what is of the moment is that of the later one.
func (st Status) plus(later Status) Status {
	sum := later
	sum.Read += st.Read
	sum.Emitted += st.Emitted
	sum.Dropped += st.Dropped
	sum.Errors += st.Errors
	sum.Outputs += st.Outputs
	sum.PassedOver += st.PassedOver
	sum.Skipped += st.Skipped
	sum.Returned += st.Returned + st.unread // the later one reads it again
	sum.Stages = st.Stages.plus(later.Stages)
	if len(st.ErrorsByType) > 0 {
		sum.ErrorsByType = maps.Clone(st.ErrorsByType)
		for t, n := range later.ErrorsByType {
			sum.ErrorsByType[t] += n
		}
	}
	return sum
}
