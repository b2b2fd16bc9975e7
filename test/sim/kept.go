package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// Kept lists seeds that have found a fault, and which. They run with every test. Each fault has a test of its own
// too, since a change of what is drawn makes other plans of them. The simulator's own faults are among them.
func Kept() map[uint64]string {
	return map[uint64]string{
		36:    "a sink that had written to the new topic only numbered its records there anew: brokers took them for repeated ones, and they were lost",
		279:   "an event was sent whose partition was lost while the sink was asked what it takes",
		781:   "what out_of_range passed over was not committed until the next record came",
		3691:  "the end of a transaction waited for a rebalance until the brokers had aborted it, and its worker was fenced off",
		5486:  "as 3691",
		9181:  "as 3691, of two workers",
		17091: "as 13625",
		3330:  "offsets that were set although the answer was an error were not noted",
		4535:  "as 3330, of offsets set back",
		4180:  "of two compactions at once one took what the other had found to be there",
		7379:  "as 4155, of two workers",
		9191:  "windows that a revoke had emptied were taken for closed before their time",
		13100: "the fake broker took a log of which all was deleted for one that was cut",
		9258:  "what stood behind the event that ends the stream left before it, without calls",
		13625: "a stop waited for a stream that was ending by itself, longer than shutdown_timeout",
		5802:  "what was handed to the client while it failed an earlier record was written: it stands before that, and again behind it",
		4155:  "one event took all workers with calls that do not return: a function had made several of it",
		9783:  "a bounded read was at its end when a worker died with a commit that it was told nothing of: nobody noted it",
	}
}

// AnswerLost is the plan of a bounded read whose only worker dies when the end of its only transaction is carried out,
// before it is told so. Nothing is left for the next worker, which is given no partition.
func AnswerLost() *Plan {
	in := &input{key: []byte("k0"), lane: "k0", value: []byte("v"), acts: []act{{latency: 200 * time.Millisecond}}}
	dies := fault{kind: crashAt, at: 1100 * time.Millisecond, lasts: 10 * time.Second, key: kmsg.EndTxn, way: 1}
	return &Plan{
		partitions: 1, seeded: 1, outputs: 1, members: 1, begins: time.Second, end: dies.at + dies.lasts,
		way: way{exactlyOnce: true, bounded: true, outOfRange: kafka.Earliest},
		set: settings{
			workers: 1, order: streammanager.OrderKey, tombstones: streammanager.TombstonesPass, commit: 50 * time.Millisecond,
			shutdown: 2 * time.Second, errorSink: true, onError: streammanager.OnErrorDrop,
		},
		steps: []stepPlan{{name: "call0", timeout: time.Second}}, inputs: []*input{in}, byID: map[ID]*input{in.id: in},
		faults: []fault{dies}, holes: map[ID]bool{},
	}
}
