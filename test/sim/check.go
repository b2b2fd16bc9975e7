package sim

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// lane is what was read back of a key, of one source partition and one sink partition.
type lane struct {
	latest ID // the last in the source
	seen   map[ID]bool
	owed   map[ID]ID // what has overtaken a refused one, and is to come once more
}

// checkPlace holds an output to the order of its key. One that the sink has refused may have been overtaken by those that were
// sent before that was known: these are written again behind it.
func (w *world) checkPlace(l *lane, key string, id ID, first bool) {
	delete(l.owed, id)
	if l.latest.Offset > id.Offset && first {
		if !w.ledger.refused[id] {
			w.ledger.Breach("output %v of key %s stands first behind %v", id, key, l.latest)
			return
		}
		for other := range l.seen {
			if other.Offset > id.Offset {
				l.owed[other] = id
			}
		}
	}
	l.seen[id] = true
	if l.latest.Offset < id.Offset {
		l.latest = id
	}
}

func (w *world) checkOwed(l *lane, name string) {
	for overtook, id := range l.owed {
		if !w.ledger.lost[overtook] {
			w.ledger.Breach("output %v of key %s has overtaken %v, which the sink had refused, and is not there again behind it", overtook, name, id)
		}
	}
}

// readBack reads both output topics and checks that each event had its outcome.
func (w *world) readBack() {
	outputs, failures := w.consume(outTopic), w.consume(errTopic)
	seen := map[ID]map[string]int{}
	errs := map[ID]int{}
	lanes := map[string]*lane{} // by key, source and sink partition
	for _, r := range outputs {
		id, in := w.written(r)
		if in == nil {
			continue
		}
		if seen[id] == nil {
			seen[id] = map[string]int{}
		}
		path := partsOf(r)
		seen[id][path]++
		w.checkOutput(in, r)
		// Without a key of its own a record may go to any partition. What a call for others took along once may
		// be written behind later events when it is read again.
		if in.kind == keyed && in.key != nil && w.plan.set.order != streammanager.OrderNone && !w.ledger.anyPlace(id) {
			name := in.lane + "/" + strconv.Itoa(int(id.Partition)) + "/" + strconv.Itoa(int(r.Partition))
			if lanes[name] == nil {
				lanes[name] = &lane{seen: map[ID]bool{}, owed: map[ID]ID{}}
			}
			w.checkPlace(lanes[name], in.lane, id, seen[id][path] == 1)
		}
	}
	for name, l := range lanes {
		w.checkOwed(l, name)
	}
	for _, r := range failures {
		if id, in := w.written(r); in != nil {
			errs[id]++
			w.checkFailure(in, r)
		}
	}
	for _, in := range w.plan.inputs {
		if w.plan.once {
			w.checkOnce(in, seen[in.id], errs[in.id])
			continue
		}
		w.checkOutcome(in, seen[in.id], errs[in.id])
	}
}

func (w *world) written(r *kgo.Record) (ID, *input) {
	id, ok := idOf(streamHeaders(r))
	in := w.plan.byID[id]
	if !ok || in == nil {
		w.ledger.Breach("%s holds a record that no event explains: %v", r.Topic, r.Headers)
		return id, nil
	}
	return id, in
}

// checkOutcome compares what an event came to with what it must come to.
func (w *world) checkOutcome(in *input, paths map[string]int, errs int) {
	l := w.ledger
	want := w.plan.expect(in)
	l.mu.Lock()
	read, shared := l.delivered[in.id], len(l.shared[in.id]) > 0
	free := l.gone[in.id] || l.lost[in.id] // nobody may have read it, or seen what became of it
	l.mu.Unlock()
	most := 0
	for _, n := range paths {
		most = max(most, n)
	}
	wantErrs := 0
	if want.failed() && w.plan.set.errorSink {
		wantErrs = 1
	}
	switch {
	case free && len(paths) <= want.outputs && (errs == 0 || wantErrs > 0 || shared):
	case w.plan.exactlyOnce && shared && (errs > 0) == (len(paths) > 0) && want.outputs > 0:
		l.Breach("%v has %d outputs and %d error events in committed transactions, want one kind", in.id, len(paths), errs)
	case shared && errs > 0 && (len(paths) == 0 || len(paths) == want.outputs):
		// A call for others took it along, at least once.
	case len(paths) != want.outputs:
		l.Breach("%v has %d different outputs, want %d", in.id, len(paths), want.outputs)
	case errs < wantErrs || wantErrs == 0 && errs > 0:
		l.Breach("%v has %d error events, want %d (%s)", in.id, errs, wantErrs, want.errType)
	}
	if (most > read || errs > read) && !w.plan.light() {
		l.Breach("%v was read %d times, but written %d times and %d times as an error event", in.id, read, most, errs)
	}
	if !w.plan.mayRepeat() && (most > 1 || errs > 1) {
		l.Breach("%v was written %d times (error events: %d) though no fault explains it", in.id, most, errs)
	}
}

// checkOutput compares a record with its event: no byte may have changed but what functions added.
func (w *world) checkOutput(in *input, r *kgo.Record) {
	grown := 0
	for _, a := range in.acts {
		if a.kind != actSkip {
			grown += a.grow
		}
	}
	if in.value == nil {
		if r.Value != nil {
			w.ledger.Breach("tombstone %v left with a value of %d bytes", in.id, len(r.Value))
		}
		return
	}
	rest, ok := bytes.CutPrefix(r.Value, in.value)
	if !ok || len(rest) != grown || len(bytes.TrimSpace(rest)) > 0 {
		w.ledger.Breach("%v left with value %q, came with %q and %d blanks to add", in.id, r.Value, in.value, grown)
	}
	if !bytes.Equal(r.Key, in.key) || (r.Key == nil) != (in.key == nil) {
		w.ledger.Breach("%v left with key %q, came with %q", in.id, r.Key, in.key)
	}
}

// checkFailure compares an error event with what the plan says.
func (w *world) checkFailure(in *input, r *kgo.Record) {
	want, got := w.plan.expect(in), map[string]string{}
	for _, h := range r.Headers {
		got[h.Key] = string(h.Value)
	}
	w.ledger.mu.Lock()
	for _, other := range w.ledger.shared[in.id] {
		if got["enricher.error.type"] == string(other.errType) && got["enricher.error.function"] == other.function {
			want = other
		}
	}
	w.ledger.mu.Unlock()
	if got["enricher.error.type"] != string(want.errType) || got["enricher.error.function"] != want.function {
		w.ledger.Breach("error event of %v says type %q of %q, want %q of %q: %s", in.id, got["enricher.error.type"],
			got["enricher.error.function"], want.errType, want.function, got["enricher.error.message"])
	}
	if n := got["enricher.error.attempts"]; want.attempts > 0 && n != strconv.Itoa(want.attempts) {
		w.ledger.Breach("error event of %v says %s attempts, want %d", in.id, n, want.attempts)
	}
	if got["enricher.error.offset"] != strconv.FormatInt(in.id.Offset%generation, 10) {
		w.ledger.Breach("error event of %v says offset %s", in.id, got["enricher.error.offset"])
	}
	if !bytes.Equal(r.Value, in.value) || !bytes.Equal(r.Key, in.key) || (r.Value == nil) != (in.value == nil) {
		w.ledger.Breach("error event of %v does not hold the original key and value", in.id)
	}
}

// consume reads what is committed of a topic from its start to its end.
func (w *world) consume(topic string) []*kgo.Record {
	return w.consumeAs(topic, kgo.ReadCommitted())
}

func (w *world) consumeAs(topic string, level kgo.IsolationLevel) []*kgo.Record {
	ends := map[int32]int64{}
	starts := map[string]map[int32]kgo.Offset{topic: {}}
	for _, info := range w.cluster.PartitionInfos(topic) {
		if info.HighWatermark > 0 {
			ends[info.Partition] = info.HighWatermark
			starts[topic][info.Partition] = kgo.NewOffset().AtStart()
			if info.LogStartOffset >= info.HighWatermark {
				delete(ends, info.Partition)
				delete(starts[topic], info.Partition)
			}
		}
	}
	if len(ends) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.vnet.DialContext), kgo.ConsumePartitions(starts), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(level))
	if err != nil {
		w.ledger.Breach("reading topic %q back: %v", topic, err)
		return nil
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var all []*kgo.Record
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			w.ledger.Breach("reading topic %q back: %v", topic, ctx.Err())
			return all
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	return all
}

func streamHeaders(r *kgo.Record) []event.Header {
	headers := make([]event.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = event.Header{Key: h.Key, Value: h.Value}
	}
	return headers
}

// partsOf tells the outputs of one event apart.
func partsOf(r *kgo.Record) string {
	path := ""
	for _, h := range r.Headers {
		if h.Key == partHeader {
			path += "." + string(h.Value)
		}
	}
	return path
}
