package streammanager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// tx runs a test of transactions in a bubble.
func tx(t *testing.T, timeout time.Duration, cfg streammanager.Config, shape func(*streammanager.Builder), do func(t *testing.T, h *harness, m *memTx)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h, m := newTxHarness(t, false, timeout, cfg, shape)
		h.src.logs[tp{"in", 0}] = nil
		do(t, h, m)
	})
}

func sorted(values []string) []string { slices.Sort(values); return values }

func passes(b *streammanager.Builder) { b.Process(try(pass)) }

func TestOutputsAreSeenWithTheCommitOfTheirPositions(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, passes, func(t *testing.T, h *harness, m *memTx) {
		stop := h.serve(t)
		h.src.add(0, "a", "1")
		h.src.add(0, "a", "2")
		synctest.Wait()
		equal(t, "seen before the commit", h.sink.values(), nil)
		h.offsets(t, 0)
		if st := h.stream.Status(); st.Emitted != 0 {
			t.Errorf("%d events counted before they can be seen", st.Emitted)
		}
		time.Sleep(2 * time.Second)
		equal(t, "seen", h.sink.values(), []string{"1", "2"})
		h.offsets(t, 2)
		if st := h.stream.Status(); st.Emitted != 2 || st.Outputs != 2 {
			t.Errorf("counted: %+v", st)
		}
		stop()
	})
}

func TestAnIdleStreamBeginsNoTransaction(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, passes, func(t *testing.T, h *harness, m *memTx) {
		stop := h.serve(t)
		time.Sleep(time.Hour)
		h.src.add(0, "a", "1")
		time.Sleep(time.Hour)
		stop()
		equal(t, "transactions", m.ended(), []string{"commit"})
		if m.begins != 1 {
			t.Errorf("%d transactions begun, want 1", m.begins)
		}
	})
}

func TestPositionsOfDroppedEventsAreCommittedInTransactions(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, func(b *streammanager.Builder) {
		b.Filter(func(context.Context, *event.Event) (bool, error) { return false, nil })
	}, func(t *testing.T, h *harness, m *memTx) {
		stop := h.serve(t)
		h.src.add(0, "a", "1")
		time.Sleep(2 * time.Second)
		h.offsets(t, 1)
		if st := h.stream.Status(); st.Dropped != 1 {
			t.Errorf("counted: %+v", st)
		}
		stop()
		equal(t, "transactions", m.ended(), []string{"commit"})
	})
}

func TestAWindowClosesWithItsTransaction(t *testing.T) {
	reg := prometheus.NewRegistry()
	tx(t, time.Minute, streammanager.Config{Metrics: reg, CommitInterval: 2 * time.Second}, func(b *streammanager.Builder) {
		b.Process(try(pass)).Window(window.Config{Count: 100, Timeout: 10 * time.Second})
	}, func(t *testing.T, h *harness, m *memTx) {
		stop := h.serve(t)
		h.src.add(0, "a", "1")
		time.Sleep(3 * time.Second)
		equal(t, "seen", h.sink.values(), []string{"1"})
		stop()
	})
	want := `
# HELP enricher_windows_closed_total Windows closed, by reason.
# TYPE enricher_windows_closed_total counter
enricher_windows_closed_total{pipeline="test",reason="barrier"} 0
enricher_windows_closed_total{pipeline="test",reason="bytes"} 0
enricher_windows_closed_total{pipeline="test",reason="count"} 0
enricher_windows_closed_total{pipeline="test",reason="drain"} 0
enricher_windows_closed_total{pipeline="test",reason="eager"} 0
enricher_windows_closed_total{pipeline="test",reason="limits"} 0
enricher_windows_closed_total{pipeline="test",reason="timeout"} 0
enricher_windows_closed_total{pipeline="test",reason="transaction"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "enricher_windows_closed_total"); err != nil {
		t.Error(err)
	}
}

func TestATransactionAdmitsOneEventForEachWorkerAtFirst(t *testing.T) {
	var most, now atomic.Int32
	tx(t, time.Minute, streammanager.Config{Workers: 3}, func(b *streammanager.Builder) {
		b.Process(takes(100 * time.Millisecond)).Filter(func(context.Context, *event.Event) (bool, error) {
			most.Store(max(most.Load(), now.Add(1)))
			return true, nil
		})
	}, func(t *testing.T, h *harness, m *memTx) {
		for i := range 40 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
		}
		stop := h.serve(t)
		time.Sleep(50 * time.Millisecond)
		if got := now.Load(); got != 3 {
			t.Errorf("the first transaction admitted %d events, want 3", got)
		}
		time.Sleep(10 * time.Second)
		if got := len(h.sink.values()); got != 40 {
			t.Errorf("%d of 40 seen", got)
		}
		if n := len(m.ended()); n > 4 {
			t.Errorf("%d transactions: the later ones must admit more", n)
		}
		stop()
	})
}

func oneAfterTheOther(d time.Duration) func(*streammanager.Builder) {
	return func(b *streammanager.Builder) { b.Process(takes(d)) }
}

func TestATransactionThatTakesTooLongIsReadAgainInSmallerParts(t *testing.T) {
	reg := prometheus.NewRegistry()
	tx(t, time.Minute, streammanager.Config{Workers: 16, Order: streammanager.OrderKeySerial, Metrics: reg}, oneAfterTheOther(4*time.Second), func(t *testing.T, h *harness, m *memTx) {
		var want []string
		for i := range 40 {
			h.src.add(0, "one key", fmt.Sprint(i))
			want = append(want, fmt.Sprint(i))
		}
		stop := h.serve(t)
		time.Sleep(10 * time.Minute)
		equal(t, "seen", h.sink.values(), want)
		h.offsets(t, 40)
		h.ready(t)
		if !slices.Contains(m.ended(), "abort") {
			t.Error("no transaction was aborted")
		}
		if st := h.stream.Status(); st.Emitted != 40 {
			t.Errorf("%d events counted, want 40", st.Emitted)
		}
		stop()
		if !strings.Contains(h.logged(), "not finished in time") {
			t.Error("the abort was not said")
		}
	})
}

func TestAnEventThatNoTransactionIsLongEnoughForIsNamed(t *testing.T) {
	var quick atomic.Bool
	tx(t, time.Minute, streammanager.Config{Workers: 4}, func(b *streammanager.Builder) {
		b.Process(streammanager.Step{Name: "call", Timeout: time.Hour, Func: event.FuncOf(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
			if string(ev.Value()) == "slow" && !quick.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []*event.Event{ev}, nil
		})})
	}, func(t *testing.T, h *harness, m *memTx) {
		for _, v := range []string{"1", "2", "slow", "3"} {
			h.src.add(0, v, v)
		}
		stop := h.serve(t)
		time.Sleep(5 * time.Minute)
		equal(t, "seen before it", sorted(h.sink.values()), []string{"1", "2"})
		err := h.stream.Status().Ready
		if err == nil || !strings.Contains(err.Error(), `topic "in" partition 0 offset 2`) {
			t.Errorf("ready: %v, want the event named", err)
		}
		quick.Store(true)
		time.Sleep(time.Minute)
		equal(t, "seen", sorted(h.sink.values()), []string{"1", "2", "3", "slow"})
		h.ready(t)
		stop()
	})
}

func TestARefusedRecordBecomesAnErrorEventInALaterTransaction(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, passes, func(t *testing.T, h *harness, m *memTx) {
		m.refuse = func(r *streammanager.Record) error {
			if string(r.Value) == "2" && len(r.Headers) == 0 {
				return event.Rejectf(event.TooLarge, "too large")
			}
			return nil
		}
		for _, v := range []string{"1", "2", "3"} {
			h.src.add(0, v, v)
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		equal(t, "seen", sorted(h.sink.values()), []string{"1", "3"})
		equal(t, "error events", h.errs.values(), []string{"2"})
		equal(t, "transactions", m.ended(), []string{"abort", "commit"})
		if got := h.errs.header(0, "enricher.error.type"); got != "too_large" {
			t.Errorf("error type %q", got)
		}
		stop()
		h.offsets(t, 3)
	})
}

func TestAFailedSinkAbortsTheTransaction(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, passes, func(t *testing.T, h *harness, m *memTx) {
		var down atomic.Bool
		m.refuse = func(r *streammanager.Record) error {
			if down.Load() && string(r.Value) == "5" {
				return errTest
			}
			return nil
		}
		down.Store(true)
		var want []string
		for i := range 10 {
			h.src.add(0, fmt.Sprint(i), fmt.Sprint(i))
			want = append(want, fmt.Sprint(i))
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		equal(t, "seen while the sink is down", h.sink.values(), nil)
		if err := h.stream.Status().Ready; !errors.Is(err, errTest) {
			t.Errorf("ready: %v", err)
		}
		down.Store(false)
		time.Sleep(3 * time.Minute)
		equal(t, "seen", sorted(h.sink.values()), want)
		h.ready(t)
		stop()
	})
}

func TestARevokeAbortsWithoutWaitingForCalls(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(takes(2 * time.Second)) }, func(t *testing.T, h *harness, m *memTx) {
		h.src.logs[tp{"in", 1}] = nil
		stop := h.serve(t)
		h.src.add(0, "a", "0")
		h.src.add(1, "b", "1")
		time.Sleep(time.Second)
		within(t, "the revoke", 0, func() { m.revoke(t.Context(), tp{"in", 0}) })
		time.Sleep(10 * time.Second)
		equal(t, "seen of what stayed", h.sink.values(), []string{"1"})
		equal(t, "transactions", m.ended(), []string{"abort", "commit"})
		h.offsets(t, 0, 1)
		h.src.assign(tp{"in", 0})
		time.Sleep(10 * time.Second)
		equal(t, "seen", h.sink.values(), []string{"1", "0"})
		stop()
	})
}

func TestACommitThatIsNotTakenIsReadAgain(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, passes, func(t *testing.T, h *harness, m *memTx) {
		tries := 0
		m.fate = func(bool) (bool, error) { tries++; return tries > 3, nil }
		h.src.add(0, "a", "1")
		stop := h.serve(t)
		time.Sleep(time.Minute)
		equal(t, "seen", h.sink.values(), []string{"1"})
		equal(t, "transactions", m.ended(), []string{"abort", "abort", "abort", "commit"})
		stop()
	})
}

func TestAnEndThatFailsEndsTheStream(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, passes, func(t *testing.T, h *harness, m *memTx) {
		m.fate = func(bool) (bool, error) { return false, errTest }
		h.src.add(0, "a", "1")
		stop := h.start(t)
		time.Sleep(time.Minute)
		if err := stop(); !errors.Is(err, errTest) {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

func TestAStopCommitsWhatIsFinished(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(takes(2 * time.Second)) }, func(t *testing.T, h *harness, m *memTx) {
		h.src.add(0, "a", "1")
		stop := h.serve(t)
		within(t, "the stop", 3*time.Second, stop)
		equal(t, "seen", h.sink.values(), []string{"1"})
		h.offsets(t, 1)
	})
}

func TestAStopAbortsWhatIsNotFinished(t *testing.T) {
	tx(t, 10*time.Minute, streammanager.Config{ShutdownTimeout: 10 * time.Second}, func(b *streammanager.Builder) {
		b.Process(try(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
			if string(ev.Value()) == "slow" {
				return nil, event.Retry(errTest, time.Minute)
			}
			return []*event.Event{ev}, nil
		}))
	}, func(t *testing.T, h *harness, m *memTx) {
		for _, v := range []string{"1", "slow", "3"} {
			h.src.add(0, v, v)
		}
		stop := h.serve(t)
		time.Sleep(5 * time.Second)
		within(t, "the stop", 10*time.Second, stop)
		equal(t, "seen", h.sink.values(), nil)
		equal(t, "transactions", m.ended(), []string{"abort"})
		h.offsets(t, 0)
	})
}

func TestAStopDoesNotWaitForBrokersThatDoNotAnswerAnEnd(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{ShutdownTimeout: 10 * time.Second}, passes, func(t *testing.T, h *harness, m *memTx) {
		m.delay = time.Hour
		h.src.add(0, "a", "1")
		stop := h.serve(t)
		time.Sleep(5 * time.Second)
		within(t, "the stop", 10*time.Second, stop)
		equal(t, "seen", h.sink.values(), nil)
	})
}

func TestASinkThatDoesNotAnswerIsAbortedInTime(t *testing.T) {
	tx(t, time.Minute, streammanager.Config{}, passes, func(t *testing.T, h *harness, m *memTx) {
		m.hold = true
		h.src.add(0, "a", "1")
		stop := h.serve(t)
		time.Sleep(20 * time.Second)
		m.set(func() { m.hold = false })
		time.Sleep(time.Minute)
		equal(t, "seen", h.sink.values(), []string{"1"})
		equal(t, "transactions", m.ended(), []string{"abort", "commit"})
		stop()
	})
}

func TestABoundedSourceEndsWithItsLastTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newTxHarness(t, true, time.Minute, streammanager.Config{Workers: 2}, passes)
		var want []string
		for i := range 20 {
			h.src.add(0, "k", fmt.Sprint(i))
			want = append(want, fmt.Sprint(i))
		}
		refused := false
		m.fate = func(bool) (bool, error) { r := refused; refused = true; return r, nil }
		h.finish(t)
		equal(t, "seen", h.sink.values(), want)
		h.offsets(t, 20)
	})
}

func TestASourceWithTransactionsMustBeAbleToGoBack(t *testing.T) {
	src := struct {
		streammanager.Source
		streammanager.Transactor
	}{newMemSource(false), &memTx{}}
	_, err := streammanager.New(streammanager.Config{Name: "n"}).From(src).To(&memSink{}).Build()
	if err == nil || !strings.Contains(err.Error(), "Rewinder") {
		t.Errorf("got %v", err)
	}
}
