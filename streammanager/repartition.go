package streammanager

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/a0c75104/enricher/event"
)

// hop says on which side of the repartition topic a partition is. Without one all is on neither.
type hop uint8

const (
	noHop     hop = iota
	firstHop      // an input partition: its events are keyed and written to the repartition topic
	secondHop     // a partition of the repartition topic: its events go through the functions
)

// repartition is what a user gives of the way through a topic.
type repartition struct {
	topic string
	sink  Sink
}

// hop tells where tp is.
func (r *repartition) hop(tp TopicPartition) hop {
	switch r.topic {
	case "":
		return noHop
	case tp.Topic:
		return secondHop
	}
	return firstHop
}

// Repartition leads all events through a topic that sink writes, keyed by PartitionBy, and that the source
// reads beside its own topics. Order and batches of a key then hold over all workers that share the source, and the work of one
// input partition is shared too. Events of other topics are filtered, keyed and written there; the
// functions see them when they are read again, at the place and with the key and time that they had at first.
func (b *Builder) Repartition(topic string, sink Sink) *Builder {
	b.through = repartition{topic: topic, sink: sink}
	return b
}

// checkRepartition finds what a way through a topic cannot do without.
func (b *Builder) checkRepartition() []error {
	if b.through.topic == "" && b.through.sink == nil {
		return nil
	}
	var errs []error
	if b.through.topic == "" || b.through.sink == nil {
		errs = append(errs, errors.New("repartition: it takes a topic and the sink that writes there (Repartition)"))
	}
	if b.partitionBy == nil {
		errs = append(errs, errors.New("repartition: it needs to know what orders events (PartitionBy)"))
	}
	_, commits := b.source.(Committer)
	_, rewinds := b.source.(Rewinder)
	_, pauses := b.source.(Pauser)
	_, settles := b.source.(Settler)
	if b.source != nil && (!commits || !rewinds || !pauses || !settles) {
		errs = append(errs, errors.New("repartition: the source must be able to commit, rewind, pause and settle"))
	}
	return errs
}

// The headers in which the origin of an event travels over the repartition topic. They are its last ones, in
// this order, so that headers of these names that the event had before are told apart and stay.
const (
	repartitionHeaders = "enricher.repartition."
	originTopic        = repartitionHeaders + "topic"
	originPartition    = repartitionHeaders + "partition"
	originOffset       = repartitionHeaders + "offset"
	originTimestamp    = repartitionHeaders + "timestamp"
	originKey          = repartitionHeaders + "key" // none: the event had no key
)

// outward returns the record of u for the repartition topic.
func outward(u *unit) Record {
	ev, pos := u.ev, u.ev.Position()
	rec := Record{Value: ev.Value(), Timestamp: time.Now()}
	if !u.loose {
		rec.Key = []byte(u.key)
	}
	headers := ev.Headers()
	rec.Headers = append(headers[:len(headers):len(headers)],
		event.Header{Key: originTopic, Value: []byte(pos.Topic)},
		event.Header{Key: originPartition, Value: strconv.AppendInt(nil, int64(pos.Partition), 10)},
		event.Header{Key: originOffset, Value: strconv.AppendInt(nil, pos.Offset, 10)},
		event.Header{Key: originTimestamp, Value: strconv.AppendInt(nil, ev.Timestamp().UnixMilli(), 10)},
	)
	if ev.Key() != nil {
		rec.Headers = append(rec.Headers, event.Header{Key: originKey, Value: ev.Key()})
	}
	return rec
}

// inward returns the record as it was when it was first read, and what orders it.
func inward(rec *Record) (origin Record, key Key, err error) {
	hs := rec.Headers
	origin = Record{Value: rec.Value}
	if n := len(hs); n > 0 && hs[n-1].Key == originKey {
		origin.Key = hs[n-1].Value
		if origin.Key == nil {
			origin.Key = []byte{}
		}
		hs = hs[:n-1]
	}
	n := len(hs) - 4
	if n < 0 || hs[n].Key != originTopic || hs[n+1].Key != originPartition || hs[n+2].Key != originOffset || hs[n+3].Key != originTimestamp {
		return *rec, Key{}, errors.New("the record does not say where it came from: nothing but this job may write to the repartition topic")
	}
	partition, err1 := strconv.ParseInt(string(hs[n+1].Value), 10, 32)
	offset, err2 := strconv.ParseInt(string(hs[n+2].Value), 10, 64)
	millis, err3 := strconv.ParseInt(string(hs[n+3].Value), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return *rec, Key{}, fmt.Errorf("reading where the record came from: nothing but this job may write to the repartition topic: %w", err)
	}
	origin.Topic, origin.Partition, origin.Offset = string(hs[n].Value), int32(partition), offset
	origin.Timestamp = time.UnixMilli(millis)
	if n > 0 {
		origin.Headers = hs[:n:n]
	}
	return origin, Key{Value: string(rec.Key), Keyless: rec.Key == nil}, nil
}

// moves reports whether u goes to the repartition topic, and not to a sink.
func (u *unit) moves() bool { return u.part.hop == firstHop && u.failure == nil && !u.pass }

// taker names who takes what becomes of u.
func (u *unit) taker() string {
	if u.moves() {
		return "repartition"
	}
	return "sink"
}

// passOn sends an event of an input partition on: to the repartition topic, or, a tombstone, to the sink.
func (l *loop) passOn(u *unit) {
	u.part.running++
	u.state = unitDone
	if u.pass {
		u.flows = []*flow{{u: u, ev: u.ev, state: flowEnded, out: u.passed}}
	}
	l.leave(u)
}

// turnsAway reports whether rec must wait until what was read before it has left. A tombstone has no key and goes
// to the sink: after all that was before it in its partition has gone through the functions, and before
// anything behind it is written to the repartition topic.
func (s *Stream) turnsAway(p *partition, rec *Record) bool {
	return p.hop == firstHop && !rec.Marker && s.cfg.Tombstones == TombstonesPass && (rec.Value == nil) != p.passing.Load()
}

// settleTurns lets partitions go on that wait between events and tombstones: tombstones when the group has
// finished all that was written to the repartition topic before, events when the tombstones were acknowledged.
func (l *loop) settleTurns() {
	if len(l.turning) == 0 {
		return
	}
	left := l.turning[:0]
	var ask []*partition
	for _, p := range l.turning {
		switch {
		case !p.live.Load() || !p.turning:
			continue
		case p.tracker.length > 0:
		case p.passing.Load():
			l.goOn(p)
			continue
		default:
			ask = append(ask, p)
		}
		left = append(left, p)
	}
	clear(l.turning[len(left):])
	l.turning = left
	if len(ask) == 0 || l.settling {
		return
	}
	l.settling = true
	l.s.tasks.Go(func() {
		err := l.s.settler.Settled(l.s.callCtx, l.s.through.topic)
		l.s.control.send(func(l *loop) { l.settled(ask, err) })
	})
}

// settled lets the tombstones of ps go. An error means that the stream ends.
func (l *loop) settled(ps []*partition, err error) {
	l.settling = false
	if err != nil {
		if l.mode == working {
			l.fail(fmt.Errorf("waiting for what is in the repartition topic: %w", err))
		}
		return
	}
	for _, p := range ps {
		if p.live.Load() && p.turning {
			l.goOn(p)
		}
	}
}

func (l *loop) goOn(p *partition) {
	p.passing.Store(!p.passing.Load())
	p.turning = false
}

// takeTurns notes partitions that the reader has left at a place where they must wait.
func (l *loop) takeTurns(ps []*partition) {
	for _, p := range ps {
		if p.live.Load() && !p.turning {
			p.turning = true
			l.turning = append(l.turning, p)
		}
	}
}

// inputWaits reports whether an input partition has records to read: then the repartition topic may not take
// the last quarter of the limits, or other workers would have nothing to do.
func (l *loop) inputWaits() bool {
	if l.s.through.topic == "" {
		return false
	}
	for p := range l.parts {
		if p.hop == firstHop && !p.turning && p.seen > p.tracker.next {
			return true
		}
	}
	return false
}

// findOrigin is examine for a record of the repartition topic: filter and key were asked before.
func (s *Stream) findOrigin(ctx context.Context, u *unit, key Key) (name string, err error) {
	if s.paths != nil {
		if err := u.ev.Check(s.paths); err != nil {
			return "source", err
		}
	}
	u.key, u.loose = key.Value, key.Keyless
	return s.findGroup(ctx, u)
}
