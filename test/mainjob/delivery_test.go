//go:build unix

package mainjob_test

import (
	"testing"
	"time"
)

func TestEachEventIsEnrichedOnceAndInOrderOfItsKey(t *testing.T) {
	size := scenarioSize()
	b := startBroker(t, topics())
	a := startAPI(t, 20*time.Millisecond)
	events := load(t, b, size.events, size.keys)
	start := time.Now()
	startWorker(t, b, a)
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
	took := time.Since(start)

	d, _ := checkDelivered(t, b, events)
	if d.repeated > 0 {
		t.Errorf("%d outputs are repeated, want none without a failure", d.repeated)
	}
	for id, n := range a.callsByID() {
		if n != 1 {
			t.Errorf("event %d was asked for %d times, want once", id, n)
		}
	}
	t.Logf("enriched once: events=%d keys=%d %v committed=%d log_end=%d calls_at_once=%d took=%v events_per_second=%.0f",
		size.events, size.keys, d, sum(committed(t, b, group, inputTopic)), sum(ends(t, b, inputTopic)),
		a.mostAtOnce(), took.Round(time.Millisecond), float64(size.events)/took.Seconds())
}
