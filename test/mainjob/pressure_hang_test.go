//go:build unix

package mainjob_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// hangCase is a key for which the API hangs for ever, and how much waits behind it.
type hangCase struct {
	name    string
	hot     int           // events of the hanging key, in front of all others
	events  int           // limits.in_flight_events
	bytes   int           // limits.in_flight_bytes
	fits    bool          // hot is within them, so that even its partition goes on
	timeout time.Duration // shutdown_timeout
}

func hangCases() []hangCase {
	if *full {
		return []hangCase{
			{name: "a backlog within the limits", hot: 2_000, events: 10_000, bytes: 64 << 20, fits: true, timeout: 10 * time.Second},
			{name: "a partition full of events", hot: 8_000, events: 10_000, bytes: 64 << 20, timeout: 10 * time.Second},
			{name: "a partition full of bytes", hot: 8_000, events: 10_000, bytes: 8 << 20, timeout: 10 * time.Second},
		}
	}
	return []hangCase{
		{name: "a backlog within the limits", hot: 300, events: 1_000, bytes: 64 << 20, fits: true, timeout: time.Second},
		{name: "a partition full of events", hot: 400, events: 400, bytes: 64 << 20, timeout: time.Second},
		{name: "a partition full of bytes", hot: 400, events: 10_000, bytes: 512 << 10, timeout: time.Second},
	}
}

// A key whose calls never end keeps what waits behind it within the limits and the memory flat. All others
// go on while the backlog fits the limits, other partitions after that. A stop does not wait for the call.
func TestHangingKeyHoldsUpItselfThenItsPartitionAndNothingElse(t *testing.T) {
	for _, c := range hangCases() {
		t.Run(c.name, func(t *testing.T) { hangingKey(t, c) })
	}
}

func hangingKey(t *testing.T, c hangCase) {
	size := scenarioSize()
	hotKey := size.keys // load draws smaller ones
	all := topics()
	all["well"] = 8
	b := startBroker(t, all)
	hot := loadMore(t, b, size.events, c.hot, func(int) int { return hotKey }, 0)
	events := append(load(t, b, size.events, size.keys), hot...)
	others := size.events
	if !c.fits {
		others = 0
		for _, o := range events {
			if o.Partition != hot[0].Partition {
				others++
			}
		}
	}

	// Two workers have the same load at the same time; one leaves the key out.
	hangs, answers := job.StartAPI(t, 20*time.Millisecond), job.StartAPI(t, 20*time.Millisecond)
	hangs.Hang(hotKey)
	settings := []string{
		"process[0].http.timeout=1h", "process[0].http.total_timeout=0s", fmt.Sprintf("shutdown_timeout=%v", c.timeout),
		fmt.Sprintf("limits.in_flight_events=%d", c.events), fmt.Sprintf("limits.in_flight_bytes=%dB", c.bytes),
	}
	hung := &watched{
		Worker: startWorker(t, b, hangs, settings...),
		done:   func(s sample) bool { return s.emitted >= float64(others) },
	}
	well := &watched{
		Worker: startWorker(t, b, answers, append(settings, "source.kafka.group=well", "sink.kafka.topic=well",
			fmt.Sprintf("filter=.load.key != %d", hotKey))...),
		done: func(s sample) bool { return s.emitted >= float64(size.events) },
	}
	watch(t, "everything that the hanging key does not hold up is emitted", hung, well)
	checkPressure(t, c, hung)

	hung.Terminate()
	status, took := hung.Wait()
	if status != 0 || took > c.timeout+time.Second {
		t.Errorf("ended with status %d after %v, want 0 within shutdown_timeout %v", status, took, c.timeout)
	}
	startWorker(t, b, job.StartAPI(t, time.Millisecond))
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
	d, _ := checkDelivered(t, b, events)
	early, late := drift(hung.seen, residence)
	heapEarly, heapLate := drift(hung.seen, heapOf)
	if *full && hung.rate() < well.rate()/2 { // side by side in one run, and far from what noise does
		t.Errorf("%.0f events left in a second beside the hanging key and %.0f without it", hung.rate(), well.rate())
	}
	t.Logf("hanging key, %s: events=%d hot=%d others=%d most_in_flight=%.0f/%d most_bytes=%s/%s rss=%s->%s heap=%s->%s "+
		"events_per_second=%.0f beside=%.0f ratio=%.2f stop=%v status=%d; after the restart: %v",
		c.name, len(events), c.hot, others, most(hung.seen, inFlightEvents), c.events, mib(most(hung.seen, inFlightBytes)), mib(float64(c.bytes)),
		mib(early), mib(late), mib(heapEarly), mib(heapLate), hung.rate(), well.rate(), hung.rate()/well.rate(), took.Round(time.Millisecond), status, d)
}

// checkPressure compares what was seen of the worker with the hanging key to its limits.
func checkPressure(t *testing.T, c hangCase, hung *watched) {
	t.Helper()
	if n := most(hung.seen, inFlightEvents); n > float64(c.events) {
		t.Errorf("%.0f events were in flight, want at most %d", n, c.events)
	}
	if n := most(hung.seen, inFlightBytes); n > float64(c.bytes) {
		t.Errorf("%.0f bytes were in flight, want at most %d", n, c.bytes)
	}
	if early, late := drift(hung.seen, residence); late > early*1.25+16<<20 {
		t.Errorf("memory went from %s to %s while the key hung, want it flat", mib(early), mib(late))
	}
	if n := hung.seen[len(hung.seen)-1].events; (n >= float64(c.hot)) != c.fits {
		t.Errorf("%.0f events are in flight at the end, of %d of the hanging key; this case is not what it says", n, c.hot)
	}
}
