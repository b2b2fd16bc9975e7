package sim

import (
	"fmt"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// ID names one input event: where it lies in the input topic.
type ID struct {
	Partition int32
	Offset    int64
}

func (id ID) String() string { return fmt.Sprintf("%d/%d", id.Partition, id.Offset) }

// keyKind is what PartitionBy answers for an event.
type keyKind uint8

const (
	keyed keyKind = iota
	keyless
	keyDropped // the event is dropped for its key
	keyMissing // an error event
)

// input is one event of the workload.
type input struct {
	id       ID
	at       time.Duration
	key      []byte // of the record
	lane     string // what PartitionBy answers
	kind     keyKind
	group    string
	value    []byte
	filtered bool
	poison   bool // the broker refuses its output for the record's own fault
	aborted  int  // records of an aborted transaction that lie before it, with the mark of its end
	txn      bool // written in a transaction of its own, whose mark lies behind it
	acts     []act
}

func (in *input) size() int {
	n := len(in.key) + len(in.value)
	for _, h := range headersOf(in) {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// made is how many events its functions have made of it, as far as they are drawn.
func (in *input) made() int {
	n := 1
	for _, a := range in.acts {
		if a.kind == actFan {
			n *= a.times
		}
	}
	return n
}

// String sums the event up for a trace.
func (in *input) String() string {
	text := fmt.Sprintf("key %q", in.lane)
	for _, f := range []struct {
		is   bool
		name string
	}{{in.kind == keyless, "keyless"}, {in.kind == keyDropped, "key drops"}, {in.kind == keyMissing, "key missing"}, {in.filtered, "filtered"}, {in.poison, "poison"}, {in.value == nil, "tombstone"}, {in.txn, "transaction"}} {
		if f.is {
			text += " " + f.name
		}
	}
	for _, a := range in.acts {
		text += " " + actNames[a.kind]
		if a.stops {
			text += " (stops)"
		}
		if a.times > 0 {
			text += fmt.Sprintf("(%d times, %v)", a.times, a.wait)
		}
	}
	return text
}

// actKind is what a function does with an event.
type actKind uint8

const (
	actOK actKind = iota
	actSkip
	actFan
	actDrop
	actReject
	actPlainError
	actRetry  // asks again `times` times, then goes on
	actGiveUp // asks again for ever, so that its attempts run out
	actHold
	actPanic
	actGoexit
	actHang // until its deadline, then answers the context's error
	actDeaf // past its deadline and the grace time
	actFatal
)

var actNames = [...]string{"ok", "skip", "fan", "drop", "reject", "error", "retry", "give up", "hold", "panic", "goexit", "hang", "deaf", "fatal"}

// act is the part of one function in one event.
type act struct {
	kind    actKind
	latency time.Duration
	wait    time.Duration
	times   int
	grow    int
	stops   bool // ends the stream, until somebody has mended the function
}

// ofAll reports whether what a BatchFunc does for one event becomes the outcome of all of its call.
func (a act) ofAll() bool { return a.kind >= actPanic && a.kind <= actDeaf }

// stepPlan is one function of the chain.
type stepPlan struct {
	name     string
	batch    bool
	inline   bool
	timeout  time.Duration
	attempts int
}

// settings are the stream's.
type settings struct {
	workers    int
	order      streammanager.Order
	tombstones streammanager.Tombstones
	limits     streammanager.Limits
	commit     time.Duration
	shutdown   time.Duration
	window     window.Config
	byGroup    bool
	byValue    bool // the key is read from the value
	errorSink  bool
	onError    streammanager.OnError
}

// Plan is all that a seed decides.
type Plan struct {
	Seed       uint64
	partitions int32 // with those that are added later
	seeded     int32 // at first
	outputs    int32
	members    int
	set        settings
	way
	begins time.Duration // when a bounded stream is first started
	steps  []stepPlan
	inputs []*input
	byID   map[ID]*input
	faults []fault
	end    time.Duration // when the last fault has ended
	holes  map[ID]bool   // offsets that no event has: marks and what was aborted
	once   bool          // see DrawOnce
	deaths int           // after how many streams that ended by it the function that stops them is mended; 0: none stops
}

// inlineOnly reports whether the chain has no calls.
func (p *Plan) inlineOnly() bool {
	for _, s := range p.steps {
		if !s.inline {
			return false
		}
	}
	return true
}

// lanes reports whether events of a key wait for each other.
func (p *Plan) lanes() bool { return p.set.order != streammanager.OrderNone && !p.inlineOnly() }

func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h >> 8
}

// outcome is what must become of an event.
type outcome struct {
	outputs  int // events in the output topic
	errType  event.Type
	function string
	attempts int // 0: not checked
	drops    int // events derived from it that functions drop
}

func (o outcome) failed() bool { return o.errType != "" }

// expect tells the outcome of an event.
func (p *Plan) expect(in *input) outcome {
	switch {
	case in.value == nil && p.set.tombstones == streammanager.TombstonesDrop:
		return outcome{}
	case in.value == nil && p.set.tombstones == streammanager.TombstonesError:
		return outcome{errType: event.InvalidEvent, function: "source"}
	case in.value == nil:
		return p.leave(in, 1)
	case in.filtered || in.kind == keyDropped:
		return outcome{}
	case in.kind == keyMissing:
		return outcome{errType: event.MissingKey, function: "partition_by"}
	}
	n := 1
	for i, a := range in.acts {
		s := p.steps[i]
		if a.stops {
			continue // when it is mended
		}
		switch a.kind {
		case actFan:
			n *= a.times
		case actDrop:
			return outcome{drops: n}
		case actReject:
			return outcome{errType: event.NotFound, function: s.name}
		case actPlainError:
			return outcome{errType: event.Function, function: s.name}
		case actGiveUp:
			attempts := s.attempts
			if attempts == 0 {
				attempts = 5
			}
			return outcome{errType: event.Connection, function: s.name, attempts: attempts}
		case actPanic, actGoexit, actHang, actDeaf:
			return s.ends(a)
		}
	}
	return p.leave(in, n)
}

// ends is the outcome of an event whose call does not return as it should.
func (s stepPlan) ends(a act) outcome {
	if a.kind == actHang || a.kind == actDeaf {
		return outcome{errType: event.Timeout, function: s.name}
	}
	return outcome{errType: event.Panic, function: s.name}
}

func (p *Plan) leave(in *input, n int) outcome {
	if in.poison {
		return outcome{errType: event.TooLarge, function: "sink"}
	}
	return outcome{outputs: n}
}

// String sums the plan up for a trace.
func (p *Plan) String() string {
	return fmt.Sprintf("seed %d: %d events, %d+%d partitions, %d output partitions, %d members, settings %+v, %v, chain %+v, faults %v",
		p.Seed, len(p.inputs), p.seeded, p.partitions-p.seeded, p.outputs, p.members, p.set, p.way, p.steps, p.faults)
}
