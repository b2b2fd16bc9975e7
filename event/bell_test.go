package event_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

func TestABellIsHeardOnceByAllWhoListenBeforeOrAfterItRings(t *testing.T) {
	var b event.Bell
	var mu sync.Mutex
	heard := map[string]int{}
	listen := func(who string) {
		b.Listen(func() {
			mu.Lock()
			defer mu.Unlock()
			heard[who]++
		})
	}
	listen("before")
	if len(heard) > 0 {
		t.Error("heard before it rang")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { listen("beside"); b.Ring() })
	}
	wg.Wait()
	listen("after")
	if heard["before"] != 1 || heard["beside"] != 8 || heard["after"] != 1 {
		t.Errorf("heard %v, want each once", heard)
	}
}

func TestAHoldForABellIsAHold(t *testing.T) {
	bell, until := new(event.Bell), time.Unix(5, 0)
	err := event.HoldFor(event.Reject(event.Timeout, errors.New("why")), until, bell)
	hold, ok := errors.AsType[*event.HoldError](err)
	if !ok || hold.Bell != bell || !hold.Until.Equal(until) || event.AsReject(err).Type != event.Timeout {
		t.Errorf("got %v", err)
	}
}
