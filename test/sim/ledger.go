package sim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// Ledger knows what every worker was given, called, sent and committed, and what of it broke a promise.
type Ledger struct {
	plan  *Plan
	start time.Time

	mu        sync.Mutex // guards all below and the books of all workers
	trace     []string
	broken    []string
	finished  map[ID]bool // has had its outcome at least once
	doubtful  map[ID]bool // finished in a transaction that a worker was to commit, and does not know for committed
	prefix    map[int32]int64
	delivered map[ID]int // how often it was read
	committed map[int32]int64
	assigned  map[int32]int
	shared    map[ID][]outcome // what calls for others may have made of an event
	gone      map[ID]bool      // compacted away, or about to be
	behindUs  map[ID]bool      // passed over by a policy or an operator; gone too
	lost      map[ID]bool      // outputs that were deleted with their topic
	refused   map[ID]bool      // outputs that the sink did not take, for no fault of their own
	deeds     map[string]int   // what happened, by name
	calls     int
	passed    int // events read again that were passed over
}

// NewLedger returns an empty ledger; virtual time starts now.
func NewLedger(p *Plan) *Ledger {
	return &Ledger{
		plan: p, start: time.Now(), finished: map[ID]bool{}, doubtful: map[ID]bool{}, prefix: map[int32]int64{},
		delivered: map[ID]int{}, committed: map[int32]int64{}, assigned: map[int32]int{},
		shared: map[ID][]outcome{}, gone: map[ID]bool{}, lost: map[ID]bool{}, refused: map[ID]bool{}, behindUs: map[ID]bool{}, deeds: map[string]int{},
	}
}

// did counts something that happened.
func (l *Ledger) did(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(name)
}

func (l *Ledger) count(name string) { l.deeds[name]++ }

const maxTrace = 60_000

func (l *Ledger) note(format string, args ...any) {
	if len(l.trace) < maxTrace {
		l.trace = append(l.trace, fmt.Sprintf("%12v  ", time.Since(l.start))+fmt.Sprintf(format, args...))
	}
}

// Note adds a line to the trace.
func (l *Ledger) Note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(format, args...)
}

func (l *Ledger) breach(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.note("BROKEN: %s", text)
	if len(l.broken) < 20 {
		l.broken = append(l.broken, fmt.Sprintf("at %v: %s", time.Since(l.start), text))
	}
}

// Breach records a broken promise.
func (l *Ledger) Breach(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breach(format, args...)
}

// Report returns the broken promises and the trace.
func (l *Ledger) Report() (broken, trace []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken, l.trace
}

// finish notes that an event has had its outcome.
func (l *Ledger) finish(id ID) { l.finished[id] = true }

// after returns the first offset from one on that holds an event, if any is left there.
func (l *Ledger) after(partition int32, from int64) int64 {
	for l.plan.holes[ID{partition, from}] || l.gone[ID{partition, from}] {
		from++
	}
	return from
}

// anyPlace reports whether an output of an event may stand behind those of later ones: a call for others has made
// something of it once; it is gone, so that nobody writes it again before them where a worker's requests come late that
// was cut off; or an earlier output was deleted with its topic.
func (l *Ledger) anyPlace(id ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.shared[id]) > 0 || l.gone[id] || l.lost[id]
}

// commitSeen checks a commit on its way to the broker: nothing unfinished may lie behind it.
func (l *Ledger) commitSeen(partition int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.after(partition, l.prefix[partition])
	for l.finished[ID{partition, at}] {
		at = l.after(partition, at+1)
	}
	l.prefix[partition] = at
	if offset > at {
		l.breach("partition %d: commit of offset %d, but %v is not finished", partition, offset, ID{partition, at})
	}
}

// claims checks what a commit says of events beyond its offset.
func (l *Ledger) claims(worker string, partition int32, at streammanager.Position) {
	for _, r := range at.Finished {
		if r.From < at.Offset || r.From >= r.To {
			l.breach("%s commits partition %d at %d with finished %v", worker, partition, at.Offset, at.Finished)
		}
		for o := l.after(partition, r.From); o < r.To; o = l.after(partition, o+1) {
			if !l.finished[ID{partition, o}] {
				l.breach("%s commits %v as finished, which it is not", worker, ID{partition, o})
			}
			if before, ok := l.openBefore(ID{partition, o}); ok {
				l.breach("%s commits %v as finished beyond %d, but %v of the same key comes before it and will be sent again", worker, ID{partition, o}, at.Offset, before)
			}
		}
	}
}

// openBefore returns an unfinished event that must be sent before another of its key, whose outputs were sent.
func (l *Ledger) openBefore(id ID) (ID, bool) {
	in := l.plan.byID[id]
	if in == nil || in.kind != keyed || in.value == nil || !l.plan.lanes() || l.plan.expect(in).outputs == 0 {
		return ID{}, false
	}
	for _, other := range l.plan.inputs {
		if other.kind == keyed && other.value != nil && other.lane == in.lane && other.id.Partition == id.Partition && other.id.Offset < id.Offset &&
			!l.finished[other.id] && !l.gone[other.id] {
			return other.id, true
		}
	}
	return ID{}, false
}

// unfinished counts the events that have had no outcome yet and can still have one.
func (l *Ledger) unfinished() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, in := range l.plan.inputs {
		if !l.finished[in.id] && !l.gone[in.id] {
			n++
		}
	}
	return n
}

// logger writes the log of a worker into the trace, and notes what it says of positions.
func (l *Ledger) logger(b *books) *slog.Logger {
	return slog.New(&traceHandler{l: l, b: b, prefix: b.name})
}

type traceHandler struct {
	l      *Ledger
	b      *books
	prefix string
}

func (h *traceHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *traceHandler) WithGroup(string) slog.Handler            { return h }

func (h *traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	for _, a := range attrs {
		c.prefix += " " + a.String()
	}
	return &c
}

func (h *traceHandler) Handle(_ context.Context, r slog.Record) error {
	text := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			text += " " + a.String()
		}
		return true
	})
	switch r.Message {
	case streammanager.BeginsAnew:
		h.begins(r)
	case "kafka: offset out of range, going on elsewhere":
		h.movesOn(r)
	}
	h.l.Note("%s log: %s%s", h.prefix, r.Message, text)
	return nil
}

// begins notes what a stream knows for finished of a partition that it sets back.
func (h *traceHandler) begins(r slog.Record) {
	partition, before := int32(0), []streammanager.Range(nil)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "partition":
			partition = int32(a.Value.Int64())
		case "finished":
			before, _ = a.Value.Any().([]streammanager.Range)
		}
		return true
	})
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.b.anew[partition] = before
}

// movesOn notes what a source passes over that is told that its offset is gone.
func (h *traceHandler) movesOn(r slog.Record) {
	at := map[string]int64{}
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindInt64 {
			at[a.Key] = a.Value.Int64()
		}
		return true
	})
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.l.count("offset out of range")
	if h.l.plan.outOfRange == kafka.Latest {
		h.l.passOver(int32(at["partition"]), at["offset"], at["resumed"])
	}
}

const (
	idHeader     = "sim.id"
	poisonHeader = "sim.poison"
	partHeader   = "sim.part"
)

func headersOf(in *input) []event.Header {
	headers := []event.Header{{Key: idHeader, Value: []byte(in.id.String())}}
	if in.poison {
		headers = append(headers, event.Header{Key: poisonHeader, Value: []byte("1")})
	}
	return headers
}

// idOf reads the id that travels with every event.
func idOf(headers []event.Header) (ID, bool) {
	var id ID
	for _, h := range headers {
		if h.Key == idHeader {
			_, err := fmt.Sscanf(string(h.Value), "%d/%d", &id.Partition, &id.Offset)
			return id, err == nil
		}
	}
	return id, false
}
