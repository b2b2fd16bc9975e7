package cases

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errEndless = errors.New("it does not end in real time: an expression or a function computes for ever, or waits for the network")
	errRace    = errors.New("the race detector has found a race in it")
)

// inVirtualTime runs f where time is virtual: it stands still while anything computes, and jumps to the next timer when
// all wait. t is that of the test which this is part of, new(testing.T) elsewhere. What f leaves behind is left where it
// stands: time ends with f.
func inVirtualTime(t *testing.T, atMost time.Duration, f func()) error {
	ended := make(chan error, 1)
	go func() {
		done, returned := false, false
		defer func() {
			// A bubble whose goroutines wait for ever panics here, at its end.
			p := recover()
			switch {
			case done && (p != nil || returned):
				ended <- nil
			case p != nil:
				ended <- errors.New("all of it waits for something that cannot come")
			default: // it was ended as a test that failed
				ended <- errRace
			}
		}()
		synctest.Test(t, func(*testing.T) { f(); done = true })
		returned = true
	}()
	limit := time.NewTimer(atMost)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-limit.C:
		return errEndless
	}
}
