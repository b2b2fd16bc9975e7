package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

// way is how the stream runs, beside its settings.
type way struct {
	exactlyOnce bool
	through     int32  // partitions of the repartition topic; 0: none
	bounded     bool   // it reads up to what is there at its first start, and ends
	static      bool   // workers are static members of the group
	remade      bool   // the input topic is deleted and made again
	outOfRange  string // policy
}

// light reports whether the books are kept of the ends alone: what lies in between has other places than the
// input.
func (w way) light() bool { return w.through > 0 || w.remade }

// generation is the distance between the offsets, as IDs count them, of an input topic and the one that is made after it.
const generation = 1 << 32

// ways draws how the stream runs, and what else goes wrong. It has numbers of its own, so that the plans stay what
// they were before there was more to draw.
func (p *Plan) ways() {
	d := &drawer{rand.New(rand.NewPCG(p.Seed, 0xfa17))}
	p.outOfRange = pick(d, kafka.Earliest, kafka.Earliest, kafka.Latest, kafka.Fail)
	switch d.IntN(12) {
	case 0, 1, 2:
		p.exactlyOnce = true
	case 3, 4, 5:
		if p.set.byValue {
			p.through = int32(d.between(1, 6))
			p.exactlyOnce = d.one(3)
		}
	case 6:
		p.bounded = true
		p.exactlyOnce = d.one(4)
	case 7:
		p.static = true
	case 8:
		p.remade = len(p.faults) > 0 && p.deaths == 0 && !slices.ContainsFunc(p.inputs, func(in *input) bool { return in.txn || in.aborted > 0 }) && p.partitions == p.seeded && !p.has(compaction)
	}
	if p.exactlyOnce {
		p.hasten()
	}
	if p.bounded {
		p.begins = d.dur(0, p.end)
		if p.outOfRange == kafka.Fail {
			p.outOfRange = kafka.Earliest
		}
	}
	if len(p.faults) > 0 {
		d.mishaps(p)
	}
}

// transactionTimeout is that of the workers. Half of it must be enough for any event.
const transactionTimeout = time.Minute

// hasten leaves out what takes longer than a transaction may.
func (p *Plan) hasten() {
	for _, in := range p.inputs {
		for i := range in.acts {
			in.acts[i].wait = min(in.acts[i].wait, time.Second)
		}
	}
}

// mishaps draws further faults.
func (d *drawer) mishaps(p *Plan) {
	last := p.inputs[len(p.inputs)-1].at
	kinds := p.mishapKinds()
	n := d.between(0, 3)
	if p.exactlyOnce {
		p.faults = append(p.faults, d.mishap(crashAt, last))
	}
	for range n {
		p.faults = append(p.faults, d.mishap(kinds[d.IntN(len(kinds))], last))
	}
	if p.remade {
		f := d.mishap(remakeIn, last)
		p.faults = append(p.faults, f)
		p.split(f.at)
	}
	for _, f := range p.faults {
		p.end = max(p.end, f.at+f.lasts)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
}

// mishapKinds lists what may happen to a stream that runs as this one does.
func (p *Plan) mishapKinds() []faultKind {
	kinds := []faultKind{stall, stop, outage, rights, remakeOut, crashAt}
	if !p.bounded {
		kinds = append(kinds, garble)
	}
	if !p.light() {
		kinds = append(kinds, trim)
	}
	if !p.light() && !p.bounded {
		kinds = append(kinds, reset)
	}
	if p.static {
		kinds = append(kinds, twin, twin)
	}
	if p.exactlyOnce {
		kinds = append(kinds, refuseTxn, refuseTxn)
	}
	return kinds
}

func (d *drawer) mishap(kind faultKind, last time.Duration) fault {
	f := fault{kind: kind, at: d.dur(0, last+3*time.Second), who: d.IntN(8), lasts: d.dur(0, 25*time.Second), count: d.between(1, 4), way: d.IntN(100)}
	switch kind {
	case outage:
		f.lasts = d.dur(time.Minute, 4*time.Minute)
	case stop: // some sleep past their session
		f.lasts = pick(d, d.dur(0, 5*time.Second), d.dur(7*time.Second, 40*time.Second))
	case crashAt:
		f.key = pick(d, kmsg.Produce, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn, kmsg.EndTxn,
			kmsg.InitProducerID, kmsg.OffsetCommit, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.OffsetFetch)
	case refuseTxn:
		f.key = pick(d, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn)
		f.code = pick(d, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.ConcurrentTransactions)
		if f.key == kmsg.TxnOffsetCommit {
			f.code = pick(d, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID)
		}
	}
	return f
}

// split moves the events that come after a time to the input topic that is made then.
func (p *Plan) split(at time.Duration) {
	next := map[int32]int64{}
	p.byID = map[ID]*input{}
	for _, in := range p.inputs {
		if in.at > at {
			in.id.Offset = generation + next[in.id.Partition]
			next[in.id.Partition]++
		}
		p.byID[in.id] = in
	}
}

func (w way) String() string {
	return fmt.Sprintf("exactly once %v, repartition %d, bounded %v, static %v, made again %v, out of range %s",
		w.exactlyOnce, w.through, w.bounded, w.static, w.remade, w.outOfRange)
}
