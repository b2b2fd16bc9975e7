package asynchttp_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// flood is a stream in virtual time: events come at a rate, a few thousand are in flight at most, and so
// many workers call a function for them. An event that is to be called again holds no worker.
type flood struct {
	f         event.Func
	workers   int
	inFlight  int
	perSecond int
	value     func(i int) string
	length    time.Duration // of the input
	cut       bool          // events that are not through at its end are given up
	live      bool          // those that find no room within a second never come

	mu     sync.Mutex
	done   map[string][]time.Duration // by value, when each event ended well
	failed map[event.Type]int
	tries  int // most attempts of an event that ended well
	came   int
}

// wide makes a function for a flood of 64 workers.
func wide(t *testing.T, answer canned, text string) *asynchttp.Func {
	t.Helper()
	return manned(t, 64, answer, text)
}

// manned makes a function for so many workers.
func manned(t *testing.T, workers int, answer canned, text string) *asynchttp.Func {
	t.Helper()
	client := asynchttp.NewClient(asynchttp.ClientConfig{Workers: workers, Transport: answer}).HTTP()
	f, err := asynchttp.New(functions.Env{Name: "content", Workers: workers, HTTP: client}, options(t, text))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return f
}

func (fl *flood) run(t *testing.T) {
	t.Helper()
	fl.done, fl.failed = map[string][]time.Duration{}, map[event.Type]int{}
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	workers := make(chan struct{}, fl.workers)
	room := make(chan struct{}, fl.inFlight)
	var wg sync.WaitGroup
	for i := range int(fl.length.Seconds() * float64(fl.perSecond)) {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(fl.perSecond))
		if d := time.Until(due); d > 0 {
			time.Sleep(d)
		}
		if fl.live && time.Since(due) > time.Second {
			continue
		}
		fl.came++
		room <- struct{}{}
		wg.Go(func() {
			fl.one(ctx, fl.value(i), began, workers)
			<-room
		})
	}
	if fl.cut {
		cancel()
	}
	wg.Wait()
}

// one takes an event through the function.
func (fl *flood) one(ctx context.Context, value string, began time.Time, workers chan struct{}) {
	tries := event.NewAttempts(time.Now())
	for {
		workers <- struct{}{}
		_, err := fl.f.Process(ctx, event.WithAttempts(newEvent(value), tries))
		<-workers
		if ctx.Err() != nil {
			return
		}
		var retry *event.RetryError
		var hold *event.HoldError
		switch {
		case errors.As(err, &retry):
			tries.Add(1)
			pause(ctx, retry.After)
		case errors.As(err, &hold):
			rest(ctx, hold)
		default:
			fl.mu.Lock()
			defer fl.mu.Unlock()
			if err != nil {
				fl.failed[event.AsReject(err).Type]++
				return
			}
			fl.done[value] = append(fl.done[value], time.Since(began))
			fl.tries = max(fl.tries, tries.Number())
			return
		}
	}
}

// between counts the times from one on, up to another.
func between(at []time.Duration, from, to time.Duration) int {
	n := 0
	for _, t := range at {
		if t >= from && t < to {
			n++
		}
	}
	return n
}
