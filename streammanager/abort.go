package streammanager

import (
	"fmt"
	"log/slog"
	"time"
)

// tooLate aborts a transaction that is not finished at half of its time, and lets the next admit half as many.
func (l *loop) tooLate() {
	tx := l.tx
	u := l.oldest()
	what := "the sink"
	if u != nil {
		what = "the event at " + where(u.ev.Position())
	}
	err := fmt.Errorf("%s was not finished within half of the transaction's timeout of %v: shorten the function's timeouts and retries, or raise transaction.timeout.ms", what, tx.timeout)
	level := slog.LevelWarn
	if tx.admitted <= 1 { // smaller it cannot get
		level = slog.LevelError
		l.s.setLate(err)
	}
	l.s.log.Log(l.s.hardCtx, level, "transaction aborted: it was not finished in time", "events", tx.admitted, "err", err)
	tx.most = max(1, tx.admitted/2)
	tx.bound = min(tx.bound, tx.most)
	l.abort(txLate, 0)
}

// oldest returns the unfinished event that was read first, as far as one is at work.
func (l *loop) oldest() *unit {
	var first *unit
	look := func(u *unit) {
		if u.state != unitFinished && u.part.live.Load() && (first == nil || u.order < first.order) {
			first = u
		}
	}
	for c := range l.calls {
		for _, f := range c.flows {
			look(f.u)
		}
	}
	for _, t := range l.timers {
		for _, f := range t.flows {
			look(f.u)
		}
	}
	return first
}

// abort forgets everything that was read in the transaction. After wait, and once the transaction has ended, the
// partitions begin anew from what was committed.
func (l *loop) abort(why string, wait time.Duration) {
	tx := l.tx
	switch tx.state {
	case txAborting, txAborted:
		l.rewind.at = later(l.rewind.at, l.now.Add(wait))
		return
	case txEnding: // its end is known soon, and says what became of it
		return
	}
	l.readOn()
	tx.state = txAborting
	l.forgetTransaction(why, wait)
	l.s.emissions.send(emission{passed: func() {
		l.s.control.send(func(l *loop) { l.tx.quiet = true })
	}})
}

// forgetTransaction ends all epochs.
func (l *loop) forgetTransaction(why string, wait time.Duration) {
	tx, r := l.tx, &l.rewind
	if !tx.began.IsZero() { // after a rebalance an empty one is ended too
		tx.aborts++
		l.s.metrics.transactions.WithLabelValues(why).Inc()
	}
	tx.told, tx.dropped = nil, 0
	tx.cancel()
	l.s.emitter.broken.Store(true)
	l.s.assigned.hush(true)
	r.begin(l.now.Add(wait))
	l.leaveEpochs()
}

// leaveEpochs ends the epochs that there are and notes from where the next ones read.
func (l *loop) leaveEpochs() {
	for p := range l.parts {
		l.rewind.offsets[p.tp], l.rewind.kept[p.tp], l.rewind.pending[p.tp] = p.base, p.committed, p.notReturned()
		l.endEpoch(p)
	}
}

// takenAway aborts the transaction after partitions were taken away: what it wrote for them must not be seen,
// since their next owner reads them again.
func (l *loop) takenAway(tps []TopicPartition) {
	if l.tx == nil {
		return
	}
	for at := range l.tx.condemned {
		for _, tp := range tps {
			if at.tp == tp {
				delete(l.tx.condemned, at)
			}
		}
	}
	l.s.setLate(nil)
	l.abort(txRebalanced, 0)
}

// condemn has an event become an error event when it is read again: the sink refused its record, and a
// transaction with a refused record cannot be committed.
func (l *loop) condemn(u *unit, err error) {
	if l.tx.condemned == nil {
		l.tx.condemned = map[place]error{}
	}
	l.tx.condemned[u.place()] = err
	l.finish(u, "")
	l.s.log.Warn("transaction aborted: the sink refused a record, which becomes an error event", "topic", u.part.tp.Topic,
		"partition", u.part.tp.Partition, "offset", u.offset, "err", err)
	l.abort(txRecord, 0)
}

// condemnation is why the sink refused the event before, nil if it did not.
func (l *loop) condemnation(u *unit) error {
	if l.tx == nil || len(l.tx.condemned) == 0 {
		return nil
	}
	return l.tx.condemned[u.place()]
}

func (u *unit) place() place { return place{u.part.tp, u.offset} }

// endBy is until when the end of the last transaction is waited for in a stop.
func (l *loop) endBy() time.Time {
	if l.stopBy.IsZero() {
		return l.until.Add(lastTimeout)
	}
	return l.until.Add(l.stopBy.Sub(l.until) / 2)
}

// settledTransaction reports whether no transaction holds up the end of a drain. over says that the time for finishing events is up.
func (l *loop) settledTransaction(over bool) bool {
	tx := l.tx
	switch {
	case tx == nil, tx.state == txAborted, tx.state == txOpen && tx.began.IsZero():
		return true
	case tx.state == txEnding, tx.state == txAborting:
		if over && !l.now.Before(l.endBy()) {
			l.s.log.Warn("transaction left open: the brokers did not answer in time; they abort it after its timeout", "timeout", tx.timeout)
			return true
		}
		return false
	case over:
		l.abort(txStopped, 0)
	}
	return false
}

func (s *Stream) setLate(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = err
}
