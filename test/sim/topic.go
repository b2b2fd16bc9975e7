package sim

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load writes the events at their times, each to its partition.
func (w *world) load() {
	var sent sync.WaitGroup
	remade := false
	for _, in := range w.plan.inputs {
		w.until(in.at)
		if in.id.Offset >= generation && !remade {
			sent.Wait()
			remade = true
			close(w.firstHalf)
			<-w.secondHalf
		}
		for !w.exists(in.id.Partition) {
			time.Sleep(200 * time.Millisecond)
		}
		if in.aborted > 0 || in.txn {
			sent.Wait()
		}
		if in.aborted > 0 {
			w.abort(in)
		}
		if in.txn {
			w.transact(kgo.TryCommit, recordFor(in))
			continue
		}
		sent.Add(1)
		w.writer.Produce(context.Background(), recordFor(in), func(r *kgo.Record, err error) {
			defer sent.Done()
			if err != nil || r.Offset != in.id.Offset%generation {
				w.ledger.Breach("the simulator could not write %v: offset %d, %v", in.id, r.Offset, err)
			}
		})
	}
	sent.Wait()
	if !remade {
		close(w.firstHalf)
	}
}

func recordFor(in *input) *kgo.Record {
	r := &kgo.Record{Topic: inTopic, Partition: in.id.Partition, Key: in.key, Value: in.value}
	for _, h := range headersOf(in) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// abort writes the records before an event that no reader may see.
func (w *world) abort(before *input) {
	records := make([]*kgo.Record, before.aborted)
	for i := range records {
		records[i] = &kgo.Record{Topic: inTopic, Partition: before.id.Partition, Key: []byte("aborted " + strconv.Itoa(i)), Value: []byte("aborted")}
	}
	w.transact(kgo.TryAbort, records...)
}

// transact writes records in a transaction of their own.
func (w *world) transact(end kgo.TransactionEndTry, records ...*kgo.Record) {
	ctx := context.Background()
	var err error
	if w.txn == nil {
		w.txn, err = kgo.NewClient(
			kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.vnet.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerLinger(0), kgo.TransactionalID("sim"),
		)
	}
	if err == nil {
		err = w.txn.BeginTransaction()
	}
	if err == nil {
		err = w.txn.ProduceSync(ctx, records...).FirstErr()
	}
	if err == nil {
		err = w.txn.EndTransaction(ctx, end)
	}
	if err != nil {
		w.ledger.Breach("the simulator could not write a transaction: %v", err)
	}
}

func (w *world) exists(partition int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return partition < w.partitions
}

func (w *world) until(at time.Duration) {
	time.Sleep(at - time.Since(w.ledger.start))
}

func (w *world) grow() {
	got, err := w.admin.CreatePartitions(context.Background(), 1, inTopic)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		w.ledger.Breach("the simulator could not add a partition: %v", err)
		return
	}
	w.mu.Lock()
	w.partitions++
	w.mu.Unlock()
	w.client.ForceMetadataRefresh()
}

// compact lets the broker compact the input topic, and finds out what is left of it.
func (w *world) compact() {
	w.compacting.Lock() // else another one takes away what this one finds to be there
	defer w.compacting.Unlock()
	ctx := context.Background()
	l := w.ledger
	l.mu.Lock()
	candidates := w.plan.superseded()
	for id := range candidates {
		if l.gone[id] { // it is not read any more, whether it is there or not
			delete(candidates, id)
		}
		l.gone[id] = true
	}
	l.mu.Unlock()
	w.policy(ctx, "compact")
	w.cluster.Compact()
	w.policy(ctx, "delete")
	ends := map[int32]int64{}
	for _, info := range w.cluster.PartitionInfos(inTopic) {
		ends[info.Partition] = info.HighWatermark
	}
	left := map[ID]bool{}
	for _, r := range w.consume(inTopic) {
		left[ID{r.Partition, r.Offset}] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for id := range candidates {
		if left[id] || id.Offset >= ends[id.Partition] {
			if !l.behindUs[id] {
				delete(l.gone, id)
			}
			continue
		}
		n++
	}
	l.note("compacted: %d events are gone", n)
}

func (w *world) policy(ctx context.Context, policy string) {
	got, err := w.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "cleanup.policy", Value: &policy}}, inTopic)
	for _, r := range got {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		w.ledger.Breach("the simulator could not set the topic's policy: %v", err)
	}
}

// superseded returns the events with a later one of the same record key behind them in their partition.
func (p *Plan) superseded() map[ID]bool {
	type place struct {
		partition int32
		key       string
	}
	latest, old := map[place]int64{}, map[ID]bool{}
	for _, in := range p.inputs {
		at := place{in.id.Partition, string(in.key)}
		latest[at] = max(latest[at], in.id.Offset)
	}
	for _, in := range p.inputs {
		if in.id.Offset < latest[place{in.id.Partition, string(in.key)}] {
			old[in.id] = true
		}
	}
	return old
}
