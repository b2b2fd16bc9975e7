package sim

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// worker is one process: a stream with a network of its own.
type worker struct {
	name     string
	slot     int      // of its name that stays over a restart
	net      *network // of all, or of the source
	out      *network // of the sinks
	b        *books
	stream   *streammanager.Stream
	registry *prometheus.Registry
	stop     context.CancelFunc
	asked    time.Time // when it was stopped; zero: it was not
	cutOff   bool      // it was killed
	done     chan struct{}
	err      error     // of Run, once done is closed
	endedAt  time.Time // the same
}

// launch starts a worker, unless all is over.
func (w *world) launch() { w.launchAs(-1) }

// launchAs starts a worker in a slot, -1 for one that is free.
func (w *world) launchAs(slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return
	}
	if w.waiting > 0 {
		w.late++
		return
	}
	if slot < 0 {
		slot = w.freeSlot()
	}
	name := fmt.Sprintf("w%d", w.started)
	w.started++
	k := &worker{
		name: name, slot: slot, net: &network{inner: w.vnet}, out: &network{inner: w.vnet}, b: newBooks(w.ledger, name), done: make(chan struct{}),
		registry: prometheus.NewRegistry(),
	}
	if w.dark != nil {
		w.dark(k.out)
	}
	k.b.closedN, k.b.dead = k.windowsClosed, w.plan.once
	stream, err := w.build(k)
	if err != nil {
		w.ledger.Breach("building a stream: %v", err)
		close(k.done)
		return
	}
	k.stream = stream
	ctx, cancel := context.WithCancel(context.Background())
	k.stop = cancel
	w.workers = append(w.workers, k)
	w.ledger.Note("%s starts in slot %d", name, slot)
	w.all.Go(func() {
		k.err = stream.Run(ctx)
		k.endedAt = time.Now()
		w.ledger.Note("%s ended: %v", name, k.err)
		close(k.done)
		w.afterwards(k)
	})
}

// freeSlot returns the first slot that no worker is in that may still write. The caller holds mu.
func (w *world) freeSlot() int {
	taken := map[int]bool{}
	for _, k := range w.workers {
		select {
		case <-k.done:
		default:
			taken[k.slot] = taken[k.slot] || !k.cutOff
		}
	}
	slot := 0
	for taken[slot] {
		slot++
	}
	return slot
}

// networks are the ways of a worker to the brokers.
func (k *worker) networks() []*network { return []*network{k.net, k.out} }

// open ends what holds the connections of a worker up, unless it is dead.
func (k *worker) open() {
	k.b.l.mu.Lock()
	dead := k.b.killed
	k.b.l.mu.Unlock()
	if dead {
		return
	}
	for _, n := range k.networks() {
		n.open()
	}
}

// afterwards starts a stream again that ended with an error, as a supervisor does, and mends what stops
// streams when it has done so often enough.
func (w *world) afterwards(k *worker) {
	w.mu.Lock()
	byItself := k.asked.IsZero()
	w.mu.Unlock()
	why := w.mayFail(k)
	if k.err == nil && w.plan.bounded && byItself {
		w.ledger.did("bounded read ended")
	}
	if why == noReason && (k.err != nil || !w.plan.bounded) {
		return
	}
	w.mu.Lock()
	if byItself {
		k.asked = time.Now()
	}
	if why == culprit {
		if w.deaths++; w.deaths >= w.plan.deaths {
			w.mended.Store(true)
		}
	}
	w.mu.Unlock()
	if why != noReason {
		w.ledger.did(string(why))
	}
	if !byItself {
		return
	}
	switch why {
	case culprit, fencedOff, stalled, emptied:
		time.Sleep(time.Second)
		w.launch()
	case offsetGone:
		w.moveOn()
	}
}

// reason is why a stream ended with an error, as it had to.
type reason string

const (
	noReason   reason = ""
	culprit    reason = "stream stopped by an event"
	offsetGone reason = "stream stopped since its offset is gone"
	fencedTwin reason = "stream stopped for its twin"
	fencedOff  reason = "stream stopped since its transaction was fenced off"
	stalled    reason = "stream started again since it stood still"
	emptied    reason = "stream started again since the fake broker took a log of which all was deleted for one that was cut"
)

// mayFail tells why a worker had to end with an error.
func (w *world) mayFail(k *worker) reason {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	p, failed := w.plan, (*streammanager.FailedError)(nil)
	switch {
	case k.b.killed || k.err == nil:
		return noReason
	case p.once && errors.As(k.err, &failed) && failed.Reason == streammanager.ReasonTransaction: // a transactional id may be lost
		return fencedOff
	case p.outOfRange == kafka.Fail && p.has(trim, reset, compaction) && strings.Contains(k.err.Error(), "is out of range"):
		return offsetGone
	case p.has(twin) && strings.Contains(k.err.Error(), "another worker uses the same group.instance.id"):
		return fencedTwin
	case p.exactlyOnce && p.has(stop, stall, outage, partitioned) && strings.Contains(k.err.Error(), "was taken over"):
		return fencedOff
	case errors.As(k.err, &failed) && failed.Reason == streammanager.ReasonStalled && len(p.faults) > 0:
		return stalled
	case p.through > 0 && p.has(moveLeaders) && strings.Contains(k.err.Error(), "the cluster lost the records of partition"):
		return emptied // it answers that a former leader's log ended at 0, where Kafka's brokers say where it begins
	case len(k.b.culprits) > 0:
		return culprit
	}
	return noReason
}

// has reports whether a plan has a fault of one of kinds.
func (p *Plan) has(kinds ...faultKind) bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool { return slices.Contains(kinds, f.kind) })
}

// moveOn does what the message of a stream says whose offset is gone: with all workers stopped it commits a later
// offset.
func (w *world) moveOn() {
	w.mu.Lock()
	busy := w.moving
	w.moving = true
	w.mu.Unlock()
	if busy {
		return
	}
	defer func() {
		w.mu.Lock()
		w.moving = false
		w.mu.Unlock()
	}()
	empty, again := w.vacate()
	defer again()
	if !empty {
		return
	}
	to := kadm.Offsets{}
	committed := w.committed()
	for _, info := range w.cluster.PartitionInfos(inTopic) {
		if at, ok := committed[info.Partition]; ok && at < info.LogStartOffset {
			to.AddOffset(inTopic, info.Partition, info.LogStartOffset, -1)
		}
	}
	if len(to) > 0 {
		w.setOffsets(to)
	}
}

// windowsClosed reads the worker's own count of closed windows.
func (k *worker) windowsClosed(r window.Reason) float64 {
	families, err := k.registry.Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		if f.GetName() != "enricher_windows_closed_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "reason" && label.GetValue() == string(r) {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

func (w *world) inputOf(ev *event.Event) *input {
	id, _ := idOf(ev.Headers())
	if in := w.plan.byID[id]; in != nil {
		return in
	}
	w.ledger.Breach("an event that was never written: %v", ev.Headers())
	return &input{acts: make([]act, len(w.plan.steps))}
}

func (w *world) keep(_ context.Context, ev *event.Event) (bool, error) {
	return !w.inputOf(ev).filtered, nil
}

func (w *world) keyOf(_ context.Context, ev *event.Event) (streammanager.Key, error) {
	in := w.inputOf(ev)
	switch in.kind {
	case keyless:
		return streammanager.Key{Keyless: true}, nil
	case keyDropped:
		return streammanager.Key{Drop: true}, nil
	case keyMissing:
		return streammanager.Key{}, event.Rejectf(event.MissingKey, "the plan says so")
	}
	return streammanager.Key{Value: in.lane}, nil
}

func (w *world) groupOf(_ context.Context, ev *event.Event) (string, error) {
	return w.inputOf(ev).group, nil
}

func (w *world) when(step int) func(context.Context, *event.Event) (bool, error) {
	return func(_ context.Context, ev *event.Event) (bool, error) {
		return w.inputOf(ev).acts[step].kind != actSkip, nil
	}
}

// running returns the workers that were neither stopped nor crashed.
func (w *world) running() []*worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	var alive []*worker
	for _, k := range w.workers {
		if k.asked.IsZero() {
			alive = append(alive, k)
		}
	}
	return alive
}

// halt stops a worker as SIGTERM would.
func (w *world) halt(k *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !k.asked.IsZero() {
		return
	}
	k.asked = time.Now()
	w.ledger.Note("%s is stopped", k.name)
	k.stop()
}

// kill makes a worker as good as dead: it reaches no broker ever again. What it still does in its memory
// is not looked at.
func (w *world) kill(k *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.cutOff {
		return
	}
	k.cutOff = true
	if k.asked.IsZero() {
		k.asked = time.Now()
	}
	w.ledger.mu.Lock()
	k.b.dead, k.b.killed = true, true
	w.ledger.note("%s is killed", k.name)
	w.ledger.mu.Unlock()
	for _, n := range k.networks() {
		n.cut()
	}
	k.stop()
}

// ended waits for a worker that was asked to end, and checks how it ended.
func (w *world) ended(k *worker) {
	limit := time.NewTimer(10 * time.Minute)
	defer limit.Stop()
	select {
	case <-k.done:
	case <-limit.C:
		w.ledger.Breach("%s did not end", k.name)
		return
	}
	excused := w.mayFail(k)
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	if k.b.killed {
		return
	}
	if took, most := k.endedAt.Sub(k.asked), w.plan.set.shutdown+lastWork; took > most {
		w.ledger.breach("%s took %v to stop, which may take %v", k.name, took, most)
	}
	if k.err != nil && !k.b.explains(k.err) && (excused == noReason || excused == culprit) {
		w.ledger.breach("%s ended with %v", k.name, k.err)
	}
}

// lastWork is what a stop may take beside its time-out: a second that is left for the last commit and for
// leaving, however late it is, and the wait for calls that do not return.
const lastWork = time.Second + 2*grace

var position = regexp.MustCompile(`topic "in" partition (\d+) offset (\d+)`)

// explains reports whether an error names an event for which the stream was to end.
func (b *books) explains(err error) bool {
	at := position.FindStringSubmatch(err.Error())
	if at == nil {
		return false
	}
	var id ID
	_, bad := fmt.Sscan(at[1]+" "+at[2], &id.Partition, &id.Offset)
	return bad == nil && b.culprits[id]
}
