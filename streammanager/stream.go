package streammanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/alitto/pond/v2"

	"github.com/a0c75104/enricher/event"
)

// step is a Step with what was found out about it once.
type step struct {
	Step
	readOnly bool
}

// Stream is a built stream. It runs once.
type Stream struct {
	parts
	cfg    Config
	log    *slog.Logger
	steps  []step
	inline bool // a chain without calls

	// Abilities of the ends; nil where they lack them.
	committer     Committer
	transactor    Transactor
	rewinder      Rewinder
	pauser        Pauser
	skipper       Skipper
	ender         Ender
	preparer      Preparer
	sinkChecker   Checker
	errorPreparer Preparer
	errorChecker  Checker
	// Of the way through the repartition topic.
	settler        Settler
	throughChecker Checker

	metrics     *metrics
	assigned    *assignment
	control     *mailbox[func(*loop)]
	completions *mailbox[completion]
	emissions   *mailbox[emission]
	commits     *mailbox[commitRequest]
	grants      chan grant
	readings    chan reading
	stopped     chan struct{} // closed when the loop has ended
	emitter     *emitter
	room        *account
	pool        pond.Pool
	tasks       sync.WaitGroup // calls on the pool
	started     time.Time

	// hardCtx ends when everything must end; callCtx when calls must; pollCtx when the polling ends.
	hardCtx, callCtx, pollCtx context.Context
	interruptPoll             context.CancelFunc

	polling, committing stopwatch // what runs beside the loop

	mu      sync.Mutex // guards all below
	status  Status
	trouble error // of the sink
	stall   error // of a partition
	late    error // an event that no transaction is long enough for
}

// Run carries events until ctx ends, the source ends, or something fails for good. When ctx ends it
// drains within ShutdownTimeout and returns nil; what is unfinished then stays uncommitted.
func (s *Stream) Run(ctx context.Context) error {
	hard, cancelHard := context.WithCancel(event.WithPipeline(context.WithoutCancel(ctx), s.cfg.Name))
	defer cancelHard()
	calls, cancelCalls := context.WithCancel(hard)
	defer cancelCalls()
	s.hardCtx, s.callCtx = hard, calls
	s.pollCtx, s.interruptPoll = context.WithCancel(hard)
	defer s.interruptPoll()
	s.started = time.Now()
	defer s.metrics.idle()
	// The pool's own Stop runs on a pool that all pools of the process share; its workers end by
	// themselves when they are idle, so that waiting for our tasks is enough.
	poolCtx, cancelPool := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelPool()
	s.pool = pond.NewPool(s.cfg.Workers+1, pond.WithQueueSize(2*max(s.cfg.Workers, MostWorkers)+16), pond.WithNonBlocking(true), pond.WithContext(poolCtx))

	if err := s.open(hard); err != nil {
		return failed(ReasonOpen, err)
	}
	var running sync.WaitGroup
	running.Go(func() { (&reader{s: s}).run(hard, s.grants) })
	emitCtx, cancelEmit := context.WithCancel(hard)
	defer cancelEmit()
	running.Go(func() { s.emitter.run(emitCtx, s.emissions) })
	running.Go(func() { (&committer{s: s}).run(hard, s.commits) })

	l, err := newLoop(s)
	if err == nil {
		err = failed(ReasonOpen, s.source.Open(hard, s))
	}
	if err == nil {
		err = l.run(ctx)
	}
	end := l.end()
	s.commitLast(hard, end, l) // before a revoke that waits may go on: afterwards the partitions are somebody else's
	close(s.stopped)
	s.interruptPoll()
	cancelCalls()
	cancelEmit()
	last, cancel := context.WithDeadline(hard, end)
	defer cancel()
	defer s.hasten(ctx, last, cancel)()
	err = errors.Join(err, s.close(last, l))
	cancelHard()
	s.await(&running, l.patience(), "an expression of the reader or a sink that does not return was left behind")
	s.await(&s.tasks, l.patience(), "calls that do not return were left behind")
	return err
}

// hasten has the closing of a stream that ended by itself keep to the time of a stop that comes meanwhile.
func (s *Stream) hasten(ctx, last context.Context, cut context.CancelFunc) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		wait := time.NewTimer(max(s.cfg.ShutdownTimeout, lastAtLeast))
		defer wait.Stop()
		select {
		case <-wait.C:
			cut()
		case <-last.Done():
		}
	})
}

// lastTimeout bounds the last commit, and as long again leaving the source and the last flush, where a stop
// has no time of its own.
const lastTimeout = 5 * time.Second

// end is when all must have ended after the loop has: within the time of a stop, and soon otherwise.
func (l *loop) end() time.Time {
	now := time.Now()
	if l == nil || l.stopBy.IsZero() {
		return now.Add(2 * lastTimeout)
	}
	return later(l.stopBy, now.Add(lastAtLeast))
}

// patience is how long goroutines are waited for that may never end: not beyond the time of a stop.
func (l *loop) patience() time.Duration {
	if l == nil || l.stopBy.IsZero() {
		return grace
	}
	return min(grace, max(time.Until(l.stopBy), 100*time.Millisecond))
}

// lastAtLeast is left for the last commit and flush however late it is.
const lastAtLeast = time.Second

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// named is an end of the stream, as errors name it.
type named struct {
	name string
	sink Sink
}

// sinks returns all that are written to, each once: one may take the error events too.
func (s *Stream) sinks() []named {
	all := []named{{"sink", s.sink}}
	for _, n := range []named{{"error sink", s.errorSink}, {"sink of the repartition topic", s.through.sink}} {
		if n.sink != nil && n.sink != s.sink {
			all = append(all, n)
		}
	}
	return all
}

// open starts the sinks, all or none.
func (s *Stream) open(ctx context.Context) error {
	all := s.sinks()
	for i, n := range all {
		err := n.sink.Open(ctx)
		if err == nil {
			continue
		}
		err = fmt.Errorf("opening the %s: %w", n.name, err)
		for _, opened := range all[:i] {
			err = errors.Join(err, opened.sink.Close(ctx))
		}
		return err
	}
	return nil
}

// commitLast commits what is finished after the loop has ended. It goes through the committer, behind what
// that has under way: two commits at once could overtake each other.
func (s *Stream) commitLast(ctx context.Context, end time.Time, l *loop) {
	if l == nil || s.committer == nil {
		return
	}
	last, cancel := context.WithTimeout(ctx, time.Until(end)/2)
	defer cancel()
	marks := map[*partition]mark{}
	for p := range l.parts {
		if p.ahead() {
			marks[p] = p.mark()
		}
	}
	tried := make(chan struct{})
	s.commits.send(commitRequest{marks: marks, ctx: last, after: func() { close(tried) }})
	select {
	case <-tried:
	case <-last.Done(): // nothing is lost: what is not committed is read again
	}
}

// close leaves the source and closes the sinks.
func (s *Stream) close(ctx context.Context, l *loop) error {
	s.leave(ctx)
	var errs []error
	for _, n := range s.sinks() {
		if err := n.sink.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing the %s: %w", n.name, err))
		}
	}
	if err := errors.Join(errs...); err != nil && l != nil && l.events > 0 {
		// What was not written belongs to events that are not finished: their offsets stay uncommitted.
		s.log.Warn("sink closed with records not written; their events will be read again", "events", l.events, "err", err)
		return nil
	}
	return errors.Join(errs...)
}

// leave closes the source. One that does not return is left behind: it may be why the stream ends.
func (s *Stream) leave(ctx context.Context) {
	var closing sync.WaitGroup
	closing.Go(func() { s.source.Close(ctx) })
	until, _ := ctx.Deadline()
	s.await(&closing, max(0, time.Until(until))+grace, "a source that does not close was left behind")
}

// await waits for goroutines to end, save for those that run what others wrote and do not return.
func (s *Stream) await(group *sync.WaitGroup, atMost time.Duration, otherwise string) {
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	limit := time.NewTimer(atMost)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		s.log.Warn(otherwise)
	}
}

// submit hands a task to the pool; it never waits.
func (s *Stream) submit(task func()) bool {
	s.tasks.Add(1)
	err := s.pool.Go(func() {
		defer s.tasks.Done()
		task()
	})
	if err != nil {
		s.tasks.Done()
	}
	return err == nil
}

// resize sets how many calls may run. One more may be lent.
func (s *Stream) resize(n int) { s.pool.Resize(n + 1) }

func (s *Stream) single(on bool) {
	s.emitter.single.Store(on)
	for _, n := range s.sinks() {
		if one, ok := n.sink.(Single); ok {
			one.Single(on)
		}
	}
}

func (s *Stream) setTrouble(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
}

// Status tells how the stream does. It may be called at any time from any goroutine.
func (s *Stream) Status() Status {
	s.mu.Lock()
	st := s.status
	st.Ready = cmp.Or(s.trouble, s.late, s.stall)
	st.ErrorsByType = maps.Clone(st.ErrorsByType)
	s.mu.Unlock()
	if s.skipper != nil {
		st.Skipped = s.skipper.Skipped()
	}
	st.Ready = cmp.Or(st.Ready, healthOf("source", s.source))
	for _, n := range s.sinks() {
		st.Ready = cmp.Or(st.Ready, healthOf(n.name, n.sink))
	}
	return st
}

func healthOf(name string, part any) error {
	if h, ok := part.(Health); ok {
		if err := h.Health(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Status is a picture of a stream.
type Status struct {
	// Ready is nil, or says in words why the stream is not ready: not joined yet, a sink that does not
	// answer, …
	Ready error
	// Counts since the start.
	Read, Emitted, Dropped, Errors, Outputs int64
	PassedOver                              int64 // read again although finished before; not in Read
	Skipped                                 int64 // were gone before they could be read
	// Unfinished are the events of this worker's partitions that were read and have no outcome yet, or one that is
	// not committed with its transaction. When the stream has ended: those that it gave up.
	Unfinished int64
	// Returned are those that were given back to be read again, here or by another worker: after a rebalance, an abort, a
	// failure. Read is the sum of Emitted, Dropped, Errors, Unfinished and Returned; where events go through a
	// repartition topic, only over all workers, and as far as that is read.
	Returned       int64
	unread         int64 // those of Unfinished that count as read
	ErrorsByType   map[event.Type]int64
	InFlightEvents int
	InFlightBytes  int64
	Workers, Busy  int // calls that may be in progress, and that are
	Partitions     int // that are assigned
	Stages         Stages
}

// publish brings gauges and status up to date, at the end of a turn of the loop.
func (s *Stream) publish(l *loop) {
	m := s.metrics
	m.windows.Set(float64(l.windows.OpenWindows()))
	m.lanes.Set(float64(l.windows.Lanes()))
	m.inFlight.Set(float64(l.events))
	m.inFlightBytes.Set(float64(l.bytes + l.answers.held))
	m.workers.Set(float64(l.workers))
	m.busy.Set(float64(l.busy))
	s.mu.Lock()
	defer s.mu.Unlock()
	byType := s.status.ErrorsByType
	if byType == nil {
		byType = map[event.Type]int64{}
	}
	if m.counts.Errors != s.status.Errors {
		maps.Copy(byType, m.counts.ErrorsByType)
	}
	s.status = m.counts
	s.status.ErrorsByType = byType
	s.status.InFlightEvents, s.status.InFlightBytes = l.events, l.bytes+l.answers.held
	s.status.Unfinished, s.status.unread = l.pending()
	s.status.Workers, s.status.Busy, s.status.Partitions = l.workers, l.busy, len(l.parts)
	s.status.Stages = l.meter.stages()
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

var _ Assignments = (*Stream)(nil)
