package streammanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/a0c75104/enricher/event"
)

// grant is the loop's leave to read: one poll, or what is left of the last one.
type grant struct {
	events int
	bytes  int64
	ahead  estimate // of the outputs of each event: room is kept for them too
	alone  bool     // nothing is in flight: one event may exceed bytes
}

// reading is what came of a grant.
type reading struct {
	items []readItem
	turns []*partition // left at a place where they must wait
	needs int64        // bytes that the next record needs and the grant did not hold
	watch map[TopicPartition]int64
	err   error // io.EOF at the end of a bounded source
}

// readItem is one delivered offset. Without unit it is finished at once.
type readItem struct {
	part    *partition
	offset  int64
	time    int64
	bytes   int64
	unit    *unit
	marker  bool
	dropped bool
	before  bool // its outcome is known from before
}

// reader polls the source, copies what it keeps, and finds out about each event what the loop needs to
// know. It never reads more than it was granted.
type reader struct {
	s     *Stream
	rest  []Record // polled and not yet admitted; views into the source's buffers
	owner map[TopicPartition]*partition
	after map[TopicPartition]*partition
	watch map[TopicPartition]int64
	skip  map[TopicPartition]bool // partitions of which nothing more of rest is taken
}

// run answers grants until ctx ends. Polls end with pollCtx, the soft one.
func (r *reader) run(ctx context.Context, grants <-chan grant) {
	r.owner, r.after = map[TopicPartition]*partition{}, map[TopicPartition]*partition{}
	for {
		select {
		case <-ctx.Done():
			return
		case g := <-grants:
			got := r.answer(ctx, g)
			select {
			case r.s.readings <- got:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (r *reader) answer(ctx context.Context, g grant) reading {
	if len(r.rest) == 0 {
		if err := r.poll(ctx, g.events); err != nil {
			return reading{err: err}
		}
	}
	got := r.admit(ctx, g)
	got.watch, r.watch = r.watch, nil
	return got
}

// poll fills rest with records of partitions that were the same assignment before and after. What came
// in between two assignments is read again.
func (r *reader) poll(ctx context.Context, limit int) error {
	clear(r.skip)
	pollCtx, cancel := context.WithCancel(r.s.pollCtx)
	defer cancel()
	if behind := r.s.assigned.beforePoll(r.owner, cancel); len(behind) > 0 {
		back := map[TopicPartition]*partition{}
		for tp := range behind {
			back[tp] = r.owner[tp]
		}
		r.s.assigned.rewind(r.s.rewinder, back)
	}
	r.s.polling.start()
	polled, err := r.s.source.Poll(pollCtx, limit)
	r.s.polling.stop()
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, io.EOF) && errors.Is(err, context.Canceled) {
			return nil // the stream wanted the poll to end
		}
		if len(polled.Records) == 0 {
			return err
		}
	}
	r.rest, r.watch = polled.Records, polled.HighWatermarks
	return nil
}

// handOver is after how long what was looked at goes on, though more was polled: expressions may be slow.
const handOver = 50 * time.Millisecond

// admit turns the polled records into units, as far as the grant reaches.
func (r *reader) admit(ctx context.Context, g grant) reading {
	var got reading
	room, events := g.bytes, g.events
	r.s.assigned.snapshot(r.after)
	again := map[TopicPartition]*partition(nil)
	if r.skip == nil {
		r.skip = map[TopicPartition]bool{}
	}
	began := time.Now()
	for len(r.rest) > 0 && events > 0 && (len(got.items) == 0 || time.Since(began) < handOver) {
		rec := &r.rest[0]
		tp := TopicPartition{rec.Topic, rec.Partition}
		part, now := r.owner[tp], r.after[tp]
		if part == nil || part != now || part.held.Load() || r.skip[tp] {
			r.leaveOut(tp, now, &again)
			continue
		}
		if rec.Offset < part.next {
			r.rest = r.rest[1:]
			continue
		}
		if part.finishedBefore(rec.Offset) {
			got.items = append(got.items, readItem{part: part, offset: rec.Offset, time: rec.Timestamp.UnixMilli(), marker: rec.Marker, before: true})
			part.next = rec.Offset + 1
			r.rest = r.rest[1:]
			continue
		}
		if r.s.turnsAway(part, rec) {
			got.turns = append(got.turns, part)
			r.leaveOut(tp, part, &again)
			continue
		}
		size := recordSize(rec)
		if part.hop != firstHop {
			size += g.ahead.of(1, size, 1)
		}
		if size > room && !(g.alone && len(got.items) == 0) && !rec.Marker {
			got.needs = size
			break
		}
		item := r.item(ctx, part, rec)
		part.next = rec.Offset + 1
		got.items = append(got.items, item)
		if item.unit != nil {
			room -= size
			events--
		}
		r.rest = r.rest[1:]
	}
	if again != nil && r.s.rewinder != nil {
		r.s.assigned.rewind(r.s.rewinder, again)
	}
	return got
}

// leaveOut leaves out the next record, and with it all behind it: they will be read again in order.
func (r *reader) leaveOut(tp TopicPartition, now *partition, again *map[TopicPartition]*partition) {
	r.skip[tp] = true
	if now != nil {
		if *again == nil {
			*again = map[TopicPartition]*partition{}
		}
		(*again)[tp] = now
	}
	r.rest = r.rest[1:]
}

func recordSize(rec *Record) int64 {
	n := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// item copies one record and finds its key. An event that the filter leaves out is no unit.
func (r *reader) item(ctx context.Context, part *partition, rec *Record) readItem {
	it := readItem{part: part, offset: rec.Offset, time: rec.Timestamp.UnixMilli(), bytes: recordSize(rec), marker: rec.Marker}
	if rec.Marker {
		return it
	}
	origin, key, foreign := *rec, Key{}, error(nil)
	switch {
	case r.s.unwrap != nil:
		var ours bool
		if origin, ours, foreign = r.s.opened(ctx, rec); !ours && foreign == nil {
			it.marker = true // nothing that was read
			return it
		}
	case part.hop == secondHop:
		origin, key, foreign = inward(rec)
		it.time = origin.Timestamp.UnixMilli() // how far behind the job is, over both hops
	}
	ev := copyRecord(part, &origin)
	size := int64(ev.Size())
	u := &unit{ev: ev, part: part, offset: rec.Offset, size: size, input: size, readAt: time.Now()}
	keep, name, err := true, "", error(nil)
	switch {
	case foreign != nil && part.hop == secondHop:
		name, err = "repartition", event.Reject(event.InvalidEvent, foreign)
	case foreign != nil:
		name, err = "source", foreign
	case part.hop == secondHop:
		name, err = r.s.findOrigin(ctx, u, key)
	default:
		keep, name, err = r.s.examine(ctx, u)
	}
	if err != nil {
		u.failure = r.s.failure(u, err, name, 0, 0)
	}
	if !keep && err == nil {
		it.dropped = true
		return it
	}
	it.unit = u
	if u.moves() {
		u.moved = outward(u)
		u.size += recordSize(&u.moved) - size // what it takes more than the event, whose bytes it shares
	}
	return it
}

// copyRecord copies a record out of the source's buffer, in one piece.
func copyRecord(part *partition, rec *Record) *event.Event {
	buf := make([]byte, 0, recordSize(rec))
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(buf)
		buf = append(buf, b...)
		return buf[from:len(buf):len(buf)]
	}
	var headers []event.Header
	if len(rec.Headers) > 0 {
		headers = make([]event.Header, len(rec.Headers))
		for i, h := range rec.Headers {
			headers[i] = event.Header{Key: h.Key, Value: keep(h.Value)}
		}
	}
	pos := event.Position{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Epoch: part.epoch}
	return event.New(pos, keep(rec.Key), keep(rec.Value), headers, rec.Timestamp)
}

// examine checks the value, asks the filter, and finds key and group. keep false without an error: the
// event is dropped. name is the place that an error came from.
func (s *Stream) examine(ctx context.Context, u *unit) (keep bool, name string, err error) {
	if u.ev.Tombstone() {
		return s.examineTombstone(u)
	}
	if s.paths != nil {
		if err := u.ev.Check(s.paths); err != nil {
			return true, "source", err
		}
	}
	if s.filter != nil {
		keep, err := s.guardBool(func() (bool, error) { return s.filter(ctx, u.ev) })
		if err != nil || !keep {
			return false, "filter", err
		}
	}
	if err := s.findKey(ctx, u); err != nil {
		if errors.Is(err, errDropped) {
			return false, "", nil
		}
		return true, "partition_by", err
	}
	if u.part.hop == firstHop {
		return true, "", nil
	}
	name, err = s.findGroup(ctx, u)
	return true, name, err
}

// findGroup finds with what events u shares a window.
func (s *Stream) findGroup(ctx context.Context, u *unit) (name string, err error) {
	u.group = u.key
	if s.by != nil {
		if _, err := s.guardBool(func() (bool, error) { u.group, err = s.by(ctx, u.ev); return true, err }); err != nil {
			return "window", err
		}
	}
	return "", nil
}

// passing makes the record of a tombstone here, where expressions may run: it comes to no worker.
func (s *Stream) passing(ev *event.Event) (rec Record, err error) {
	if s.preparer == nil {
		return recordOf(ev), nil
	}
	_, err = s.guardBool(func() (bool, error) { rec, err = s.preparer.Prepare(ev); return true, err })
	return rec, err
}

func (s *Stream) examineTombstone(u *unit) (bool, string, error) {
	switch s.cfg.Tombstones {
	case TombstonesDrop:
		return false, "", nil
	case TombstonesError:
		return true, "source", event.Rejectf(event.InvalidEvent, "the value is null; set tombstones: pass to let such events through")
	}
	rec, err := s.passing(u.ev)
	if err != nil {
		return true, "sink", err
	}
	u.pass, u.passed = true, &rec
	if s.partitionBy == nil {
		u.key, u.loose = string(u.ev.Key()), u.ev.Key() == nil
		u.group = u.key
	}
	return true, "", nil
}

var errDropped = errors.New("dropped")

func (s *Stream) findKey(ctx context.Context, u *unit) error {
	if s.partitionBy == nil {
		u.key, u.loose = string(u.ev.Key()), u.ev.Key() == nil
		return nil
	}
	var key Key
	_, err := s.guardBool(func() (bool, error) {
		var err error
		key, err = s.partitionBy(ctx, u.ev)
		return true, err
	})
	if err != nil {
		return err
	}
	if key.Drop {
		return errDropped
	}
	u.key, u.loose = key.Value, key.Keyless
	return nil
}

// guardBool turns a panic of a user's function into the event's error.
func (s *Stream) guardBool(fn func() (bool, error)) (yes bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("function panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = event.Rejectf(event.Panic, "panic: %v", p)
		}
	}()
	return fn()
}
