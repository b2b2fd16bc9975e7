package streammanager

import "time"

// Flow is what went through a stage of a stream in some time, and how the stage spent that time: the three add up to it.
type Flow struct {
	RecordsIn, RecordsOut, BytesIn, BytesOut int64
	Busy, Idle, Backpressured                time.Duration
}

// Time is what the flow is of.
func (f Flow) Time() time.Duration { return f.Busy + f.Idle + f.Backpressured }

func (f Flow) plus(o Flow) Flow {
	return Flow{
		f.RecordsIn + o.RecordsIn, f.RecordsOut + o.RecordsOut, f.BytesIn + o.BytesIn, f.BytesOut + o.BytesOut,
		f.Busy + o.Busy, f.Idle + o.Idle, f.Backpressured + o.Backpressured,
	}
}

func (f Flow) minus(o Flow) Flow {
	return Flow{
		f.RecordsIn - o.RecordsIn, f.RecordsOut - o.RecordsOut, f.BytesIn - o.BytesIn, f.BytesOut - o.BytesOut,
		f.Busy - o.Busy, f.Idle - o.Idle, f.Backpressured - o.Backpressured,
	}
}

// Stage is a part of a stream: Total since the start, Last within the last seconds. In its first second Last is empty.
type Stage struct{ Total, Last Flow }

// Stages are the parts of a stream. The source is idle while it waits for records and backpressured while a limit stops
// its polling. Process is busy by the share of its workers that are in calls, and backpressured by the rest while work
// waits for what is on its way to the sink. The sink is busy while something is on its way to it.
type Stages struct{ Source, Process, Sink Stage }

// meterEvery is the least time that Last is of.
const meterEvery = 5 * time.Second

// meter adds up, over the turns of the loop, how the stages spend their time.
type meter struct {
	source, process, sink Flow    // totals
	from                  [3]Flow // of them, when the time of last began
	last                  [3]Flow
	since                 time.Time // when that time began
	at                    time.Time // up to when time is accounted for
	polled                time.Duration

	// What held since the last turn.
	limited, blocked, sending, reading bool
	busy                               float64 // of 1
}

// account spends the time since the last turn as that turn left the stages.
func (m *meter) account(now time.Time, polled time.Duration) {
	if m.at.IsZero() {
		m.at, m.since, m.polled = now, now, polled
		return
	}
	d := now.Sub(m.at)
	idle := min(d, polled-m.polled)
	m.at, m.polled = now, polled
	switch {
	case m.limited:
		m.source.Backpressured += d
	case !m.reading:
		m.source.Idle += d
	default:
		m.source.Idle += idle
		m.source.Busy += d - idle
	}
	busy := time.Duration(float64(d) * m.busy)
	m.process.Busy += busy
	if m.blocked {
		m.process.Backpressured += d - busy
	} else {
		m.process.Idle += d - busy
	}
	if m.sending {
		m.sink.Busy += d
	} else {
		m.sink.Idle += d
	}
	if now.Sub(m.since) < meterEvery {
		return
	}
	for i, total := range m.totals() {
		m.last[i] = total.minus(m.from[i])
	}
	m.from, m.since = m.totals(), now
}

func (m *meter) totals() [3]Flow { return [3]Flow{m.source, m.process, m.sink} }

// meterFirst is the least time that says anything.
const meterFirst = time.Second

// stages returns the picture for the status. Before the first interval is over, the last is all, once that is enough.
func (m *meter) stages() Stages {
	total, last := m.totals(), m.last
	if m.from == ([3]Flow{}) && m.source.Time() >= meterFirst {
		last = total
	}
	return Stages{Stage{total[0], last[0]}, Stage{total[1], last[1]}, Stage{total[2], last[2]}}
}

// gauge notes at the end of a turn what holds until the next.
func (l *loop) gauge() {
	m := &l.meter
	m.limited = !l.limitedAt.IsZero() && l.mode == working
	m.reading = l.mode == working
	m.busy = min(1, float64(l.busy)/float64(l.workers))
	m.blocked = l.busy < l.limitOfWorkers() && (!l.fresh.empty() || len(l.turn) > 0) && l.mode != ended
	m.sending = l.leaving > 0
}

// cameIn counts a record that the source gave, and what of it goes on to the functions.
func (m *meter) cameIn(it *readItem) {
	if it.part.hop != secondHop {
		m.source.RecordsIn++
		m.source.BytesIn += it.bytes
	}
	if it.unit != nil && it.part.hop != firstHop {
		m.source.RecordsOut++
		m.source.BytesOut += it.unit.input
		m.process.RecordsIn++
		m.process.BytesIn += it.unit.input
	}
}

// handedOn counts the outputs of an event, which leave for the sink.
func (m *meter) handedOn(u *unit, records int) {
	m.process.RecordsOut += int64(records)
	m.process.BytesOut += u.size - u.input
	m.sink.RecordsIn += int64(records)
	m.sink.BytesIn += u.size - u.input
}

// wrote counts the outputs of an event that the sink has.
func (m *meter) wrote(u *unit, records int) {
	m.sink.RecordsOut += int64(records)
	if records > 0 {
		m.sink.BytesOut += u.size - u.input
	}
}

func (s Stages) plus(later Stages) Stages {
	return Stages{
		Stage{s.Source.Total.plus(later.Source.Total), later.Source.Last},
		Stage{s.Process.Total.plus(later.Process.Total), later.Process.Last},
		Stage{s.Sink.Total.plus(later.Sink.Total), later.Sink.Last},
	}
}
