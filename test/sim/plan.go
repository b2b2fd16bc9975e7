package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
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
	acts     []act
}

func (in *input) size() int {
	n := len(in.key) + len(in.value)
	for _, h := range headersOf(in) {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// String sums the event up for a trace.
func (in *input) String() string {
	text := fmt.Sprintf("key %q", in.lane)
	for _, f := range []struct {
		is   bool
		name string
	}{{in.kind == keyless, "keyless"}, {in.kind == keyDropped, "key drops"}, {in.kind == keyMissing, "key missing"}, {in.filtered, "filtered"}, {in.poison, "poison"}, {in.value == nil, "tombstone"}} {
		if f.is {
			text += " " + f.name
		}
	}
	for _, a := range in.acts {
		text += " " + actNames[a.kind]
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
)

var actNames = [...]string{"ok", "skip", "fan", "drop", "reject", "error", "retry", "give up", "hold", "panic", "goexit", "hang", "deaf"}

// act is the part of one function in one event.
type act struct {
	kind    actKind
	latency time.Duration
	wait    time.Duration
	times   int
	grow    int
}

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
}

// Plan is all that a seed decides.
type Plan struct {
	Seed       uint64
	partitions int32 // with those that are added later
	seeded     int32 // at first
	outputs    int32
	members    int
	set        settings
	steps      []stepPlan
	inputs     []*input
	byID       map[ID]*input
	faults     []fault
	end        time.Duration // when the last fault has ended
}

// Draw makes the plan of a seed.
func Draw(seed uint64) *Plan {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 0x5eed))}
	p := &Plan{Seed: seed, byID: map[ID]*input{}}
	p.partitions = int32(d.between(1, 6))
	p.outputs = int32(d.between(1, 4))
	p.members = 1
	if d.one(3) {
		p.members = d.between(2, 3)
	}
	p.set = d.settings()
	p.steps = d.chain()
	p.seeded = p.partitions
	d.workload(p)
	d.schedule(p)
	return p
}

type drawer struct{ *rand.Rand }

func (d *drawer) between(low, high int) int { return low + d.IntN(high-low+1) }
func (d *drawer) one(in int) bool           { return d.IntN(in) == 0 }
func (d *drawer) dur(low, high time.Duration) time.Duration {
	return low + time.Duration(d.Int64N(int64(high-low)+1))
}

func pick[T any](d *drawer, of ...T) T { return of[d.IntN(len(of))] }

func (d *drawer) settings() settings {
	s := settings{
		workers:    pick(d, 1, 2, 3, 4, 8, 16),
		order:      pick(d, streammanager.OrderKey, streammanager.OrderKey, streammanager.OrderKeySerial, streammanager.OrderNone),
		tombstones: pick(d, streammanager.TombstonesPass, streammanager.TombstonesPass, streammanager.TombstonesDrop, streammanager.TombstonesError),
		commit:     pick(d, 50*time.Millisecond, 200*time.Millisecond, time.Second),
		shutdown:   pick(d, 2*time.Second, 10*time.Second, 30*time.Second),
		byValue:    d.one(2),
		errorSink:  !d.one(6),
	}
	if d.one(3) {
		s.limits.InFlightEvents = d.between(4, 60)
	}
	if d.one(4) {
		s.limits.InFlightBytes = int64(d.between(2, 40)) << 10
	}
	if d.one(4) {
		s.limits.UncommittedEvents = d.between(5, 60)
	}
	if d.one(4) {
		return s
	}
	s.window = window.Config{Timeout: pick(d, 20*time.Millisecond, 200*time.Millisecond, time.Second, 3*time.Second), Eager: d.one(4)}
	if !d.one(5) {
		s.window.Count = d.between(1, 12)
	}
	if d.one(3) {
		s.window.Bytes = int64(d.between(1, 8)) << 9
	}
	if n := s.limits.InFlightEvents; n > 0 {
		s.window.Count = min(s.window.Count, n)
	}
	if n := s.limits.InFlightBytes; n > 0 {
		s.window.Bytes = min(s.window.Bytes, n)
	}
	s.byGroup = d.one(3)
	return s
}

// chain draws the functions: none, quick ones, one call, a batch, or a mixture.
func (d *drawer) chain() []stepPlan {
	call := func(i int) stepPlan {
		return stepPlan{name: fmt.Sprintf("call%d", i), timeout: pick(d, time.Second, 3*time.Second, 10*time.Second), attempts: pick(d, 0, 0, 2, 3)}
	}
	batch := func(i int) stepPlan {
		s := call(i)
		s.name, s.batch = fmt.Sprintf("batch%d", i), true
		return s
	}
	quick := func(i int) stepPlan { return stepPlan{name: fmt.Sprintf("quick%d", i), inline: true} }
	switch d.IntN(8) {
	case 0:
		return nil
	case 1:
		return []stepPlan{quick(0), quick(1)}[:d.between(1, 2)]
	case 2, 3:
		return []stepPlan{call(0)}
	case 4, 5:
		return []stepPlan{batch(0)}
	}
	var steps []stepPlan
	for i := range d.between(2, 4) {
		steps = append(steps, pick(d, call, batch, quick)(i))
	}
	return steps
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

// workload draws the events: a few bursts with quiet times between them.
func (d *drawer) workload(p *Plan) {
	keys := pick(d, 1, 3, 10, 40)
	bad := pick(d, 0, 0, 10, 30, 100) // of 1,000 acts
	poison := d.one(5)
	slow := pick(d, 5*time.Millisecond, 50*time.Millisecond, 400*time.Millisecond)
	next, deaf := map[int32]int64{}, 0
	at := time.Duration(0)
	partition := func(n int) int32 { return int32(n) % p.partitions }
	for range d.between(1, 5) {
		for range d.between(1, 60) {
			in := d.event(p, keys)
			in.at = at
			// A key lies mostly on one partition, as a producer that hashes keys puts it.
			in.id.Partition = partition(int(hash(in.lane)))
			if in.kind != keyed || d.one(20) {
				in.id.Partition = partition(d.IntN(64))
			}
			in.id.Offset = next[in.id.Partition]
			next[in.id.Partition]++
			for range p.steps {
				in.acts = append(in.acts, d.act(bad, slow))
			}
			for i, s := range p.steps {
				in.acts[i] = tame(s, in.acts[i])
				if in.acts[i].kind == actDeaf && (deaf > 0 || p.set.workers < 4) {
					in.acts[i].kind = actHang // with as many abandoned as workers a stream fails
				} else if in.acts[i].kind == actDeaf {
					deaf++
				}
			}
			in.poison = poison && p.set.errorSink && d.one(40)
			p.inputs = append(p.inputs, in)
			p.byID[in.id] = in
			at += d.dur(0, 20*time.Millisecond)
		}
		at += d.dur(0, 8*time.Second)
	}
}

func (d *drawer) event(p *Plan, keys int) *input {
	in := &input{lane: fmt.Sprintf("k%d", d.IntN(keys)), filtered: d.one(15)}
	in.group = fmt.Sprintf("g%d", hash(in.lane)%3)
	if d.one(15) {
		in.kind = keyless
	}
	if p.set.byValue && d.one(40) {
		in.kind = pick(d, keyDropped, keyMissing)
	}
	if !p.set.byValue && in.kind == keyed {
		in.key = []byte(in.lane)
	}
	if p.set.byValue && d.one(2) {
		in.key = []byte("r" + in.lane)
	}
	if d.one(20) {
		if p.set.byValue {
			in.kind = keyless // a tombstone has no value to read a key from
		}
		return in
	}
	pad := d.between(0, 200)
	if d.one(30) {
		pad = d.between(1000, 6000)
	}
	in.value = []byte(`{"k":"` + in.lane + `","pad":"` + strings.Repeat("x", pad) + `"}`)
	return in
}

func (d *drawer) act(bad int, slow time.Duration) act {
	a := act{latency: d.dur(0, slow), grow: d.between(0, 30)}
	switch {
	case d.one(12):
		a.kind = actSkip
	case d.one(15):
		a.kind, a.times = actFan, d.between(2, 4)
	case d.one(15):
		a.kind = actDrop
	case d.IntN(1000) < bad:
		a.kind = pick(d, actReject, actPlainError, actRetry, actRetry, actGiveUp, actHold, actHold, actPanic, actGoexit, actHang, actDeaf)
		a.times = 1
		a.wait = d.dur(0, pick(d, 10*time.Millisecond, time.Second, 8*time.Second))
		if d.one(30) {
			a.latency = d.dur(0, 900*time.Millisecond)
		}
	}
	return a
}

// tame makes of an act what its function may do: a quick function never waits, a batch function does not
// panic for one event alone.
func tame(s stepPlan, a act) act {
	switch {
	case s.inline:
		a.latency, a.wait = 0, 0
		if a.kind >= actRetry && a.kind != actPanic && a.kind != actGoexit {
			a.kind = actReject
		}
	case s.batch && a.kind >= actPanic:
		a.kind = actReject
	}
	return a
}

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
		case actPanic, actGoexit:
			return outcome{errType: event.Panic, function: s.name}
		case actHang, actDeaf:
			return outcome{errType: event.Timeout, function: s.name}
		}
	}
	return p.leave(in, n)
}

func (p *Plan) leave(in *input, n int) outcome {
	if in.poison {
		return outcome{errType: event.TooLarge, function: "sink"}
	}
	return outcome{outputs: n}
}

// String sums the plan up for a trace.
func (p *Plan) String() string {
	return fmt.Sprintf("seed %d: %d events, %d+%d partitions, %d output partitions, %d members, settings %+v, chain %+v, faults %v",
		p.Seed, len(p.inputs), p.seeded, p.partitions-p.seeded, p.outputs, p.members, p.set, p.steps, p.faults)
}
