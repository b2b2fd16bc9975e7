package sim

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// transactionMillis is long enough for what any one event may take.
const transactionMillis = "120000"

// DrawOnce makes the plan of a seed for streams that work in transactions. What is done within one may be done
// again, so that the ledger does not look at workers; what readers of committed records see in the end is held to
// the plan: each outcome once, and in order.
func DrawOnce(seed uint64) *Plan {
	p := draw(seed)
	p.once, p.deaths, p.outOfRange = true, 0, kafka.Earliest
	p.set.errorSink, p.set.onError = true, streammanager.OnErrorDrop
	for _, in := range p.inputs {
		for i := range in.acts {
			a := &in.acts[i]
			if a.stops || a.kind == actFatal || p.steps[i].batch && a.ofAll() {
				a.kind, a.stops = actOK, false
			}
			a.wait = min(a.wait, 8*time.Second) // it is waited for anew in each transaction
		}
	}
	p.faults = slices.DeleteFunc(p.faults, func(f fault) bool { return f.kind == compaction })
	return p
}

// transaction makes source and sinks of a worker over one client.
func transaction(k *worker, from, at kafka.Connection, log *slog.Logger) (*kafka.Transaction, error) {
	at.Options["transaction.timeout.ms"] = transactionMillis
	return kafka.NewTransaction(kafka.TransactionConfig{
		ID: k.name, Source: kafka.SourceConfig{Connection: from, Topics: []string{inTopic}, Group: group, Start: "earliest"},
		Sinks: []*kafka.SinkConfig{{Connection: at, Topic: outTopic}, {Connection: at, Topic: errTopic}},
	}, log)
}

// refuseEnds refuses what ends transactions.
func (w *world) refuseEnds(f fault) {
	if f.who%2 == 0 {
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Group: group})
		return
	}
	if f.code != kerr.NotCoordinator && f.code != kerr.RequestTimedOut {
		f.code = kerr.CoordinatorLoadInProgress
	}
	w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, When: func(kreq kmsg.Request) bool {
		req, ok := kreq.(*kmsg.EndTxnRequest)
		return ok && strings.HasPrefix(req.TransactionalID, "w") // of a worker, not of who writes the input
	}})
}

// checkOnce compares what is seen of an event with what it must come to.
func (w *world) checkOnce(in *input, paths map[string]int, errs int) {
	want := w.plan.expect(in)
	wantErrs := 0
	if want.failed() {
		wantErrs = 1
	}
	if len(paths) != want.outputs || errs != wantErrs {
		w.ledger.Breach("%v is seen as %d outputs and %d error events, want %d and %d", in.id, len(paths), errs, want.outputs, wantErrs)
	}
	for path, n := range paths {
		if n != 1 {
			w.ledger.Breach("output %q of %v is seen %d times", path, in.id, n)
		}
	}
}
