package streammanager_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type tp = streammanager.TopicPartition

// memSource is a log in memory with committed offsets. Its partitions are handed out by assign.
type memSource struct {
	mu        sync.Mutex
	logs      map[tp][]streammanager.Record
	next      map[tp]int64
	paused    map[tp]bool
	committed map[tp]int64
	finished  map[tp][]streammanager.Range // beyond what is committed
	commits   []map[tp]int64
	commitErr error
	bounded   bool
	a         streammanager.Assignments
	wake      chan struct{}
	polls     int
	leaving   int // revocations under way
}

func newMemSource(bounded bool) *memSource {
	return &memSource{
		logs: map[tp][]streammanager.Record{}, next: map[tp]int64{}, paused: map[tp]bool{}, committed: map[tp]int64{}, finished: map[tp][]streammanager.Range{},
		bounded: bounded, wake: make(chan struct{}, 1),
	}
}

// add appends a record; its key and value are text, "-" is null.
func (s *memSource) add(partition int32, key, value string) { s.addTo(tp{"in", partition}, key, value) }

func (s *memSource) addTo(at tp, key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := streammanager.Record{Topic: at.Topic, Partition: at.Partition, Offset: int64(len(s.logs[at])), Timestamp: time.Now()}
	if key != "-" {
		rec.Key = []byte(key)
	}
	if value != "-" {
		rec.Value = []byte(value)
	}
	s.logs[at] = append(s.logs[at], rec)
	s.kick()
}

func (s *memSource) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *memSource) Open(_ context.Context, a streammanager.Assignments) error {
	s.a = a
	s.mu.Lock()
	var all []tp
	for at := range s.logs {
		all = append(all, at)
	}
	s.mu.Unlock()
	s.assign(all...)
	return nil
}

func (s *memSource) assign(tps ...tp) {
	s.mu.Lock()
	starts := map[tp]streammanager.Position{}
	for _, at := range tps {
		starts[at] = streammanager.Position{Offset: s.committed[at], Finished: s.finished[at]}
	}
	s.mu.Unlock()
	s.a.Assigned(starts)
	s.mu.Lock()
	for at, from := range starts {
		s.next[at] = from.Offset // a pause outlives the assignment, as in the Kafka client
	}
	s.mu.Unlock()
	s.kick()
}

func (s *memSource) revoke(ctx context.Context, tps ...tp) {
	s.mu.Lock()
	s.leaving++
	s.mu.Unlock()
	s.a.Revoked(ctx, tps)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving--
	for _, at := range tps {
		delete(s.next, at)
	}
}

// lose takes a partition away without asking.
func (s *memSource) lose(at tp) {
	s.mu.Lock()
	delete(s.next, at)
	s.mu.Unlock()
	s.a.Lost([]tp{at})
}

func (s *memSource) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	for {
		if err := ctx.Err(); err != nil {
			return streammanager.Polled{}, err
		}
		s.mu.Lock()
		s.polls++
		got := streammanager.Polled{HighWatermarks: map[tp]int64{}}
		left := false
		for at := range s.next {
			log := s.logs[at]
			got.HighWatermarks[at] = int64(len(log))
			for s.next[at] < int64(len(log)) && len(got.Records) < limit && !s.paused[at] {
				got.Records = append(got.Records, log[s.next[at]])
				s.next[at]++
			}
			left = left || s.next[at] < int64(len(log))
		}
		whole := s.leaving == 0 && len(s.next) == len(s.logs) // else it waits for who has the others, as a group does
		s.mu.Unlock()
		if len(got.Records) > 0 {
			return got, nil
		}
		if s.bounded && !left && whole {
			return got, io.EOF
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		}
	}
}

func (s *memSource) Commit(_ context.Context, positions map[tp]streammanager.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commitErr != nil {
		return s.commitErr
	}
	offsets := map[tp]int64{}
	for at, pos := range positions {
		offsets[at], s.committed[at], s.finished[at] = pos.Offset, pos.Offset, pos.Finished
	}
	s.commits = append(s.commits, offsets)
	return nil
}

func (s *memSource) Rewind(offsets map[tp]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, off := range offsets {
		if _, ok := s.next[at]; ok {
			s.next[at] = off
		}
	}
	s.kick()
}

func (s *memSource) Pause(tps ...tp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range tps {
		s.paused[at] = true
	}
}

func (s *memSource) Resume(tps ...tp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range tps {
		delete(s.paused, at)
	}
	s.kick()
}

func (s *memSource) Close(context.Context) {}

func (s *memSource) isPaused(partition int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused[tp{"in", partition}]
}

// refuse has commits fail with err, or be taken again.
func (s *memSource) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitErr = err
}

func (s *memSource) offset(partition int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed[tp{"in", partition}]
}

// beyond returns what was committed as finished beyond the offset.
func (s *memSource) beyond(partition int32) []streammanager.Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished[tp{"in", partition}]
}

// memSink keeps what was produced. refuse, if set, decides on each record.
type memSink struct {
	mu     sync.Mutex
	got    []streammanager.Record
	refuse func(r *streammanager.Record) error
	check  func(r *streammanager.Record) error
	held   []func()
	hold   bool
}

func (s *memSink) Open(context.Context) error { return nil }

func (s *memSink) Produce(_ context.Context, r *streammanager.Record, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.refuse != nil {
		err = s.refuse(r)
	}
	if err == nil {
		s.got = append(s.got, *r)
	}
	if s.hold {
		s.held = append(s.held, func() { done(err) })
		return
	}
	done(err)
}

// let answers all that was held back.
func (s *memSink) let() {
	s.mu.Lock()
	held := s.held
	s.held, s.hold = nil, false
	s.mu.Unlock()
	for _, done := range held {
		done()
	}
}

func (s *memSink) Check(r *streammanager.Record) error {
	if s.check != nil {
		return s.check(r)
	}
	return nil
}

func (s *memSink) Close(context.Context) error { return nil }

func (s *memSink) values() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.got {
		if r.Value == nil {
			out = append(out, "null")
			continue
		}
		out = append(out, string(r.Value))
	}
	return out
}

func (s *memSink) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// header returns a header of the n-th record.
func (s *memSink) header(n int, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.got[n].Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// try is a Func from a plain function; the default passes the event on.
func try(fn func(ctx context.Context, ev *event.Event) ([]*event.Event, error)) streammanager.Step {
	return streammanager.Step{Name: "call", Func: event.FuncOf(fn)}
}

func pass(_ context.Context, ev *event.Event) ([]*event.Event, error) {
	return []*event.Event{ev}, nil
}

var errTest = fmt.Errorf("test failure")
