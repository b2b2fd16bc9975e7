package sim

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

const (
	inTopic  = "in"
	outTopic = "out"
	errTopic = "err"
	group    = "sim"
)

// worker is one process: a stream with a network of its own.
type worker struct {
	name     string
	net      *network
	b        *books
	stream   *streammanager.Stream
	registry *prometheus.Registry
	stop     context.CancelFunc
	asked    time.Time // when it was stopped; zero: it was not
	done     chan struct{}
	err      error     // of Run, once done is closed
	endedAt  time.Time // the same
}

// launch starts a worker, unless all is over.
func (w *world) launch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return
	}
	name := fmt.Sprintf("w%d", w.started)
	w.started++
	k := &worker{
		name: name, net: &network{inner: w.vnet}, b: newBooks(w.ledger, name), done: make(chan struct{}),
		registry: prometheus.NewRegistry(),
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
	w.ledger.Note("%s starts", name)
	w.all.Go(func() {
		k.err = stream.Run(ctx)
		k.endedAt = time.Now()
		w.ledger.Note("%s ended: %v", name, k.err)
		close(k.done)
		w.afterwards(k)
	})
}

// afterwards starts a stream again that ended with an error, as a supervisor does, and mends what stops
// streams when it has done so often enough.
func (w *world) afterwards(k *worker) {
	if k.err == nil || !w.mayFail(k) {
		return
	}
	w.mu.Lock()
	byItself := k.asked.IsZero()
	if byItself {
		k.asked = time.Now()
	}
	if w.deaths++; w.deaths >= w.plan.deaths {
		w.mended.Store(true)
	}
	w.mu.Unlock()
	if byItself {
		time.Sleep(time.Second)
		w.launch()
	}
}

// mayFail reports whether a worker has met what stops streams.
func (w *world) mayFail(k *worker) bool {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	return (len(k.b.culprits) > 0 || w.plan.once) && !k.b.killed // a transactional id may be lost
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

func (w *world) build(k *worker) (*streammanager.Stream, error) {
	set, log := w.plan.set, w.ledger.logger(k.b)
	at := kafka.Connection{Brokers: w.addrs, Dialer: k.net.Dial, Options: map[string]string{"client.id": k.name, "metadata.max.age.ms": "5000"}}
	from := at
	from.Options = map[string]string{"client.id": k.name, "metadata.max.age.ms": "5000", "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
	// A batch is not compressed, so that the broker in memory can tell poison by looking.
	at.Options["compression.type"] = "none"
	b := streammanager.New(streammanager.Config{
		Name: "sim", Workers: set.workers, Order: set.order, Tombstones: set.tombstones, OnError: set.onError,
		Limits: set.limits, CommitInterval: set.commit, ShutdownTimeout: set.shutdown, Logger: log,
		Metrics: k.registry,
	}).Window(set.window).Filter(w.keep)
	if err := w.ends(k, b, from, at, log); err != nil {
		return nil, err
	}
	if set.byValue {
		b.PartitionBy(w.keyOf)
	}
	if set.byGroup {
		b.WindowBy(w.groupOf)
	}
	for i, s := range w.plan.steps {
		f := &function{step: i, plan: w.plan, b: k.b, api: &w.api, mended: &w.mended, end: w.end}
		step := streammanager.Step{Name: s.name, Inline: s.inline, Timeout: s.timeout, Attempts: s.attempts, When: w.when(i)}
		if s.batch {
			step.Batch = f
		} else {
			step.Func = f
		}
		b.Process(step)
	}
	return b.Build()
}

// ends gives a stream its source and sinks.
func (w *world) ends(k *worker, b *streammanager.Builder, from, at kafka.Connection, log *slog.Logger) error {
	if w.plan.once {
		tx, err := transaction(k, from, at, log)
		if err == nil {
			b.From(tx.Source()).To(tx.Sink(0)).ErrorsTo(tx.Sink(1), nil)
		}
		return err
	}
	src, err := kafka.NewSource(kafka.SourceConfig{Connection: from, Topics: []string{inTopic}, Group: group, Start: "earliest"}, log)
	if err != nil {
		return err
	}
	out, err := kafka.NewSink(kafka.SinkConfig{Connection: at, Topic: outTopic}, log)
	if err != nil {
		return err
	}
	b.From(&source{Source: src, b: k.b}).To(&sink{Sink: out, b: k.b})
	if !w.plan.set.errorSink {
		return nil
	}
	failed, err := kafka.NewSink(kafka.SinkConfig{Connection: at, Topic: errTopic}, log)
	if err == nil {
		b.ErrorsTo(&sink{Sink: failed, b: k.b, failed: true}, nil)
	}
	return err
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
	if !k.asked.IsZero() {
		return
	}
	k.asked = time.Now()
	w.ledger.mu.Lock()
	k.b.dead, k.b.killed = true, true
	w.ledger.note("%s is killed", k.name)
	w.ledger.mu.Unlock()
	k.net.cut()
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
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	if k.b.killed {
		return
	}
	if took, most := k.endedAt.Sub(k.asked), w.plan.set.shutdown+lastWork; took > most {
		w.ledger.breach("%s took %v to stop, which may take %v", k.name, took, most)
	}
	if k.err != nil && !k.b.explains(k.err) && !w.plan.once {
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
