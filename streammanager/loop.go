package streammanager

import (
	"context"
	"errors"
	"time"

	"github.com/a0c75104/enricher/window"
)

// completion is what workers, emitter, committer and bells send back: exactly one field group is set.
type completion struct {
	call  *call
	acked *unit
	err   error // of acked
	// checked says that nothing of acked was sent: it was refused before.
	checked bool
	written int // records of acked that a sink has
	commit  *committed
	rung    *timer // whose wait is over before its time
}

// loop owns lanes, windows, trackers and limits. Its methods run on one goroutine and never block: no
// produce, commit, waiting submit or expression of a user happens in them.
type loop struct {
	s        *Stream
	workers  int // calls that may be in progress
	meter    meter
	windows  *window.Windows[*unit]
	parts    map[*partition]struct{} // live epochs
	timers   timers
	fresh    queue  // flows that wait for a worker
	admitted uint64 // events so far
	again    queue  // those that were called before
	turn     []*partition
	now      time.Time

	events, busy, leaving int
	bytes                 int64
	barriers              int            // partitions that have one
	owing                 int            // events whose outputs are not known yet
	called                int            // events in calls
	outputs               estimate       // bytes of the outputs of an event
	answers               roomState      // what calls hold of answers
	hung                  int            // calls that were abandoned and have not returned
	calls                 map[*call]bool // calls that run

	granted   bool
	needs     int64
	committal bool // a commit is on its way
	dirty     bool
	revokes   []*revocation

	mode    mode
	changed bool // the assignment, since the reader was last let read
	// gapped holds the keys that have an unfinished event in a drain: what waits behind it stays unfinished too.
	gapped  map[string][]*partition
	stopBy  time.Time // of a stop: when the stream must have ended
	until   time.Time // of a drain: when what is left is given up; zero: never
	failure error
	rewind  rewinding
	tx      *transaction // nil where the source has none

	turning  []*partition // input partitions before a repartition topic that wait between events and tombstones
	settling bool         // the source was asked whether the repartition topic is finished

	dog       watchdog
	counted   map[counted]int64
	skipped   int64         // by the source, when it was last asked
	said      map[kind]said // error events
	limitedAt time.Time     // since when a limit stops the polling
	warned    bool          // that a key is on two partitions
}

type mode uint8

const (
	working  mode = iota
	draining      // no polls; what is open is finished
	ended         // leave the loop
)

func newLoop(s *Stream) (*loop, error) {
	w, err := window.New[*unit](s.window, s.cfg.Order != OrderNone)
	if err != nil {
		return nil, err
	}
	l := &loop{s: s, workers: s.cfg.Workers, windows: w, parts: map[*partition]struct{}{}, calls: map[*call]bool{}, said: map[kind]said{}, counted: map[counted]int64{}}
	if s.transactor != nil {
		l.tx = &transaction{timeout: s.transactor.TransactionTimeout(), bound: s.cfg.Workers}
		l.openTransaction()
	}
	return l, nil
}

// run works until everything is finished after a stop or the source's end, or something failed for good.
func (l *loop) run(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	commitTick := time.NewTicker(l.s.cfg.CommitInterval)
	defer commitTick.Stop()
	lookTick := time.NewTicker(min(l.s.cfg.CommitInterval, lookEvery))
	defer lookTick.Stop()
	if l.tx != nil {
		defer func() { l.tx.cancel() }()
	}
	var control []func(*loop)
	var done []completion
	stop := ctx.Done()
	l.now = time.Now()
	for l.mode != ended {
		var got reading
		var read bool
		select {
		case <-stop:
			stop = nil
			l.now = time.Now()
			l.drain(l.s.cfg.ShutdownTimeout)
		case <-l.s.control.notify:
		case <-l.s.completions.notify:
		case got = <-l.s.readings:
			read = true
		case <-commitTick.C:
			l.now = time.Now()
			l.commit()
		case <-lookTick.C:
			l.now = time.Now()
			l.observeLag()
		case <-tick.C:
		}
		l.now = time.Now()
		l.meter.account(l.now, l.s.polling.total(l.now))
		control = l.s.control.take(control)
		for _, do := range control {
			do(l)
		}
		done = l.s.completions.take(done)
		for i := range done {
			l.complete(&done[i])
		}
		clear(done) // or it would be kept as long as the stream is quiet
		if read {
			l.read(got)
		}
		l.expire()
		l.advance()
		l.rearm(tick)
	}
	l.countFound() // a stream that is started again asks other parts
	return l.failure
}

// rearm sets the one timer to the earliest thing that is due.
func (l *loop) rearm(tick *time.Timer) {
	next, ok := l.windows.Next()
	if len(l.timers) > 0 && (!ok || l.timers[0].at.Before(next)) {
		next, ok = l.timers[0].at, true
	}
	if l.mode == draining && l.now.Before(l.until) && (!ok || l.until.Before(next)) {
		next, ok = l.until, true
	}
	for _, r := range l.revokes {
		if !r.committing && (!ok || r.deadline.Before(next)) {
			next, ok = r.deadline, true
		}
	}
	if at := l.rewind.due(l); !at.IsZero() && (!ok || at.Before(next)) {
		next, ok = at, true
	}
	if at := l.transactionDue(); !at.IsZero() && (!ok || at.Before(next)) {
		next, ok = at, true
	}
	if !ok {
		tick.Stop()
		return
	}
	tick.Reset(max(0, next.Sub(l.now)))
}

// advance does all that the messages of this turn made possible.
func (l *loop) advance() {
	l.settleRoom()
	l.closeEarly()
	l.dispatchClosed()
	l.start()
	l.fill()
	l.settleRevokes()
	l.transact()
	l.settleRewind()
	l.settleTurns()
	if l.mode == draining {
		l.settleDrain()
	}
	if l.bytes != l.answers.told {
		l.settleRoom()
	}
	l.grant()
	l.gauge()
	l.s.publish(l)
}

// closeEarly closes what must not wait for its time: also what a freed lane has put into a window since.
func (l *loop) closeEarly() {
	if l.mode == draining {
		l.windows.CloseAll(window.ByDrain)
		return
	}
	if l.tx.closing() {
		l.windows.CloseAll(window.ByTransaction)
		return
	}
	if l.barriers == 0 { // this is asked for each event
		return
	}
	for p := range l.parts {
		if p.barrier != nil {
			l.windows.CloseHolding(p.id, window.ByBarrier)
		}
	}
}

func (l *loop) full() bool {
	lim := l.s.cfg.Limits
	return l.events >= lim.InFlightEvents || l.used() >= l.forInputs() || l.needs > 0
}

// grant lets the reader read, for as much as the limits have room.
func (l *loop) grant() {
	l.balance() // also while a poll waits: it may wait for a partition that is paused
	if l.granted || l.mode != working || l.rewind.active {
		return
	}
	most := l.roomInTransaction()
	if most <= 0 {
		return
	}
	g := grant{
		events: min(most, int(l.room(int64(l.events), int64(l.s.cfg.Limits.InFlightEvents)))),
		bytes:  l.room(l.used(), l.forInputs()), alone: l.events == 0, ahead: l.outputs,
	}
	if l.needs <= l.forInputs()-l.used() {
		g.bytes = max(g.bytes, l.needs) // over the mark, so that the partition that has most is seen and paused
	}
	blocked := g.events <= 0 || (!g.alone && (g.bytes <= 0 || g.bytes < l.needs)) || l.s.pauser == nil && l.uncommittedFull()
	if !l.limitedAt.IsZero() {
		l.s.metrics.paused.Add(l.now.Sub(l.limitedAt).Seconds())
	}
	if blocked {
		l.limitedAt = l.now
		return
	}
	l.limitedAt = time.Time{}
	l.granted, l.needs, l.changed = true, 0, false
	l.s.assigned.hush(false)
	l.s.grants <- g // holds one; the reader has answered the last
}

// complete takes one message of a worker, the emitter or the committer.
func (l *loop) complete(c *completion) {
	switch {
	case c.call != nil:
		l.returned(c.call)
	case c.acked != nil:
		l.acked(c.acked, c)
	case c.rung != nil:
		l.timers.wake(c.rung, l.now)
	case c.commit != nil && c.commit.transaction:
		l.transactionEnded(c.commit)
	case c.commit != nil:
		l.committal = false
		l.noteCommit(c.commit.err)
		if errors.Is(c.commit.err, ErrAssignmentLost) {
			l.readOn() // the source may have to begin anew, which it does when it is polled
		}
		for p, m := range c.commit.marks {
			p.kept(m)
		}
	}
}
