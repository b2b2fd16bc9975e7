package sim

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// patience is how much virtual time a stream gets to come to rest once all faults have ended.
const patience = 15 * time.Minute

// quiet waits until everything is finished and committed, and checks that nothing is held then.
func (w *world) quiet() {
	deadline := time.Now().Add(patience)
	for {
		behind := w.behind()
		if behind == "" && (w.plan.once || w.ledger.unfinished() == 0) {
			break
		}
		if time.Now().After(deadline) {
			w.stuck(behind)
			return
		}
		if time.Now().After(deadline.Add(-patience / 2)) {
			w.evict(time.Now().After(deadline.Add(-patience / 4)))
		}
		time.Sleep(500 * time.Millisecond)
	}
	w.ledger.Note("all is finished and committed")
	for _, k := range w.running() {
		w.idle(k)
	}
}

// idle checks that a worker with nothing to do holds nothing. It may take some time until it knows, such
// as when the answer to a write is still to come or an abandoned call to return.
func (w *world) idle(k *worker) {
	for range 60 {
		select {
		case <-k.done:
			if !w.mayFail(k) {
				w.ledger.Breach("%s ended by itself: %v", k.name, k.err)
			}
			return
		default:
		}
		if st := k.stream.Status(); st.InFlightEvents == 0 && st.InFlightBytes == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	st := k.stream.Status()
	w.ledger.Breach("%s holds %d events of %d bytes with nothing to do", k.name, st.InFlightEvents, st.InFlightBytes)
}

// evict takes dead workers out of the group: the broker in memory keeps a member for ever that vanished
// between its join and its sync, where Kafka's own lets its session end. Where the group still waits for
// somebody to join long after the last fault, it has lost count of who has, and all are taken out: those
// that live join anew.
func (w *world) evict(all bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	got, err := w.admin.DescribeGroups(ctx, group)
	if err != nil {
		return
	}
	joining := got[group].State == "PreparingRebalance"
	for _, m := range got[group].Members {
		if !w.isDead(m.ClientID) && !(joining && all) {
			continue
		}
		w.ledger.Note("%s is still in the group and is taken out", m.ClientID)
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = group
		gone := kmsg.NewLeaveGroupRequestMember()
		gone.MemberID = m.MemberID
		req.Members = append(req.Members, gone)
		if _, err := req.RequestWith(ctx, w.client); err != nil {
			w.ledger.Note("taking it out: %v", err)
		}
	}
}

func (w *world) isDead(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.workers {
		if k.name == name {
			return !k.asked.IsZero()
		}
	}
	return false
}

// stuck says what did not finish.
func (w *world) stuck(behind string) {
	members := w.members()
	l := w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []string
	for _, in := range l.plan.inputs {
		if !l.finished[in.id] && !l.gone[in.id] && len(open) < 10 {
			open = append(open, in.id.String())
		}
	}
	l.breach("not at rest %v after the last fault: unfinished %v %s; group %s", patience, open, behind, members)
}

// members tells how the group stands.
func (w *world) members() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	got, err := w.admin.DescribeGroups(ctx, group)
	if err != nil {
		return err.Error()
	}
	text := got[group].State
	for _, m := range got[group].Members {
		text += " " + m.ClientID
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				text += fmt.Sprint(t.Partitions)
			}
		}
	}
	return text
}

// behind tells which partitions are not committed up to their end.
func (w *world) behind() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	got, err := w.admin.FetchOffsets(ctx, group)
	if err != nil {
		return "fetching offsets: " + err.Error()
	}
	var text strings.Builder
	for _, info := range w.cluster.PartitionInfos(inTopic) {
		at := int64(0)
		if o, ok := got.Lookup(inTopic, info.Partition); ok {
			at = max(0, o.At)
		}
		if at > info.HighWatermark {
			w.ledger.Breach("partition %d is committed at %d, behind its end %d", info.Partition, at, info.HighWatermark)
		}
		if at < info.HighWatermark {
			text.WriteString("; partition " + strconv.Itoa(int(info.Partition)) + " committed at " + strconv.FormatInt(at, 10) + " of " + strconv.FormatInt(info.HighWatermark, 10))
		}
	}
	return text.String()
}

// readBack reads both output topics and checks that each event had its outcome.
func (w *world) readBack() {
	outputs, failures := w.consume(outTopic), w.consume(errTopic)
	seen := map[ID]map[string]int{}
	errs := map[ID]int{}
	latest := map[string]ID{} // by key, source and sink partition
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
		if in.kind == keyed && in.key != nil && w.plan.set.order != streammanager.OrderNone && !w.ledger.tookAlong(id) {
			lane := in.lane + "/" + strconv.Itoa(int(id.Partition)) + "/" + strconv.Itoa(int(r.Partition))
			if before, ok := latest[lane]; ok && before.Offset > id.Offset && seen[id][path] == 1 {
				w.ledger.Breach("output %v of key %s stands first behind %v", id, in.lane, before)
			}
			if before, ok := latest[lane]; !ok || before.Offset < id.Offset {
				latest[lane] = id
			}
		}
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
	read, gone, shared := l.delivered[in.id], l.gone[in.id], len(l.shared[in.id]) > 0
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
	case gone && len(paths) == 0 && errs == 0:
		// Nobody may have read it.
	case shared && errs > 0 && (len(paths) == 0 || len(paths) == want.outputs):
		// A call for others took it along, at least once.
	case len(paths) != want.outputs:
		l.Breach("%v has %d different outputs, want %d", in.id, len(paths), want.outputs)
	case errs < wantErrs || wantErrs == 0 && errs > 0:
		l.Breach("%v has %d error events, want %d (%s)", in.id, errs, wantErrs, want.errType)
	}
	if most > read || errs > read {
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
	if got["enricher.error.offset"] != strconv.FormatInt(in.id.Offset, 10) {
		w.ledger.Breach("error event of %v says offset %s", in.id, got["enricher.error.offset"])
	}
	if !bytes.Equal(r.Value, in.value) || !bytes.Equal(r.Key, in.key) || (r.Value == nil) != (in.value == nil) {
		w.ledger.Breach("error event of %v does not hold the original key and value", in.id)
	}
}

// consume reads a topic from its start to its end.
func (w *world) consume(topic string) []*kgo.Record {
	ends := map[int32]int64{}
	starts := map[string]map[int32]kgo.Offset{topic: {}}
	for _, info := range w.cluster.PartitionInfos(topic) {
		if info.HighWatermark > 0 {
			ends[info.Partition] = info.HighWatermark
			starts[topic][info.Partition] = kgo.NewOffset().AtStart()
		}
	}
	if len(ends) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.vnet.DialContext), kgo.ConsumePartitions(starts), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
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
