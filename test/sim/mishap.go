package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mishap carries out a fault that ways has drawn.
func (w *world) mishap(f fault) {
	switch f.kind {
	case stall:
		w.holdUp(f, (*network).hush)
	case stop:
		w.holdUp(f, (*network).freeze)
	case outage:
		w.outage(f)
	case rights:
		w.rights(f)
	case garble:
		w.garble(f)
	case crashAt:
		w.crashAt(f)
	case trim:
		w.trim(f)
	case reset:
		w.reset(f)
	case remakeIn:
		w.remakeIn(f)
	case remakeOut:
		w.remakeOut(f)
	case twin:
		if alive := w.running(); len(alive) > 0 {
			w.launchAs(alive[f.who%len(alive)].slot)
		}
	case refuseTxn:
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{f.key}})
	}
}

// holdUp does something to all connections of a worker, and ends it.
func (w *world) holdUp(f fault, how func(*network)) {
	alive := w.running()
	if len(alive) == 0 {
		return
	}
	k := alive[f.who%len(alive)]
	for _, n := range k.networks() {
		how(n)
	}
	time.Sleep(f.lasts)
	k.open()
}

// outage lets no sink of any worker reach a broker.
func (w *world) outage(f fault) {
	how := (*network).hush
	if f.way%2 == 0 {
		how = (*network).cut
	}
	w.mu.Lock()
	w.dark = how
	all := slices.Clone(w.workers)
	w.mu.Unlock()
	for _, k := range all {
		how(k.out)
	}
	time.Sleep(f.lasts)
	w.mu.Lock()
	w.dark = nil
	all = slices.Clone(w.workers)
	w.mu.Unlock()
	for _, k := range all {
		k.open()
	}
}

// rights takes rights away.
func (w *world) rights(f fault) {
	faults := []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata, kmsg.DescribeConfigs}, Topic: outTopic, Err: kerr.TopicAuthorizationFailed},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: errTopic, Err: kerr.TopicAuthorizationFailed},
		{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetCommit}, Topic: inTopic, Err: kerr.TopicAuthorizationFailed},
		{Keys: []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetCommit, kmsg.OffsetFetch}, Group: group, Err: kerr.GroupAuthorizationFailed},
	}
	taken := faults[f.way%len(faults)]
	taken.Count = -1
	h := w.cluster.Fault(taken)
	time.Sleep(f.lasts)
	h.Remove()
}

// garble has the brokers keep something else beside offsets than what was written there.
func (w *world) garble(f fault) {
	if f.way%6 == 0 {
		f.code = kerr.OffsetMetadataTooLarge
		w.refuse(f, kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit, kmsg.TxnOffsetCommit}, Group: group})
		return
	}
	ways := []func(string) string{
		func(string) string { return "sim: \x00 what nobody wrote \xff" },
		func(s string) string { return strings.Replace(s, "enricher/1", "enricher/2", 1) },
		func(s string) string { return s[:len(s)/2] },
		func(string) string { return "" },
		func(s string) string {
			if w.plan.exactlyOnce { // it would begin anew, as it must
				return s
			}
			return strings.Replace(s, "topic=", "topic=AAAA", 1)[:len(s)] + "A"
		},
	}
	how := ways[f.way%len(ways)]
	w.garbled.Store(&how)
	time.Sleep(f.lasts)
	w.garbled.Store(nil)
}

// garbles changes what stands beside offsets on its way to the broker.
func (w *world) garbles(text **string) {
	how := w.garbled.Load()
	if how == nil || *text == nil {
		return
	}
	changed := (*how)(**text)
	w.ledger.did("commit with garbled metadata")
	*text = &changed
}

// crashAt kills a worker as it sends a request of a kind, or, where it sends none, after a while.
func (w *world) crashAt(f fault) {
	alive := w.running()
	if len(alive) == 0 {
		w.launch()
		return
	}
	k := alive[f.who%len(alive)]
	sprung, once := make(chan struct{}), sync.Once{}
	t := &trap{key: int16(f.key), before: f.way%2 == 0, spring: func() {
		once.Do(func() {
			w.ledger.Note("%s meets its end at %s (before: %v)", k.name, f.key.Name(), f.way%2 == 0)
			w.kill(k)
			close(sprung)
		})
	}}
	for _, n := range k.networks() {
		n.arm(t)
	}
	late := time.NewTimer(f.lasts)
	defer late.Stop()
	select {
	case <-sprung:
		w.ledger.did("crash at a step")
	case <-late.C:
		for _, n := range k.networks() {
			n.arm(nil)
		}
		w.kill(k)
	}
	time.Sleep(f.lasts / 4)
	w.launch()
}

// trim deletes the records of partitions up to somewhere between what is committed and the end.
func (w *world) trim(f fault) {
	infos := w.cluster.PartitionInfos(inTopic)
	r := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.at)))
	for _, info := range infos {
		if r.IntN(2) == 0 {
			continue
		}
		l := w.ledger
		l.mu.Lock()
		from := l.committed[info.Partition]
		to := from + r.Int64N(max(info.HighWatermark-from, 0)+1)
		n := 0
		for _, in := range w.plan.inputs {
			if in.id.Partition == info.Partition && in.id.Offset < to {
				if !l.gone[in.id] && !l.finished[in.id] {
					n++
				}
				l.gone[in.id] = true
			}
		}
		l.note("partition %d is deleted up to %d, with %d events that are not finished", info.Partition, to, n)
		l.mu.Unlock()
		if err := w.cluster.DeleteRecords(inTopic, info.Partition, to); err != nil {
			w.ledger.Note("deleting records: %v", err)
		}
	}
}

// vacate stops all workers, starts none until the returned function is called, and reports whether the group
// is empty.
func (w *world) vacate() (empty bool, again func()) {
	w.mu.Lock()
	w.waiting++
	w.mu.Unlock()
	for _, k := range w.running() {
		w.halt(k)
	}
	w.mu.Lock()
	all := slices.Clone(w.workers)
	w.mu.Unlock()
	for _, k := range all {
		select {
		case <-k.done:
		case <-time.After(2 * time.Minute):
		}
	}
	for range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		got, err := w.admin.DescribeGroups(ctx, group)
		cancel()
		if err == nil && (got[group].State == "Empty" || got[group].State == "Dead") {
			empty = true
			break
		}
		w.evict(false)
		time.Sleep(time.Second)
	}
	return empty, func() {
		w.mu.Lock()
		w.waiting--
		late := w.late
		if w.waiting == 0 {
			w.late = 0
		} else {
			late = 0
		}
		w.mu.Unlock()
		for range max(late, 1) {
			w.launch()
		}
	}
}

// reset sets the group to other offsets, as an operator does while nobody reads: back, or ahead.
func (w *world) reset(f fault) {
	empty, again := w.vacate()
	defer again()
	if !empty {
		w.ledger.Note("the group does not become empty, its offsets stay")
		return
	}
	time.Sleep(f.lasts / 4)
	r := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.at)))
	to := kadm.Offsets{}
	committed := w.committed()
	for _, info := range w.cluster.PartitionInfos(inTopic) {
		at, ok := committed[info.Partition]
		if !ok {
			continue
		}
		if r.IntN(2) == 0 && !w.plan.exactlyOnce {
			at = r.Int64N(at + 1)
		} else {
			at += r.Int64N(max(info.HighWatermark-at, 0) + 1)
		}
		to.AddOffset(inTopic, info.Partition, at, -1)
	}
	w.setOffsets(to)
}

// committed asks what the group has committed.
func (w *world) committed() map[int32]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := w.admin.FetchOffsets(kadm.RequireStable(ctx), group)
	if err != nil {
		w.ledger.Note("fetching offsets: %v", err)
		return nil
	}
	at := map[int32]int64{}
	for partition, o := range got[inTopic] {
		if o.Err == nil && o.At >= 0 {
			at[partition] = o.At
		}
	}
	return at
}

// setOffsets commits from outside, and notes what is passed over by it.
func (w *world) setOffsets(to kadm.Offsets) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := w.admin.CommitOffsets(ctx, group, to)
	if err == nil {
		err = got.Error()
	}
	if err != nil { // a fault that refuses commits, some of which are carried out all the same
		w.ledger.Note("setting offsets: %v", err)
		now := w.committed()
		to.KeepFunc(func(o kadm.Offset) bool { at, ok := now[o.Partition]; return ok && at == o.At })
	}
	if len(to[inTopic]) == 0 {
		return
	}
	l := w.ledger
	l.did("offsets set")
	l.mu.Lock()
	defer l.mu.Unlock()
	to.Each(func(o kadm.Offset) {
		l.note("partition %d is set from %d to %d", o.Partition, l.committed[o.Partition], o.At)
		l.passOver(o.Partition, l.committed[o.Partition], o.At)
		l.committed[o.Partition] = o.At
	})
}

// passOver notes that events from one offset to another may not be read again.
func (l *Ledger) passOver(partition int32, from, to int64) {
	for _, in := range l.plan.inputs {
		if id := in.id; id.Partition == partition && id.Offset >= from && id.Offset < to {
			l.gone[id], l.behindUs[id] = true, true
		}
	}
}

// remakeIn deletes the input topic and makes it again, between two events.
func (w *world) remakeIn(f fault) {
	<-w.firstHalf
	w.ledger.mu.Lock()
	for _, in := range w.plan.inputs {
		if in.id.Offset < generation {
			w.ledger.gone[in.id] = true
		}
	}
	w.ledger.mu.Unlock()
	w.remake(f, inTopic, w.plan.seeded)
	writer, err := w.newClient()
	if err != nil {
		w.ledger.Breach("the simulator could not make a client: %v", err)
	} else {
		w.client.PurgeTopicsFromProducing(inTopic)
		w.writer = writer
	}
	close(w.secondHalf)
}

// remakeOut deletes the output topic and makes it again, and notes which outputs went with it.
func (w *world) remakeOut(f fault) {
	w.remaking.Lock()
	defer w.remaking.Unlock()
	h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: outTopic, Err: kerr.NotLeaderForPartition, Count: -1})
	defer h.Remove()
	l := w.ledger
	before := w.consumeAs(outTopic, kgo.ReadUncommitted())
	l.mu.Lock()
	for _, r := range before {
		if id, ok := idOf(streamHeaders(r)); ok {
			l.lost[id] = true
		}
	}
	l.note("the output topic is deleted with %d records", len(before))
	l.mu.Unlock()
	w.remake(f, outTopic, w.plan.outputs)
}

func (w *world) remake(f fault, topic string, partitions int32) {
	err := w.cluster.DeleteTopic(topic)
	time.Sleep(f.lasts / 5)
	if err == nil {
		err = w.cluster.CreateTopic(topic, partitions, nil)
	}
	if err != nil {
		w.ledger.Breach("the simulator could not make topic %s again: %v", topic, err)
	}
	w.ledger.did(fmt.Sprintf("topic %s made again", topic))
}
