package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// Draw makes the plan of a seed.
func Draw(seed uint64) *Plan {
	p := draw(seed)
	p.ways()
	return p
}

// draw makes the plan of a stream that runs in the plainest way.
func draw(seed uint64) *Plan {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 0x5eed))}
	p := &Plan{Seed: seed, byID: map[ID]*input{}, holes: map[ID]bool{}}
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
	d.farHolds(p)
	d.stopper(p)
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
		errorSink:  !d.one(6), onError: streammanager.OnErrorDrop,
	}
	if !s.errorSink && d.one(2) {
		s.onError = streammanager.OnErrorStop
	}
	if s.onError == streammanager.OnErrorStop && s.tombstones == streammanager.TombstonesError {
		s.tombstones = streammanager.TombstonesPass // nobody could mend what stops the stream
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

// workload draws the events: a few bursts with quiet times between them.
func (d *drawer) workload(p *Plan) {
	keys := pick(d, 1, 3, 10, 40)
	bad := pick(d, 0, 0, 10, 30, 100) // of 1,000 acts
	poison, txns := d.one(5), d.one(4)
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
			if txns && d.one(12) {
				in.aborted = d.between(1, 3)
			}
			in.txn = txns && d.one(8)
			next[in.id.Partition] = p.place(in, next[in.id.Partition])
			for _, s := range p.steps {
				a := p.tame(s, d.act(bad, slow))
				// With as many abandoned as workers a stream fails. One that is read again may be abandoned twice.
				if a.kind == actDeaf && (deaf > 0 || p.set.workers < 4 || 2*in.made() >= p.set.workers) {
					a.kind = actHang
				} else if a.kind == actDeaf {
					deaf++
				}
				in.acts = append(in.acts, a)
			}
			in.poison = poison && p.set.errorSink && d.one(40)
			p.inputs = append(p.inputs, in)
			p.byID[in.id] = in
			at += d.dur(0, 20*time.Millisecond)
		}
		at += d.dur(0, 8*time.Second)
	}
}

// place gives an event its offset, and those around it to what is no event. It returns the next offset.
func (p *Plan) place(in *input, next int64) int64 {
	skip := func(n int) {
		for range n {
			p.holes[ID{in.id.Partition, next}] = true
			next++
		}
	}
	if in.aborted > 0 {
		skip(in.aborted + 1)
	}
	in.id.Offset = next
	next++
	if in.txn {
		skip(1)
	}
	return next
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
	if in.kind == keyMissing && p.set.onError == streammanager.OnErrorStop {
		in.kind = keyDropped
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

// tame makes of an act what its function may do in a stream.
func (p *Plan) tame(s stepPlan, a act) act {
	if s.inline { // it never waits
		a.latency, a.wait = 0, 0
		if a.kind >= actRetry && a.kind != actPanic && a.kind != actGoexit {
			a.kind = actReject
		}
	}
	if s.batch && a.ofAll() && !p.set.errorSink {
		a.kind = actReject // nobody would see which events it took along
	}
	switch a.kind {
	case actOK, actSkip, actFan, actDrop, actRetry, actHold:
	default:
		if p.set.onError == streammanager.OnErrorStop {
			a.kind = actOK // the one that stops the stream is drawn later
		}
	}
	return a
}

// farHolds draws a few calls that ask to be held until long after any stop has ended.
func (d *drawer) farHolds(p *Plan) {
	if len(p.steps) == 0 || !d.one(6) {
		return
	}
	for range d.between(1, 2) {
		in, i := p.inputs[d.IntN(len(p.inputs))], d.IntN(len(p.steps))
		if !p.steps[i].inline {
			in.acts[i].kind, in.acts[i].times, in.acts[i].wait = actHold, 1, d.dur(40*time.Second, 100*time.Second)
		}
	}
}

// stopper draws the one event at which streams end with an error: for event.Fatal, or for any failure
// where on_error says so.
func (d *drawer) stopper(p *Plan) {
	onError := p.set.onError == streammanager.OnErrorStop
	if len(p.steps) == 0 || !onError && !d.one(8) {
		return
	}
	in, i := p.inputs[d.IntN(len(p.inputs))], d.IntN(len(p.steps))
	if in.value == nil || in.filtered || in.kind == keyDropped || in.kind == keyMissing {
		return
	}
	for n := range i {
		if k := in.acts[n].kind; k != actRetry && k != actHold {
			in.acts[n].kind = actOK // so that it gets there
		}
	}
	a := &in.acts[i]
	a.kind, a.stops = actFatal, true
	if onError && d.one(2) {
		a.kind = pick(d, actReject, actPlainError, actGiveUp, actPanic, actHang)
		if p.steps[i].inline {
			a.kind = actPlainError
		}
	}
	p.deaths = d.between(1, 2)
}
