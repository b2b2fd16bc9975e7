package streammanager

import (
	"context"
	"fmt"
	"time"
)

// transaction is the one under way where the source has a Transactor. Everything read in it is finished and
// acknowledged before it ends, and where that cannot be, all of it is forgotten and read again: nothing of it
// was seen by anybody who reads what is committed.
type transaction struct {
	state    txState
	timeout  time.Duration
	began    time.Time // when its first record was admitted; zero: it is empty
	admitted int       // events in it
	told     []told    // what to count once it is committed
	dropped  int       // events that the filter left out of it
	ctx      context.Context
	cancel   context.CancelFunc // what is not sent yet is given up

	// Of an abort.
	quiet bool // the emitter has seen it: nothing more is sent
	asked bool // the committer was asked to end it

	// Of all transactions.
	bound     int // events that one may admit
	most      int // half of what was too much, growing again; 0: no bound
	aborts    int // without a commit between them
	condemned map[place]error
}

type txState uint8

const (
	txOpen     txState = iota // reading, working and writing
	txClosing                 // nothing more is read; what was read is finished
	txEnding                  // the committer commits it
	txAborting                // the committer aborts it
	txAborted                 // it was; new epochs begin soon
)

// place names one record.
type place struct {
	tp     TopicPartition
	offset int64
}

// told is an outcome that counts once its transaction is committed.
type told struct {
	outcome string
	took    time.Duration
	outputs int
	failure *Failure
}

// Why a transaction was aborted, as it is counted.
const (
	txCommitted  = "committed"
	txRebalanced = "rebalance" // a partition was taken away
	txLate       = "timeout"   // not finished within half of the timeout
	txSink       = "sink"      // the sink failed
	txRecord     = "record"    // the sink refused a record for the record's own fault
	txRefused    = "refused"   // the brokers did not take the commit
	txStopped    = "stop"      // a stop, or a failure of the stream
)

// openTransaction begins an empty transaction.
func (l *loop) openTransaction() {
	tx := l.tx
	if tx.cancel != nil {
		tx.cancel()
	}
	tx.state, tx.began, tx.admitted, tx.told, tx.dropped = txOpen, time.Time{}, 0, nil, 0
	tx.quiet, tx.asked = false, false
	tx.ctx, tx.cancel = context.WithCancel(l.s.hardCtx)
}

// enterTransaction counts a record that was admitted into the transaction.
func (l *loop) enterTransaction(unit bool) {
	if l.tx == nil {
		return
	}
	if l.tx.began.IsZero() {
		l.tx.began = l.now
	}
	if unit {
		l.tx.admitted++
	}
}

// roomInTransaction is how many events the transaction may still admit.
func (l *loop) roomInTransaction() int {
	switch tx := l.tx; {
	case tx == nil:
		return int(^uint(0) >> 1)
	case tx.state != txOpen:
		return 0
	default:
		return tx.bound - tx.admitted
	}
}

// closing reports whether nothing may wait for company any more.
func (tx *transaction) closing() bool { return tx != nil && tx.state == txClosing }

// transact carries the transaction on.
func (l *loop) transact() {
	tx := l.tx
	if tx == nil {
		return
	}
	if tx.state == txOpen && !tx.began.IsZero() &&
		(l.mode == draining || tx.admitted >= tx.bound || !l.now.Before(tx.began.Add(l.interval()))) {
		tx.state = txClosing
		l.s.assigned.hush(true)
		l.closeEarly()
		l.dispatchClosed()
		l.start()
	}
	switch tx.state {
	case txOpen, txClosing:
		switch {
		case tx.began.IsZero():
		case !l.now.Before(tx.began.Add(tx.timeout / 2)):
			l.tooLate()
		case tx.state == txClosing && !l.granted && l.leaving == 0 && !l.unfinished():
			l.commitTransaction()
		}
	case txAborting:
		if tx.quiet && !tx.asked && !l.granted {
			tx.asked = true
			l.s.commits.send(commitRequest{ctx: l.s.hardCtx, abort: true})
		}
	}
}

// interval is after how long a transaction closes.
func (l *loop) interval() time.Duration { return min(l.s.cfg.CommitInterval, l.tx.timeout/4) }

// unfinished reports whether an event of a live partition has no outcome.
func (l *loop) unfinished() bool {
	for p := range l.parts {
		if p.units > 0 {
			return true
		}
	}
	return false
}

// commitTransaction asks for the end of a transaction of which everything has its outcome.
func (l *loop) commitTransaction() {
	marks := map[*partition]mark{}
	for p := range l.parts {
		if p.tracker.length > 0 { // given up in a stop: its outputs are missing, those of later events are not
			l.abort(txStopped, 0)
			return
		}
		if p.ahead() {
			marks[p] = p.mark()
		}
	}
	l.tx.state = txEnding
	l.s.commits.send(commitRequest{marks: marks, ctx: l.s.hardCtx, transaction: true})
}

// transactionEnded takes the answer of the committer.
func (l *loop) transactionEnded(e *committed) {
	tx := l.tx
	switch {
	case e.err != nil:
		tx.state = txAborted
		l.fail(failed(ReasonTransaction, fmt.Errorf("ending a transaction: %w", e.err)))
	case tx.state == txAborting:
		tx.state = txAborted
		l.leaveEpochs() // those that came meanwhile: the source was taken back to what is committed
	case e.kept:
		l.transactionCommitted(e)
	default:
		l.readOn()
		tx.state = txAborted
		wait := min(time.Minute, 50*time.Millisecond<<min(tx.aborts, 12))
		l.s.log.Warn("transaction aborted: the brokers did not take its commit, as in a rebalance", "again_in", wait)
		l.forgetTransaction(txRefused, wait)
	}
}

func (l *loop) transactionCommitted(e *committed) {
	tx := l.tx
	for p, m := range e.marks {
		p.kept(m)
		for at := range tx.condemned {
			if at.tp == p.tp && at.offset < m.Offset {
				delete(tx.condemned, at)
			}
		}
	}
	for p := range l.parts {
		p.pending = p.rereads // all that was read in it is finished
	}
	for _, t := range tx.told {
		l.count(t)
	}
	for range tx.dropped {
		l.s.metrics.dropped()
	}
	l.s.metrics.transactions.WithLabelValues(txCommitted).Inc()
	l.s.setLate(nil)
	tx.aborts = 0
	l.learnBound()
	l.openTransaction()
}

// learnBound finds how many events the next transaction may admit: what should be done in a quarter of the
// timeout at the rate of this one, and one for each worker in any case. After one that was too late it grows
// again from half of what that had.
func (l *loop) learnBound() {
	tx := l.tx
	took := max(l.now.Sub(tx.began), time.Millisecond)
	bound := max(l.workers, int(float64(tx.admitted)*(float64(tx.timeout/4)/float64(took))))
	if tx.most > 0 {
		if tx.admitted >= tx.most {
			tx.most *= 2
		}
		if tx.most >= bound {
			tx.most = 0
		} else {
			bound = tx.most
		}
	}
	tx.bound = bound
}

// tell counts an outcome now, or once the transaction is committed.
func (l *loop) tell(t told) {
	if l.tx != nil {
		l.tx.told = append(l.tx.told, t)
		return
	}
	t.outputs = 0 // counted as they were acknowledged
	l.count(t)
}

// count counts an outcome.
func (l *loop) count(t told) {
	if t.outcome != outcomeDropped {
		l.rewind.progress(l)
	}
	l.s.metrics.tell(t)
}

// tellDropped counts an event that the filter left out.
func (l *loop) tellDropped() {
	if l.tx != nil {
		l.tx.dropped++
		return
	}
	l.s.metrics.dropped()
}

// transactionDue is when the transaction closes or is aborted by itself.
func (l *loop) transactionDue() time.Time {
	tx := l.tx
	switch {
	case tx == nil:
	case (tx.state == txEnding || tx.state == txAborting) && l.mode == draining && !l.until.IsZero():
		return l.endBy()
	case tx.began.IsZero():
	case tx.state == txOpen:
		return tx.began.Add(l.interval())
	case tx.state == txClosing:
		return tx.began.Add(tx.timeout / 2)
	}
	return time.Time{}
}
