package streammanager

// Ending says what becomes of the work in progress of a stream that is asked to end.
type Ending int

// The endings, each stronger than the one before. Whatever has no outcome then is not committed and read again.
const (
	// Drained finishes all that was read within ShutdownTimeout, open windows too, as the end of Run's ctx does.
	Drained Ending = iota + 1
	// Suspended finishes within ShutdownTimeout what is in a call or on its way to a sink, and drops the rest.
	Suspended
	// Cancelled drops everything at once. What is finished already is still committed.
	Cancelled
)

// End asks the stream to end: Run returns nil when it has. A stronger ending may follow a weaker one.
func (s *Stream) End(how Ending) { s.control.send(func(l *loop) { l.endAs(how) }) }

func (l *loop) endAs(how Ending) {
	if how >= Suspended {
		for p := range l.parts {
			p.revoking = true // nothing is started for it any more
			l.purge(p)
		}
	}
	if how < Cancelled {
		l.drain(l.s.cfg.ShutdownTimeout)
		return
	}
	l.drain(lastTimeout) // for the last commit, and for leaving the source
	l.until = l.now
}

// MostWorkers is how many workers a stream may be given while it runs.
const MostWorkers = 1 << 15

// Resize sets how many calls may be in progress, between 1 and MostWorkers. Those that are more than that go on to their end.
func (s *Stream) Resize(workers int) {
	s.control.send(func(l *loop) {
		l.workers = min(max(1, workers), MostWorkers)
		l.s.resize(l.limitOfWorkers())
		l.s.log.Info("workers changed", "workers", l.workers)
	})
}

// End asks the stream that runs to end, and starts none any more: Run returns when it has ended.
func (s *Supervisor) End(how Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == 0 {
		close(s.asked)
	}
	s.ending = max(s.ending, how)
	if s.made.Stream != nil {
		s.made.Stream.End(s.ending)
	}
}

// Resize sets the workers of the stream that runs, and of those that are made later.
func (s *Supervisor) Resize(workers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = workers
	if s.made.Stream != nil {
		s.made.Stream.Resize(workers)
	}
}

// Watch has started called whenever a stream begins to run, and failed when one has failed and another is to follow. It
// is called before Run; the functions are called one at a time and must not wait.
func (s *Supervisor) Watch(started func(), failed func(error)) { s.started, s.failed = started, failed }

// takeOver makes m the stream that runs, as it was asked meanwhile. It reports false where none is to run any more.
func (s *Supervisor) takeOver(m Made) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made, s.waiting = m, nil
	if s.workers > 0 {
		m.Stream.Resize(s.workers)
	}
	return s.ending == 0
}
