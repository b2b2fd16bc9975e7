package streammanager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/a0c75104/enricher/event"
)

// emission is a unit that leaves: its outputs, or its error event.
type emission struct {
	u       *unit
	records []Record
	failure *Failure
	ctx     context.Context // of the transaction, nil without one
	passed  func()          // instead of all above: is called when all before it was sent
	moves   bool            // to the repartition topic
}

// emitter alone produces, in the loop's order.
type emitter struct {
	s      *Stream
	single atomic.Bool // one record per request, until the culprit of a failure was found
	broken atomic.Bool // the sink failed: nothing more is sent until the loop has gone back
	begun  atomic.Bool // a transaction: at the first record, since one without any would leave its mark all the same
}

func (e *emitter) run(ctx context.Context, in *mailbox[emission]) {
	var batch []emission
	for {
		select {
		case <-ctx.Done():
			return
		case <-in.notify:
		}
		batch = in.take(batch)
		for i := range batch {
			e.emit(ctx, batch[i])
			batch[i] = emission{} // or it would be kept as long as the stream is quiet
		}
	}
}

func (e *emitter) emit(ctx context.Context, em emission) {
	if em.passed != nil {
		em.passed()
		return
	}
	if em.ctx != nil {
		ctx = em.ctx
	}
	if !em.u.part.live.Load() || e.broken.Load() {
		e.s.completions.send(completion{acked: em.u, err: errEpochEnded})
		return
	}
	if em.failure != nil {
		e.emitError(ctx, em)
		return
	}
	sink, checker := e.s.sink, e.s.sinkChecker
	if em.moves {
		sink, checker = e.s.through.sink, e.s.throughChecker
	}
	if checker != nil {
		for i := range em.records {
			if err := checker.Check(&em.records[i]); err != nil {
				e.s.completions.send(completion{acked: em.u, err: err, checked: true})
				return
			}
		}
	}
	e.produce(ctx, sink, em.u, em.records)
}

// produce sends the records of a unit and reports once, when all were answered.
func (e *emitter) produce(ctx context.Context, sink Sink, u *unit, records []Record) {
	a := &acks{s: e.s, u: u}
	a.left.Store(int32(len(records)))
	single := e.single.Load()
	if err := e.begin(ctx); err != nil {
		for range records {
			a.done(err)
		}
		return
	}
	for i := range records {
		if !u.part.live.Load() || e.broken.Load() {
			a.done(errEpochEnded) // while the sink was asked what it takes, or had no room for the one before
			continue
		}
		if !single {
			sink.Produce(ctx, &records[i], a.done)
			continue
		}
		answered := make(chan struct{})
		sink.Produce(ctx, &records[i], func(err error) { a.done(err); close(answered) })
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
}

// begin begins a transaction where none goes on.
func (e *emitter) begin(ctx context.Context) error {
	if e.s.transactor == nil || e.begun.Load() {
		return nil
	}
	if err := e.s.transactor.Begin(ctx); err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	e.begun.Store(true)
	return nil
}

// acks gathers the answers for one unit.
type acks struct {
	s    *Stream
	u    *unit
	left atomic.Int32
	got  atomic.Int32 // records that the sink has
	mu   sync.Mutex   // guards err
	err  error
}

func (a *acks) done(err error) {
	if err == nil {
		a.got.Add(1)
	} else {
		if severity(err) == severitySink {
			// What follows must not overtake what was refused.
			a.s.emitter.broken.Store(true)
		}
		a.mu.Lock()
		if a.err == nil || worse(err, a.err) {
			a.err = err
		}
		a.mu.Unlock()
	}
	if a.left.Add(-1) == 0 {
		a.mu.Lock()
		err := a.err
		a.mu.Unlock()
		a.s.completions.send(completion{acked: a.u, err: err, written: int(a.got.Load())})
	}
}

// worse reports whether a says more about what to do than b: fatal before the sink's failure before the
// record's own fault.
func worse(a, b error) bool { return severity(a) > severity(b) }

// The severities that others ask for. An answer that nobody waits for any more must not hide that the sink
// failed: the loop would not go back, and nothing would be sent again.
const (
	severitySink  = 3
	severityFatal = 4
)

func severity(err error) int {
	var fatal *event.FatalError
	var reject *event.RejectError
	switch {
	case errors.As(err, &fatal):
		return severityFatal
	case errors.As(err, &reject):
		return 1
	case errors.Is(err, errEpochEnded):
		return 2
	}
	return severitySink
}

// emitError sends the error event of a unit, cut if it does not fit.
func (e *emitter) emitError(ctx context.Context, em emission) {
	rec, err := e.s.errorRecord(em.failure)
	if err == nil && e.s.errorChecker != nil {
		err = e.s.errorChecker.Check(&rec)
		if err != nil {
			rec, err = e.s.cutToFit(em.failure)
		}
	}
	if err != nil {
		err = fmt.Errorf("writing the error event of %s: %w", where(em.u.ev.Position()), err)
		e.s.completions.send(completion{acked: em.u, err: event.Fatal(err)})
		return
	}
	e.produce(ctx, e.s.errorSink, em.u, []Record{rec})
}

var errEpochEnded = errors.New("the partition's assignment has ended")
