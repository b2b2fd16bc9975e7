package streammanager_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// Whatever calls hold, ask for and wait for, the stream goes on, no call is late for having waited, and the answers
// that are held stay within the limit but for one.
func TestRandomAnswersNeitherStopTheStreamNorExceedTheLimit(t *testing.T) {
	for seed := range uint64(randomSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { answering(t, seed) })
		})
	}
}

func answering(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	limit := int64(2000 + rnd.IntN(50_000))
	largest := limit * int64(1+rnd.IntN(3))
	parts := 1 + rnd.IntN(3)
	cfg := streammanager.Config{
		Workers: 1 + rnd.IntN(64), ShutdownTimeout: time.Minute,
		Order:  []streammanager.Order{streammanager.OrderKey, streammanager.OrderKeySerial, streammanager.OrderNone}[rnd.IntN(3)],
		Limits: streammanager.Limits{InFlightEvents: 20 + rnd.IntN(200), InFlightBytes: limit},
	}
	var b books
	var refuses atomic.Bool
	shape, rounds := rnd.IntN(4), 1+rnd.IntN(4)
	h := newHarness(t, false, cfg, func(bu *streammanager.Builder) {
		if rnd.IntN(2) == 0 {
			bu.Window(window.Config{Count: 1 + rnd.IntN(10), Timeout: time.Duration(1+rnd.IntN(3000)) * time.Millisecond})
		}
		one := b.drawn(seed, "one", largest, rounds)
		two := b.drawn(seed+1000, "two", largest, rounds)
		many := streammanager.Step{Name: "many", Timeout: 30 * time.Second, Batch: event.BatchFuncOf(func(ctx context.Context, evs []*event.Event) []event.Result {
			out := make([]event.Result, len(evs))
			defer b.letGo("many" + fmt.Sprint(evs[0].Position()))
			for i, ev := range evs {
				if err := event.Reserve(ctx, largest/20); err != nil {
					out[i].Err = err
					continue
				}
				b.note("many"+fmt.Sprint(evs[0].Position()), largest/20)
				out[i].Events = []*event.Event{ev}
			}
			_ = sleep(ctx, 50*time.Millisecond)
			return out
		})}
		bu.Process([][]streammanager.Step{{one}, {one, two}, {one, many}, {many, one}}[shape]...)
	})
	h.sink.refuse = func(*streammanager.Record) error {
		if refuses.Load() {
			return errTest
		}
		return nil
	}
	for p := range parts {
		h.src.logs[tp{"in", int32(p)}] = nil
	}
	total := 100 + rnd.IntN(200)
	for i := range total {
		key := rnd.IntN(20)
		h.src.add(int32(key%parts), fmt.Sprint("k", key), fmt.Sprintf("%d:", i))
	}
	stop := h.serve(t)
	for range 4 {
		time.Sleep(time.Duration(rnd.IntN(20_000)) * time.Millisecond)
		at := tp{"in", int32(rnd.IntN(parts))}
		switch rnd.IntN(4) {
		case 0:
			h.src.lose(at)
			h.src.assign(at)
		case 1:
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			h.src.revoke(ctx, at)
			cancel()
			h.src.assign(at)
		case 2:
			refuses.Store(true)
			time.Sleep(3 * time.Second)
			refuses.Store(false)
		}
	}
	time.Sleep(2 * time.Hour)
	for at, log := range h.src.logs {
		if off := h.src.offset(at.Partition); off != int64(len(log)) {
			t.Errorf("partition %d stands at %d of %d after two hours: %+v", at.Partition, off, len(log), h.stream.Status())
		}
	}
	if st := h.stream.Status(); st.InFlightBytes != 0 || st.Errors != 0 {
		t.Errorf("at idle: %d bytes in flight, %d error events: %q", st.InFlightBytes, st.Errors, h.errs.values())
	}
	if most := limit + largest + largest/20*int64(cfg.Limits.InFlightEvents); shape < 2 && b.most > limit+largest || b.most > most {
		t.Errorf("%d bytes were held at once, limit %d, largest answer %d", b.most, limit, largest)
	}
	stop()
}

// drawn is a function whose answers, tries and outputs come from a seed, the same at each try.
func (b *books) drawn(seed uint64, name string, largest int64, rounds int) streammanager.Step {
	return streammanager.Step{Name: name, Timeout: 30 * time.Second, Attempts: -1, Func: event.FuncOf(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		n := event.Attempt(ctx, ev).Number()
		at := fmt.Sprint(name, ev.Position(), n)
		rnd := rand.New(rand.NewPCG(seed, uint64(id(string(ev.Value()))*10+min(n, 9))))
		defer b.letGo(at)
		pieces := 1 + rnd.IntN(10)
		size := rnd.Int64N(largest)
		if rnd.IntN(2) == 0 {
			size /= 20
		}
		for range pieces {
			if err := event.Reserve(ctx, size/int64(pieces)); err != nil {
				return nil, err
			}
			b.note(at, size/int64(pieces))
			if err := sleep(ctx, time.Duration(rnd.IntN(200))*time.Millisecond); err != nil {
				return nil, err
			}
		}
		if n <= rounds && rnd.IntN(4) == 0 {
			return nil, event.Retry(errTest, time.Duration(rnd.IntN(20_000))*time.Millisecond)
		}
		if rnd.IntN(2) == 0 {
			b.letGo(at)
			event.Release(ctx, size)
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
		} else {
			ev.SetValue(append(ev.Value(), strings.Repeat("v", int(size/10))...))
		}
		return []*event.Event{ev}, nil
	})}
}
