package sim

import (
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

// mishap is one thing that goes wrong before a repartition topic.
type mishap struct {
	name string
	do   func(w *between, k *betweenWorker, lasts time.Duration)
}

// mishaps are all of them. What lasts goes on beside the rest.
var mishaps = []mishap{
	{"killed", func(w *between, k *betweenWorker, _ time.Duration) {
		k.dead.Store(true)
		k.net.cut()
		k.stop()
		w.launch()
	}},
	{"joined", func(w *between, _ *betweenWorker, _ time.Duration) { w.launch() }},
	{"stopped", func(w *between, k *betweenWorker, _ time.Duration) {
		k.stop()
		w.launch()
	}},
	{"connections broken", func(_ *between, k *betweenWorker, _ time.Duration) { k.net.drop() }},
	{"cut off", func(_ *between, k *betweenWorker, lasts time.Duration) {
		if k.dead.Load() {
			return
		}
		k.net.cut()
		time.Sleep(lasts)
		if !k.dead.Load() {
			k.net.open()
		}
	}},
	{"outputs refused", func(w *between, _ *betweenWorker, lasts time.Duration) {
		w.denied(lasts, kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: outTopic, Err: kerr.NotEnoughReplicas, Count: 3})
	}},
	{"the topic in between refused", func(w *between, _ *betweenWorker, lasts time.Duration) {
		w.denied(lasts, kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: betweenTopic, Err: kerr.TopicAuthorizationFailed, Count: 3})
	}},
	{"commits refused", func(w *between, _ *betweenWorker, lasts time.Duration) {
		w.denied(lasts, kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit, kmsg.TxnOffsetCommit}, Group: group, Err: kerr.IllegalGeneration, Count: 2})
	}},
	{"ends refused", func(w *between, _ *betweenWorker, lasts time.Duration) {
		w.denied(lasts, kfake.Fault{
			Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorLoadInProgress, Count: 8,
			When: func(kreq kmsg.Request) bool {
				req, ok := kreq.(*kmsg.EndTxnRequest)
				return ok && strings.HasPrefix(req.TransactionalID, "w")
			},
		})
	}},
	{"coordinators moved", func(w *between, _ *betweenWorker, _ time.Duration) { w.cluster.RehashCoordinators() }},
}

// denied has the brokers refuse something for a while.
func (w *between) denied(lasts time.Duration, how kfake.Fault) {
	h := w.cluster.Fault(how)
	time.Sleep(lasts)
	h.Remove()
}

// fault lets one thing go wrong.
func (w *between) fault() {
	k, m := w.workers[w.rnd.IntN(len(w.workers))], mishaps[w.rnd.IntN(len(mishaps))]
	lasts := time.Duration(w.rnd.Int64N(int64(25 * time.Second)))
	w.ledger.Note("fault: %s %s for %v", k.name, m.name, lasts)
	switch m.name {
	case "killed", "joined", "stopped":
		m.do(w, k, lasts)
	default:
		w.lasting.Go(func() { m.do(w, k, lasts) })
	}
}

// stopAll ends the workers.
func (w *between) stopAll() {
	for _, k := range w.workers {
		k.stop()
		err := <-k.done
		// What may pass ends a worker that was asked to stop just then as it would one that is started again.
		if _, passes := errors.AsType[*streammanager.FailedError](err); err != nil && !passes && !k.dead.Load() {
			w.breach("%s ended with %v", k.name, err)
		}
	}
}
