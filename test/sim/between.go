package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// betweenTopic is the repartition topic.
const betweenTopic = "between"

// between is a simulation of several workers that lead the events of few partitions through a topic. Its events have
// no fates of their own: it looks at what holds over all workers.
type between struct {
	world // of it: network, broker, clients

	rnd     *rand.Rand
	parts   int32 // of the topic in between
	events  []*kgo.Record
	keys    []string // of events, "" for none that can be found
	cfg     streammanager.Config
	window  window.Config
	slow    time.Duration
	faults  int
	once    bool // the workers work in transactions
	step    event.FuncOf
	workers []*betweenWorker
	lasting sync.WaitGroup // faults that last

	mu     sync.Mutex // guards all below
	busy   map[string]int
	called map[string]int
	broken []string
}

type betweenWorker struct {
	name string
	net  *network
	stop context.CancelFunc
	dead atomic.Bool
	done chan error
}

// RunBetween carries out what a seed draws. It must be called inside a synctest bubble.
func RunBetween(seed uint64) Result { return runBetween(seed, false) }

// RunBetweenOnce does so with workers that work in transactions: each outcome is seen once.
func RunBetweenOnce(seed uint64) Result { return runBetween(seed, true) }

func runBetween(seed uint64, once bool) Result {
	w := &between{rnd: rand.New(rand.NewPCG(seed, 45)), once: once, busy: map[string]int{}, called: map[string]int{}}
	w.step = w.call
	w.draw()
	if err := w.open(); err != nil {
		return Result{Broken: []string{err.Error()}}
	}
	for range 1 + w.rnd.IntN(3) {
		w.launch()
	}
	w.play()
	w.checkBetween()
	w.stopAll()
	w.admin.Close()
	w.cluster.Close()
	_, trace := w.ledger.Report()
	return Result{Broken: w.broken, Trace: trace, Events: len(w.events), Calls: len(w.called)}
}

func (w *between) breach(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.Note("BROKEN: "+format, args...)
	if len(w.broken) < 20 {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

func (w *between) draw() {
	r := w.rnd
	w.parts, w.partitions = 1+r.Int32N(6), 1+r.Int32N(3)
	if r.IntN(4) > 0 {
		w.faults = 1 + r.IntN(5)
	}
	tombstones := r.IntN(2) == 0
	offsets, keys := make([]int64, w.partitions), 1+r.IntN(12)
	for range 40 + r.IntN(120) {
		p, key := r.Int32N(w.partitions), fmt.Sprint("k", r.IntN(keys))
		id := ID{p, offsets[p]}
		offsets[p]++
		rec := &kgo.Record{Topic: inTopic, Partition: p, Key: []byte(key), Headers: []kgo.RecordHeader{{Key: idHeader, Value: []byte(id.String())}}}
		switch {
		case tombstones && r.IntN(20) == 0:
		case r.IntN(20) == 0:
			rec.Value, key = []byte("?"), ""
		default:
			rec.Value = []byte(key)
		}
		w.events, w.keys = append(w.events, rec), append(w.keys, key)
	}
	w.cfg = streammanager.Config{
		Name: "sim", Workers: 1 + r.IntN(8), Order: []streammanager.Order{streammanager.OrderKey, streammanager.OrderKeySerial}[r.IntN(2)],
		Limits: streammanager.Limits{InFlightEvents: 5 + r.IntN(60)}, CommitInterval: time.Duration(100+r.IntN(3000)) * time.Millisecond,
		ShutdownTimeout: 10 * time.Second,
	}
	if r.IntN(2) == 0 {
		w.window = window.Config{Count: 1 + r.IntN(5), Timeout: time.Duration(1+r.IntN(500)) * time.Millisecond}
	}
	w.slow = time.Duration(1+r.IntN(2000)) * time.Millisecond
}

func (w *between) open() error {
	var err error
	w.vnet = new(kfake.VirtualNetwork)
	w.cluster, err = kfake.NewCluster(kfake.ListenFn(w.vnet.Listen), kfake.Ports(9092, 9093, 9094),
		kfake.SeedTopics(w.partitions, inTopic), kfake.SeedTopics(2, outTopic), kfake.SeedTopics(1, errTopic))
	if err != nil {
		return fmt.Errorf("starting the broker: %w", err)
	}
	w.addrs = []string{"localhost:9092", "localhost:9093", "localhost:9094"}
	w.client, err = kgo.NewClient(kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.vnet.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return fmt.Errorf("starting the client: %w", err)
	}
	w.admin = kadm.NewClient(w.client)
	w.ledger = NewLedger(&Plan{})
	return nil
}

// launch starts a worker, which begins anew after a failure that may pass, as under a supervisor.
func (w *between) launch() {
	k := &betweenWorker{name: fmt.Sprint("w", len(w.workers)), net: &network{inner: w.vnet}, done: make(chan error, 1)}
	w.workers = append(w.workers, k)
	ctx, cancel := context.WithCancel(context.Background())
	k.stop = cancel
	go func() {
		for {
			s, err := w.build(k)
			if err == nil {
				err = s.Run(ctx)
			}
			w.ledger.Note("%s ended: %v", k.name, err)
			if _, passes := errors.AsType[*streammanager.FailedError](err); !passes || ctx.Err() != nil {
				k.done <- err
				return
			}
			time.Sleep(time.Second)
		}
	}()
}

func (w *between) build(k *betweenWorker) (*streammanager.Stream, error) {
	at := kafka.Connection{Brokers: w.addrs, Dialer: k.net.Dial, Options: map[string]string{"metadata.max.age.ms": "5000"}}
	from := at
	from.Options = map[string]string{"metadata.max.age.ms": "5000", "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
	cfg := w.cfg
	cfg.Logger = w.ledger.logger(newBooks(w.ledger, k.name))
	b := streammanager.New(cfg)
	if err := w.ends(b, k, from, at, cfg.Logger); err != nil {
		return nil, err
	}
	return b.PartitionBy(valueKey).Window(w.window).Process(streammanager.Step{Name: "call", Func: w.step}).Build()
}

// ends gives a stream its source and sinks.
func (w *between) ends(b *streammanager.Builder, k *betweenWorker, from, at kafka.Connection, log *slog.Logger) error {
	source := kafka.SourceConfig{
		Connection: from, Topics: []string{inTopic}, Group: group, Repartition: &kafka.Repartition{Topic: betweenTopic, Partitions: w.parts},
	}
	topics := []string{outTopic, errTopic, betweenTopic}
	if w.once {
		at.Options["transaction.timeout.ms"] = transactionMillis
		cfg := kafka.TransactionConfig{ID: k.name, Source: source}
		for _, topic := range topics {
			cfg.Sinks = append(cfg.Sinks, &kafka.SinkConfig{Connection: at, Topic: topic})
		}
		tx, err := kafka.NewTransaction(cfg, log)
		if err == nil {
			b.From(tx.Source()).To(tx.Sink(0)).ErrorsTo(tx.Sink(1), nil).Repartition(betweenTopic, tx.Sink(2))
		}
		return err
	}
	src, err := kafka.NewSource(source, log)
	sinks := map[string]*kafka.Sink{}
	for _, topic := range topics {
		if err == nil {
			sinks[topic], err = kafka.NewSink(kafka.SinkConfig{Connection: at, Topic: topic}, log)
		}
	}
	if err == nil {
		b.From(src).To(sinks[outTopic]).ErrorsTo(sinks[errTopic], nil).Repartition(betweenTopic, sinks[betweenTopic])
	}
	return err
}

func valueKey(_ context.Context, ev *event.Event) (streammanager.Key, error) {
	if string(ev.Value()) == "?" {
		return streammanager.Key{}, event.Rejectf(event.MissingKey, "the plan says so")
	}
	return streammanager.Key{Value: string(ev.Value())}, nil
}

// call takes its time. No other call for the key may go on at any worker, unless a fault or a window explains it.
func (w *between) call(_ context.Context, ev *event.Event) ([]*event.Event, error) {
	key := string(ev.Value())
	id, _ := idOf(ev.Headers())
	pos := ev.Position()
	if at := (ID{pos.Partition, pos.Offset}); pos.Topic != inTopic || at != id || string(ev.Key()) != key {
		w.breach("%v is seen by a function at %v with key %q", id, pos, ev.Key())
	}
	w.mu.Lock()
	w.called[id.String()]++
	w.busy[key]++
	if w.busy[key] > 1 && w.faults == 0 && !w.once && (w.cfg.Order == streammanager.OrderKeySerial || w.window.Timeout == 0) {
		w.broken = append(w.broken, fmt.Sprintf("%v is called while another event of its key is", id))
	}
	w.mu.Unlock()
	time.Sleep(w.slow * time.Duration(1+id.Offset%5) / 5)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[key]--
	return []*event.Event{ev}, nil
}

// play writes the events, lets faults happen meanwhile, and waits until all is committed.
func (w *between) play() {
	every := max(1, len(w.events)/(w.faults+1))
	for i, rec := range w.events {
		if i%every == every-1 && w.faults > 0 {
			w.fault()
		}
		if err := w.client.ProduceSync(context.Background(), rec).FirstErr(); err != nil {
			w.breach("the simulator could not write: %v", err)
		}
		time.Sleep(time.Duration(w.rnd.IntN(500)) * time.Millisecond)
	}
	w.lasting.Wait()
	w.launch()
	for i := range 1800 {
		time.Sleep(time.Second)
		if i >= 900 && i%60 == 0 {
			w.evict(true) // the broker in memory may have lost count of its members
		}
		if w.behindOf(inTopic) == 0 && w.behindOf(betweenTopic) == 0 {
			return
		}
	}
	w.breach("not at rest half an hour after the last fault: %d of the input and %d of the topic in between are not committed; group %s",
		w.behindOf(inTopic), w.behindOf(betweenTopic), w.members())
}

// behindOf returns how many records of a topic are not committed. Where records were deleted, those are.
func (w *between) behindOf(topic string) (n int64) {
	got, err := w.admin.FetchOffsets(context.Background(), group)
	infos := w.cluster.PartitionInfos(topic)
	if err != nil || len(infos) == 0 {
		return 1
	}
	for _, info := range infos {
		at := int64(0)
		if o, ok := got.Lookup(topic, info.Partition); ok {
			at = max(0, o.At)
		}
		if at < info.LogStartOffset {
			w.breach("records of %s/%d are deleted up to %d, which is committed to %d", topic, info.Partition, info.LogStartOffset, at)
		}
		n += info.HighWatermark - at
	}
	return n
}
