package sim

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// world is everything of one simulation.
type world struct {
	plan    *Plan
	ledger  *Ledger
	vnet    *kfake.VirtualNetwork
	cluster *kfake.Cluster
	addrs   []string
	client  *kgo.Client // looks at offsets
	writer  *kgo.Client // writes the workload; client, or another once the topic was made again
	admin   *kadm.Client
	txn     *kgo.Client // writes transactions; nil where the plan has none
	mended  atomic.Bool // what stops streams was mended
	garbled atomic.Pointer[func(string) string]
	// Both are closed by what makes the input topic again, if a plan has that: when all is written that comes
	// before it, and when the topic is there.
	firstHalf, secondHalf chan struct{}
	remaking              turn // held while the output topic is made again
	compacting            turn // held while the input topic is compacted

	api api
	end chan struct{}
	all sync.WaitGroup // the workers' goroutines

	mu         sync.Mutex // guards all below
	workers    []*worker
	started    int
	partitions int32
	deaths     int  // streams that ended with an error, as they had to
	closing    bool // nothing is started any more
	waiting    int  // how many want nothing to be started
	late       int  // workers that were to be started meanwhile
	moving     bool // somebody sets the group to later offsets
	dark       func(*network)
}

// Result is what came of a simulation.
type Result struct {
	Broken []string // promises that were broken; none: all is well
	Trace  []string
	Calls  int
	Events int
	Deaths int // streams that ended with an error, as they had to
	Shared int // events that a call for others took along
	Gone   int // events that were compacted away
	Passed int // events that were passed over when they were read again
	Deeds  map[string]int
}

// Run carries a plan out. It must be called inside a synctest bubble.
func Run(p *Plan) Result {
	w := &world{
		plan: p, ledger: NewLedger(p), vnet: new(kfake.VirtualNetwork), end: make(chan struct{}), partitions: p.seeded,
		firstHalf: make(chan struct{}), secondHalf: make(chan struct{}), remaking: make(turn, 1),
		compacting: make(turn, 1),
	}
	w.ledger.Note("%v", p)
	if err := w.open(); err != nil {
		return Result{Broken: []string{err.Error()}}
	}
	w.play()
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	return Result{
		Broken: w.ledger.broken, Trace: w.ledger.trace, Calls: w.ledger.calls, Events: len(p.inputs), Deaths: w.deaths,
		Shared: len(w.ledger.shared), Gone: len(w.ledger.gone), Passed: w.ledger.passed, Deeds: w.ledger.deeds,
	}
}

func (w *world) open() error {
	var err error
	w.cluster, err = kfake.NewCluster(
		kfake.ListenFn(w.vnet.Listen), kfake.Ports(9092, 9093, 9094),
		kfake.SeedTopics(w.plan.seeded, inTopic), kfake.SeedTopics(w.plan.outputs, outTopic), kfake.SeedTopics(2, errTopic),
	)
	if err != nil {
		return fmt.Errorf("starting the broker: %w", err)
	}
	w.addrs = []string{"localhost:9092", "localhost:9093", "localhost:9094"}
	if w.client, err = w.newClient(); err != nil {
		w.cluster.Close()
		return fmt.Errorf("starting the client: %w", err)
	}
	w.writer = w.client
	w.admin = kadm.NewClient(w.client)
	w.cluster.ControlKey(int16(kmsg.OffsetCommit), w.watchCommits)
	w.cluster.ControlKey(int16(kmsg.TxnOffsetCommit), w.watchBound)
	w.poison()
	return nil
}

func (w *world) newClient() (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.vnet.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerLinger(0),
	)
}

// watchCommits looks at each commit as the broker gets it.
func (w *world) watchCommits(kreq kmsg.Request) (kmsg.Response, error, bool) {
	req, ok := kreq.(*kmsg.OffsetCommitRequest)
	if !ok {
		return nil, nil, false
	}
	for _, t := range req.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if !w.plan.light() && !w.plan.exactlyOnce && req.MemberID != "" { // an operator has none
				w.ledger.commitSeen(p.Partition, p.Offset)
			}
			w.garbles(&p.Metadata)
		}
	}
	return nil, nil, false
}

// watchBound does the same with what transactions commit, which the source's own end has looked at.
func (w *world) watchBound(kreq kmsg.Request) (kmsg.Response, error, bool) {
	if req, ok := kreq.(*kmsg.TxnOffsetCommitRequest); ok {
		w.ledger.Note("broker: transaction %s of member %s (generation %d) commits %v", req.TransactionalID, req.MemberID, req.Generation, req.Topics)
		for _, t := range req.Topics {
			for i := range t.Partitions {
				w.garbles(&t.Partitions[i].Metadata)
			}
		}
	}
	return nil, nil, false
}

// poison lets the broker refuse each batch that holds a poisoned event, as one that is too large.
func (w *world) poison() {
	for p := range w.plan.outputs {
		w.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: outTopic, Partitions: []int32{p}, Err: kerr.MessageTooLarge, Count: -1,
			When: func(kreq kmsg.Request) bool { return holdsPoison(kreq, p) },
		})
	}
}

func holdsPoison(kreq kmsg.Request, partition int32) bool {
	req, ok := kreq.(*kmsg.ProduceRequest)
	if !ok {
		return false
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			// An error event, which may be in the same request, holds the header too.
			if p.Partition == partition && bytes.Contains(p.Records, []byte(poisonHeader)) && !bytes.Contains(p.Records, []byte("enricher.error.type")) {
				return true
			}
		}
	}
	return false
}

// play runs the schedule, waits for quiet, checks, and ends everything.
func (w *world) play() {
	var acts sync.WaitGroup
	acts.Go(func() {
		w.until(w.plan.begins)
		for range w.plan.members {
			w.launch()
		}
	})
	acts.Go(w.load)
	for _, f := range w.plan.faults {
		acts.Go(func() { w.happen(f) })
	}
	acts.Wait()
	w.ledger.Note("all faults have ended")
	if len(w.running()) == 0 {
		w.launch()
	}
	w.quiet()
	w.mu.Lock()
	w.closing = true
	all := slices.Clone(w.workers)
	w.mu.Unlock()
	for _, k := range w.running() {
		w.halt(k)
	}
	for _, k := range all {
		w.ended(k)
	}
	w.readBack()
	if w.writer != w.client {
		w.writer.Close()
	}
	w.client.Close()
	if w.txn != nil {
		w.txn.Close()
	}
	w.cluster.Close()
	close(w.end)
	w.all.Wait()
	for _, k := range all {
		for _, n := range k.networks() {
			n.cut()
		}
	}
	time.Sleep(lastRead)
}

// lastRead is how long a client that was closed may still read from a connection that it was about to make.
const lastRead = 15 * time.Second

// happen carries one fault out, from its beginning to its end.
func (w *world) happen(f fault) {
	w.until(f.at)
	w.ledger.Note("fault: %v", f)
	defer w.ledger.Note("fault ended: %v", f)
	switch f.kind {
	case crash, join, leave, stopAll, glitch, partitioned:
		w.workersFault(f)
	case refuseOutput:
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: outTopic})
	case refuseError:
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: errTopic})
	case refuseCommit:
		if w.plan.once {
			w.refuseEnds(f)
			return
		}
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: group})
	case refuseBeat:
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: group})
	case refuseFetch:
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: inTopic})
	case moveGroup:
		w.cluster.RehashCoordinators()
	case moveLeaders:
		w.cluster.ShufflePartitionLeaders()
	case addPartition:
		w.grow()
	case slowAPI:
		w.api.set(10, time.Time{})
		time.Sleep(f.lasts)
		w.api.set(1, time.Time{})
	case downAPI:
		w.api.set(1, time.Now().Add(f.lasts))
	case compaction:
		w.compact()
	default:
		w.mishap(f)
	}
}

func (w *world) workersFault(f fault) {
	alive := w.running()
	if f.kind == join || len(alive) == 0 {
		w.launch()
		return
	}
	k := alive[f.who%len(alive)]
	switch f.kind {
	case crash:
		w.kill(k)
		time.Sleep(f.lasts / 4)
		w.launch()
	case leave:
		w.halt(k)
		time.Sleep(f.lasts)
		w.launch()
	case stopAll:
		for _, k := range alive {
			w.halt(k)
		}
		time.Sleep(f.lasts)
		w.launch()
	case glitch:
		k.net.drop()
	case partitioned:
		k.net.cut()
		time.Sleep(f.lasts)
		k.b.l.mu.Lock()
		dead := k.b.killed
		k.b.l.mu.Unlock()
		if !dead {
			k.open()
		}
	}
}

func (w *world) refuse(f fault, how kfake.Fault) {
	how.Err, how.Count = f.code, f.count
	h := w.cluster.Fault(how)
	time.Sleep(f.lasts)
	h.Remove()
}

// turn is a lock that is held while time passes, which waiting for a sync.Mutex would stop.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }
