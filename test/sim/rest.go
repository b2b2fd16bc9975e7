package sim

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how much virtual time a stream gets to come to rest once all faults have ended.
const patience = 15 * time.Minute

// quiet waits until everything is finished and committed, and checks that nothing is held then.
func (w *world) quiet() {
	deadline := time.Now().Add(patience)
	for {
		behind := w.behind()
		if behind == "" && (w.ledger.unfinished() == 0 || w.plan.light() || w.plan.once) && (!w.plan.bounded || len(w.running()) == 0) {
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
			if w.mayFail(k) == noReason && (k.err != nil || !w.plan.bounded) {
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
// that live join anew. What it does to those who wait for a dead one, which is to forget them after their session
// without an answer, is left as it is: streams get over it.
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
	topics := []string{inTopic}
	if w.plan.through > 0 {
		topics = append(topics, throughTopic)
	}
	var text strings.Builder
	for _, topic := range topics {
		for _, info := range w.cluster.PartitionInfos(topic) {
			at, end := int64(0), info.HighWatermark
			if o, ok := got.Lookup(topic, info.Partition); ok {
				at = max(0, o.At)
				if topic == inTopic {
					w.ledger.settles(info.Partition, at)
				}
				if topic == inTopic && w.plan.bounded {
					end = w.leaveOut(o, end)
				}
			} else if topic == inTopic && w.plan.bounded {
				end = w.leaveOut(kadm.OffsetResponse{Offset: kadm.Offset{Partition: info.Partition}}, end)
			}
			if at > max(end, info.LogStartOffset) {
				w.ledger.Breach("partition %d of topic %s is committed at %d, behind its end %d", info.Partition, topic, at, end)
			}
			if max(at, info.LogStartOffset) < end { // what was deleted since is not read to be passed over
				fmt.Fprintf(&text, "; partition %d of topic %s committed at %d of %d", info.Partition, topic, at, end)
			}
		}
	}
	return text.String()
}

var untilField = regexp.MustCompile(` until=(\d+)`)

// leaveOut returns the end of a partition that is read up to there alone, and notes what is no part of that.
func (w *world) leaveOut(o kadm.OffsetResponse, end int64) int64 {
	until := int64(0) // without a word the partition was added later
	if m := untilField.FindStringSubmatch(o.Metadata); m != nil {
		until, _ = strconv.ParseInt(m[1], 10, 64)
	}
	l := w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, in := range l.plan.inputs {
		if in.id.Partition == o.Partition && in.id.Offset >= until {
			if l.delivered[in.id] > 0 {
				l.breach("%v was read, which lies at or behind the end of the read, %d", in.id, until)
			}
			l.gone[in.id] = true
		}
	}
	return min(until, end)
}
