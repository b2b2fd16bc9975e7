package streammanager_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// sticks is a function that never ends with an event of the value "stuck".
func sticks(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	if v := string(ev.Value()); v == "stuck" || v == "k:stuck" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []*event.Event{ev}, nil
}

// balanced holds that what was read is in one of the other counts.
func balanced(t *testing.T, when string, st streammanager.Status) {
	t.Helper()
	if sum := st.Emitted + st.Dropped + st.Errors + st.Unfinished + st.Returned; sum != st.Read {
		t.Errorf("%s: %d were read, but %d emitted, %d dropped, %d failed, %d unfinished and %d returned make %d", when,
			st.Read, st.Emitted, st.Dropped, st.Errors, st.Unfinished, st.Returned, sum)
	}
}

// unfinished compares what the status tells of reads and of what has no outcome.
func (h *harness) unfinished(t *testing.T, when string, read, want int64) {
	t.Helper()
	st := h.stream.Status()
	if st.Unfinished != want || st.Read != read {
		t.Errorf("%s: %d read and %d unfinished, want %d and %d", when, st.Read, st.Unfinished, read, want)
	}
	if !h.hops {
		balanced(t, when, st)
	}
}

func TestUnfinishedIsWhatAStopGivesUp(t *testing.T) {
	cfg := streammanager.Config{ShutdownTimeout: 5 * time.Second, Workers: 4}
	shape := func(b *streammanager.Builder) { b.Process(try(sticks)) }
	t.Run("of those that were read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, false, cfg, shape)
			h.src.add(0, "a", "1")
			h.src.add(0, "b", "stuck")
			h.src.add(0, "b", "2") // waits behind it
			stop := h.serve(t)
			time.Sleep(time.Second)
			h.unfinished(t, "at work", 3, 2)
			stop()
			h.unfinished(t, "stopped", 3, 2)
		})
	})
	t.Run("of a transaction all", func(t *testing.T) {
		tx(t, time.Minute, cfg, shape, func(t *testing.T, h *harness, _ *memTx) {
			h.src.add(0, "a", "1")
			h.src.add(0, "b", "stuck")
			stop := h.serve(t)
			stop()
			h.unfinished(t, "stopped", 2, 2)
		})
	})
	t.Run("though a repartition topic was between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, _ := newHop(t, cfg, shape)
			h.hops = true
			h.src.add(0, "", "a:1")
			h.src.add(0, "", "k:stuck")
			stop := h.serve(t)
			time.Sleep(time.Second)
			stop()
			h.unfinished(t, "stopped", 2, 1)
		})
	})
}

func TestWhatIsReadAgainIsUnfinishedOnce(t *testing.T) {
	t.Run("after transactions that were aborted", func(t *testing.T) {
		tx(t, time.Minute, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(pass)).Filter(func(_ context.Context, ev *event.Event) (bool, error) { return string(ev.Value()) != "no", nil })
		}, func(t *testing.T, h *harness, m *memTx) {
			tries := 0
			m.fate = func(bool) (bool, error) { tries++; return tries > 3, nil }
			h.src.add(0, "a", "1")
			h.src.add(0, "a", "no")
			stop := h.serve(t)
			h.unfinished(t, "in the first", 2, 2)
			time.Sleep(1020 * time.Millisecond)
			h.unfinished(t, "between the first and the second", 2, 2)
			time.Sleep(500 * time.Millisecond)
			h.unfinished(t, "in the second", 4, 2)
			time.Sleep(time.Minute)
			stop()
			h.unfinished(t, "stopped", 8, 0)
		})
	})
	t.Run("after a failure of the sink", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
			h.sink.refuse = failOnce()
			h.src.add(0, "a", "1")
			stop := h.serve(t)
			h.unfinished(t, "before it is read again", 1, 1)
			time.Sleep(time.Minute)
			stop()
			h.unfinished(t, "stopped", 2, 0)
		})
	})
}

func TestWhatIsTakenAwayIsUnfinishedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(sticks)) })
		h.src.add(0, "a", "stuck")
		stop := h.serve(t)
		h.src.lose(tp{"in", 0})
		time.Sleep(time.Second)
		stop()
		h.unfinished(t, "stopped", 1, 0)
	})
}

func TestWhatIsTakenAwayWithATransactionIsReturned(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(sticks)) }, func(t *testing.T, h *harness, m *memTx) {
		h.src.add(0, "a", "stuck")
		h.src.add(0, "b", "1")
		stop := h.serve(t)
		time.Sleep(500 * time.Millisecond)
		m.revoke(t.Context(), tp{"in", 0})
		time.Sleep(time.Second)
		h.unfinished(t, "after the revoke", 2, 0)
		h.src.assign(tp{"in", 0})
		time.Sleep(500 * time.Millisecond)
		h.unfinished(t, "given again", 4, 2)
		m.lose(tp{"in", 0})
		time.Sleep(time.Second)
		stop()
		h.unfinished(t, "stopped", 4, 0)
		if st := h.stream.Status(); st.Returned != 4 {
			t.Errorf("%d returned, want 4", st.Returned)
		}
	})
}

func TestWhatIsTakenAwayBetweenTwoTriesIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(try(pass)) })
		h.sink.refuse = failOnce()
		h.src.add(0, "a", "1")
		stop := h.serve(t)
		h.unfinished(t, "before it is read again", 1, 1)
		h.src.lose(tp{"in", 0})
		time.Sleep(time.Minute)
		stop()
		h.unfinished(t, "stopped", 1, 0)
	})
}
