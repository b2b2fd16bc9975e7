package streammanager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/streammanager"
)

func TestAFailedSinkTakesTheStreamBackToItsOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		var down atomic.Bool
		h.sink.refuse = func(*streammanager.Record) error {
			if down.Load() {
				return errTest
			}
			return nil
		}
		h.src.add(0, "first", "first")
		stop := h.start(t)
		down.Store(true)
		for i := range 20 {
			h.src.add(0, fmt.Sprint("k", i%3), fmt.Sprint(i))
		}
		time.Sleep(5 * time.Second)
		if st := h.stream.Status(); st.Ready == nil || !errors.Is(st.Ready, errTest) {
			t.Errorf("status while the sink is down: %v, want the cause", st.Ready)
		}
		down.Store(false)
		time.Sleep(2 * time.Minute)
		if st := h.stream.Status(); st.Ready != nil || st.InFlightEvents != 0 {
			t.Errorf("status afterwards: %+v", st)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		got := map[string]int{}
		for _, v := range h.sink.values() {
			got[v]++
		}
		if len(got) != 21 || len(h.errs.values()) != 0 {
			t.Errorf("got %d of 21 outputs and %d error events", len(got), len(h.errs.values()))
		}
		if got := h.src.offset(0); got != 21 {
			t.Errorf("committed %d, want 21", got)
		}
	})
}

// failOnce refuses the first record that it is asked about.
func failOnce() func(*streammanager.Record) error {
	var failed atomic.Bool
	return func(*streammanager.Record) error {
		if failed.CompareAndSwap(false, true) {
			return errTest
		}
		return nil
	}
}

func TestARefusalForALostPartitionDisturbsNobody(t *testing.T) {
	refuse := func(r *streammanager.Record) error {
		if string(r.Value) == "bad" {
			return event.Rejectf(event.TooLarge, "too large")
		}
		return nil
	}
	for _, tt := range []struct {
		name string
		of   func(h *harness) *memSink
	}{
		{name: "of an output", of: func(h *harness) *memSink { return h.sink }},
		{name: "of an error event", of: func(h *harness) *memSink { return h.errs }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h *harness
				h = newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
					b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
						if string(ev.Value()) == "bad" && tt.of(h) == h.errs {
							return nil, errTest
						}
						return []*event.Event{ev}, nil
					}))
				})
				sink := tt.of(h)
				sink.hold, sink.refuse = true, refuse
				h.src.add(0, "a", "bad")
				h.src.add(1, "b", "b1")
				stop := h.serve(t)
				if len(sink.held) == 0 {
					t.Fatal("nothing waits for an answer: this test needs it so")
				}
				h.src.lose(tp{"in", 0})
				synctest.Wait()
				sink.let()
				if log := h.logged(); strings.Contains(log, "sink failed") {
					t.Errorf("a record's own fault, of a lost partition, was taken for a failure of the sink:\n%s", log)
				}
				h.ready(t)
				time.Sleep(time.Minute)
				equal(t, "outputs", h.sink.values(), []string{"b1"})
				equal(t, "errors", h.errs.values(), nil)
				h.offsets(t, 0, 1)
				stop()
			})
		})
	}
}

func TestABoundedSourceIsFinishedThoughTheSinkFails(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(takes(20 * time.Millisecond)) })
			h.sink.refuse = failOnce()
			for i := range 5 {
				h.src.add(0, "a", fmt.Sprint("a", i))
			}
			h.finish(t)
			equal(t, "outputs", h.sink.values(), []string{"a0", "a1", "a2", "a3", "a4"})
			h.offsets(t, 5)
		})
	})
	t.Run("a file", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in")
			if err := os.WriteFile(path, []byte("{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			src, err := file.NewSource(file.SourceConfig{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) { b.From(src).Process(takes(20 * time.Millisecond)) })
			h.sink.refuse = failOnce()
			h.finish(t)
			got := h.sink.values()
			slices.Sort(got) // lines have no key, and no order
			if got = slices.Compact(got); len(got) != 3 {
				t.Errorf("outputs: got %q, want each of 3 lines", got)
			}
		})
	})
}

// tightSink has no room behind "a1" until told, and keeps the answer for it.
type tightSink struct {
	memSink
	room  chan struct{}
	first func(error)
}

func (s *tightSink) Produce(ctx context.Context, r *streammanager.Record, done func(error)) {
	if string(r.Value) == "a1" {
		s.first = done
		<-s.room
		return
	}
	s.memSink.Produce(ctx, r, done)
}

func TestAFailureForALostPartitionDoesNotSilenceTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &tightSink{room: make(chan struct{})}
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.To(sink).Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) != "a" {
					return []*event.Event{ev}, nil
				}
				x, y := ev.Clone(), ev.Clone()
				x.SetValue([]byte("a1"))
				y.SetValue([]byte("a2"))
				return []*event.Event{x, y}, nil
			}))
		})
		h.src.add(0, "a", "a")
		h.src.add(1, "b", "b0")
		stop := h.serve(t)
		h.src.lose(tp{"in", 0})
		synctest.Wait()
		close(sink.room)
		synctest.Wait()
		sink.first(errTest)
		synctest.Wait()
		for i := range 5 {
			h.src.add(1, "b", fmt.Sprint("b", i+1))
		}
		time.Sleep(time.Hour)
		h.offsets(t, 0, 6)
		h.ready(t)
		got := slices.Compact(sink.values())
		equal(t, "outputs", got, []string{"b0", "b1", "b2", "b3", "b4", "b5"})
		stop()
	})
}

// What is still on its way could be written after its second copy, and out of order.
func TestGoingBackWaitsUntilEverythingSentWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{Workers: 1}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.sink.hold = true
		h.sink.refuse = failOnce()
		h.src.add(0, "a", "first")
		h.src.add(0, "b", "second")
		stop := h.serve(t)
		h.sink.mu.Lock()
		answers := h.sink.held
		h.sink.held, h.sink.hold = nil, false
		h.sink.mu.Unlock()
		if len(answers) != 2 {
			t.Fatalf("%d records at the sink, want 2: this test needs them there", len(answers))
		}
		answers[0]() // the failure
		time.Sleep(time.Hour)
		equal(t, "written while an answer is missing", h.sink.values(), []string{"second"})
		if err := h.stream.Status().Ready; !errors.Is(err, errTest) {
			t.Errorf("status while an answer is missing: %v, want the cause", err)
		}
		answers[1]()
		time.Sleep(time.Second)
		equal(t, "written afterwards", h.sink.values(), []string{"second", "first", "second"})
		h.ready(t)
		stop()
		h.offsets(t, 2)
	})
}

// singleSink answers later, and notes how it was set and how many records waited for answers at once.
type singleSink struct {
	memSink
	state  sync.Mutex // guards all below
	set    []bool
	atOnce map[bool]int // by the mode
	open   int
	fails  int
}

func (s *singleSink) Single(on bool) {
	s.state.Lock()
	defer s.state.Unlock()
	s.set = append(s.set, on)
}

func (s *singleSink) on() bool { return len(s.set) > 0 && s.set[len(s.set)-1] }

func (s *singleSink) Produce(ctx context.Context, r *streammanager.Record, done func(error)) {
	s.state.Lock()
	defer s.state.Unlock()
	s.open++
	s.atOnce[s.on()] = max(s.atOnce[s.on()], s.open)
	var err error
	if s.fails > 0 {
		s.fails--
		err = errTest
	}
	go func() {
		time.Sleep(time.Millisecond)
		s.state.Lock()
		s.open--
		s.state.Unlock()
		if err != nil {
			done(err)
			return
		}
		s.memSink.Produce(ctx, r, done)
	}()
}

func (s *singleSink) modes() []bool {
	s.state.Lock()
	defer s.state.Unlock()
	return slices.Clone(s.set)
}

// most is how many records waited for answers at once in a mode.
func (s *singleSink) most(single bool) int {
	s.state.Lock()
	defer s.state.Unlock()
	return s.atOnce[single]
}

// fail lets the next n records fail.
func (s *singleSink) fail(n int) {
	s.state.Lock()
	defer s.state.Unlock()
	s.fails = n
}

func TestAfterASecondFailureOneRecordIsSentAtATimeForAThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &singleSink{atOnce: map[bool]int{}}
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.To(sink).Process(try(pass)) })
		add := func(n int) {
			for i := range n {
				h.src.add(0, fmt.Sprint(i), "v")
			}
			time.Sleep(time.Minute)
		}
		modes := func(when string, want ...bool) {
			t.Helper()
			if got := sink.modes(); !slices.Equal(got, want) {
				t.Errorf("%s: single records were set to %v, want %v", when, got, want)
			}
		}
		h.src.logs[tp{"in", 0}] = nil // assigned, and empty
		stop := h.serve(t)
		sink.fail(1)
		add(1)
		modes("after one failure", false)
		sink.fail(1)
		add(1)
		modes("after the second", false, true)
		add(998)
		modes("after 999 good ones", false, true)
		if n := sink.most(true); n != 1 {
			t.Errorf("%d records waited for answers at once, want 1", n)
		}
		add(1)
		modes("after 1,000 good ones", false, true, false)
		add(100)
		if n := sink.most(false); n < 2 {
			t.Error("afterwards too one record was sent at a time")
		}
		sink.fail(1)
		add(1)
		modes("after a failure that is a first one again", false, true, false, false)
		stop()
		h.offsets(t, 1102)
	})
}

type noOpen struct{ memSink }

func (*noOpen) Open(context.Context) error { return errTest }

type closable struct {
	memSink
	closed bool
}

func (c *closable) Close(context.Context) error { c.closed = true; return nil }

func TestTheSinkIsClosedWhenTheErrorSinkDoesNotOpen(t *testing.T) {
	sink := &closable{}
	h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) { b.To(sink).ErrorsTo(&noOpen{}, nil) })
	if err := h.stream.Run(t.Context()); !errors.Is(err, errTest) {
		t.Errorf("got %v, want what kept the error sink from opening", err)
	}
	if !sink.closed {
		t.Error("the sink was opened and never closed")
	}
}

func TestAnEventThatTheSinkRefusesAgainAndAgainIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.sink.refuse = func(r *streammanager.Record) error {
			if string(r.Value) == "poison" {
				return errTest
			}
			return nil
		}
		for i, v := range []string{"a", "b", "poison", "c"} {
			h.src.add(0, fmt.Sprint("key", i), v)
		}
		stop := h.serve(t)
		time.Sleep(10 * time.Second)
		const place = `the event at topic "in" partition 0 offset 2 is refused for the`
		if err := h.stream.Status().Ready; err == nil || !strings.Contains(err.Error(), place) || !errors.Is(err, errTest) {
			t.Errorf("ready %v, want the place of the event and the cause", err)
		}
		if !strings.Contains(h.logged(), "refused for the 3. time in a row") {
			t.Errorf("the log does not name it:\n%s", h.log.String())
		}
		h.offsets(t, 2)
		h.sink.mu.Lock()
		h.sink.refuse = nil
		h.sink.mu.Unlock()
		time.Sleep(2 * time.Minute)
		h.ready(t)
		h.offsets(t, 4)
		stop()
	})
}
