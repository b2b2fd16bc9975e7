package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// faultKind is what goes wrong.
type faultKind uint8

const (
	crash        faultKind = iota // a worker's network is cut for good and another takes its place
	join                          // one more worker
	leave                         // a worker is stopped and, later, started again
	stopAll                       // all are stopped and, later, started again
	glitch                        // a worker's connections are closed
	partitioned                   // a worker reaches no broker for a while
	refuseOutput                  // the broker refuses what is written to the output topic
	refuseError                   // the same for the error topic
	refuseCommit                  // the broker refuses commits
	refuseBeat                    // the broker refuses heartbeats
	refuseFetch                   // the broker refuses fetches
	moveGroup                     // the group's coordinator moves
	moveLeaders                   // partitions change their leaders
	addPartition                  // the input topic gets one more partition
	slowAPI                       // all calls take longer
	downAPI                       // all calls are held
	compaction                    // the input topic is compacted
	stall                         // a worker's connections are taken and nothing is answered
	stop                          // a worker's network stands still and then goes on, as after SIGSTOP and SIGCONT
	outage                        // the brokers of the sinks answer nobody
	rights                        // rights are taken away and given back
	garble                        // what is committed beside an offset is not what was written there
	crashAt                       // a worker is killed at its next request of a kind
	trim                          // records are deleted before they were read
	reset                         // an operator sets the group to other offsets while it is empty
	remakeIn                      // the input topic is deleted and made again
	remakeOut                     // the output topic is deleted and made again
	twin                          // two workers have the same static instance id
	refuseTxn                     // the broker refuses a step of transactions
)

var faultNames = [...]string{
	"crash", "join", "leave", "stop all", "glitch", "partitioned", "refuse output", "refuse error", "refuse commit",
	"refuse heartbeat", "refuse fetch", "move group", "move leaders", "add partition", "slow api", "api down", "compaction",
	"stalled connections", "stopped and continued", "outage of the sink", "rights taken away", "garbled metadata", "crash at a step", "records deleted",
	"offsets set", "input made again", "output made again", "twin", "refuse a step of a transaction",
}

// fault is one entry of the schedule.
type fault struct {
	kind  faultKind
	at    time.Duration
	lasts time.Duration
	who   int // which worker of those that run
	code  *kerr.Error
	count int
	way   int      // one of several
	key   kmsg.Key // of a request
}

func (f fault) String() string {
	text := faultNames[f.kind]
	if f.code != nil {
		text += " " + f.code.Message
	}
	if f.key != 0 || f.kind == crashAt {
		text += " " + f.key.Name()
	}
	return fmt.Sprintf("%s at %v for %v (worker %d, count %d, way %d)", text, f.at, f.lasts, f.who, f.count, f.way)
}

// repeats reports whether a fault explains that events are read and written again.
func (f fault) repeats() bool {
	switch f.kind {
	case glitch, moveLeaders, slowAPI, downAPI, refuseFetch, compaction, trim:
		return false
	}
	return true
}

// mayRepeat reports whether anything explains duplicates.
func (p *Plan) mayRepeat() bool {
	if p.exactlyOnce {
		return false
	}
	if p.members > 1 { // the group gathers one member after the other
		return true
	}
	return p.deaths > 0 || slices.ContainsFunc(p.faults, fault.repeats) || slices.ContainsFunc(p.inputs, func(in *input) bool { return in.poison })
}

// schedule draws the faults. A fifth of all seeds have none.
func (d *drawer) schedule(p *Plan) {
	last := p.inputs[len(p.inputs)-1].at
	p.end = last
	if d.one(5) {
		return
	}
	// kfake's compaction takes the marks of aborted transactions away but goes on telling readers of them, so
	// that they leave out what the same producer commits later.
	aborted := slices.ContainsFunc(p.inputs, func(in *input) bool { return in.aborted > 0 })
	if p.set.byValue && d.one(3) && !aborted {
		d.compaction(p, last)
	}
	for range d.between(1, 6) {
		f := fault{
			kind: faultKind(d.IntN(int(downAPI) + 1)), at: d.dur(0, last+3*time.Second), who: d.IntN(8),
			lasts: pick(d, d.dur(0, time.Second), d.dur(0, 10*time.Second), d.dur(0, 25*time.Second)), count: d.between(1, 4),
		}
		switch f.kind {
		case refuseOutput, refuseError:
			f.code = pick(d, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.PolicyViolation, kerr.UnknownServerError, kerr.KafkaStorageError)
		case refuseCommit:
			f.code = pick(d, kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut)
		case refuseBeat:
			f.code = pick(d, kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.NotCoordinator)
		case refuseFetch:
			f.code = pick(d, kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.KafkaStorageError, kerr.FencedLeaderEpoch)
		case addPartition:
			d.addPartition(p, f.at)
		}
		p.faults = append(p.faults, f)
		p.end = max(p.end, f.at+f.lasts)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
}

// compaction draws when the input topic is compacted. Each record of such a topic has a key.
func (d *drawer) compaction(p *Plan, last time.Duration) {
	for _, in := range p.inputs {
		in.key = []byte("r" + in.lane)
	}
	for range d.between(1, 3) {
		p.faults = append(p.faults, fault{kind: compaction, at: d.dur(0, last+time.Second)})
	}
}

// addPartition draws events for the new partition; they are written when it is there.
func (d *drawer) addPartition(p *Plan, at time.Duration) {
	number := p.partitions
	p.partitions++
	for i := range d.between(1, 10) {
		in := &input{id: ID{number, int64(i)}, at: at + time.Second, lane: fmt.Sprintf("n%d", d.IntN(3)), group: "g0"}
		in.value = []byte(`{"k":"` + in.lane + `"}`)
		in.key = []byte(in.lane)
		for _, s := range p.steps {
			in.acts = append(in.acts, p.tame(s, d.act(0, 50*time.Millisecond)))
		}
		p.inputs = append(p.inputs, in)
		p.byID[in.id] = in
	}
	slices.SortStableFunc(p.inputs, func(a, b *input) int { return int(a.at - b.at) })
	p.end = max(p.end, at+time.Second)
}
