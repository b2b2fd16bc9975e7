//go:build unix

package mainjob_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// sinkCase is a load that waits behind a sink that does not answer.
type sinkCase struct {
	name     string
	events   int
	pad      int // bytes that each event has beside its 1.5 kB
	answer   int // bytes of an answer beside what it says
	settings []string
}

func sinkCases() []sinkCase {
	cases := []sinkCase{{name: "10,000 events", events: 10_000}}
	if *full {
		tight := []string{"limits.in_flight_bytes=32MiB", `sink.kafka.options["buffer.memory"]=4194304`}
		cases = append(cases,
			sinkCase{name: "10,000 events of 20 kB", events: 10_000, pad: 20_000},
			sinkCase{name: "10,000 events of 20 kB, small buffers", events: 10_000, pad: 20_000, settings: tight},
			sinkCase{name: "10,000 answers of 2 kB", events: 10_000, answer: 2_000},
			sinkCase{name: "10,000 answers of 20 kB", events: 10_000, answer: 20_000},
		)
	}
	return cases
}

// While the sink does not answer, the heap holds no more than what the start-up said, and what an idle
// worker needs. When it goes on, nothing is lost.
func TestHeapBehindAStoppedSinkIsWhatTheStartSaid(t *testing.T) {
	for _, c := range sinkCases() {
		t.Run(c.name, func(t *testing.T) { stoppedSink(t, c) })
	}
}

func stoppedSink(t *testing.T, c sinkCase) {
	t.Setenv("GOGC", "25") // the worker's: what is in use is found out sooner
	b := startBroker(t, topics())
	w := &watched{Worker: startWorker(t, b, startFatAPI(t, c.answer), c.settings...)}
	idleHeap := liveHeap(t, w.Worker)
	said := saidBuffers(t, w.Log())
	b.stopProduce(outputTopic)
	events := loadMore(t, b, 0, c.events, func(i int) int { return i }, c.pad)

	// Everything that fits is in, and nothing is called any more.
	w.done = settled(c.events)
	watch(t, "the worker has read what it may, and called the API for it", w)
	live := liveHeap(t, w.Worker)
	waiting := sampleOf(t, w.Worker)
	if limit := said + idleHeap; live > limit {
		t.Errorf("the heap is %s with %.0f events in flight, want at most %s: %s said at the start and %s of an idle worker",
			mib(live), waiting.events, mib(limit), mib(said), mib(idleHeap))
	}
	paused := w.Metrics().Value("enricher_paused_seconds_total")
	if waiting.events < float64(c.events) && paused == 0 {
		t.Error("enricher_paused_seconds_total is 0 while a limit holds the polling")
	}

	b.resumeProduce(outputTopic)
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
	after := liveHeap(t, w.Worker)
	if after > idleHeap+16<<20 { // which buffers and spare parts may take
		t.Errorf("the heap is %s when all is committed, %s before the load; want none of its events kept", mib(after), mib(idleHeap))
	}
	d, _ := checkDelivered(t, b, events)
	t.Logf("stopped sink, %s: events=%d in_flight=%.0f bytes=%s most_bytes=%s heap=%s said=%s idle=%s rss=%s most_rss=%s paused=%.1fs; after it went on: heap=%s %v",
		c.name, c.events, waiting.events, mib(waiting.bytes), mib(most(w.seen, inFlightBytes)), mib(live), mib(said), mib(idleHeap),
		mib(waiting.resident), mib(most(w.seen, residence)), paused, mib(after), d)
}

// settled reports whether a worker has come to rest: all events in flight, or as many for a second, and no
// call in progress.
func settled(events int) func(sample) bool {
	var since, last sample
	return func(s sample) bool {
		if s.events != last.events || s.bytes != last.bytes || s.busy > 0 {
			since = s
		}
		last = s
		return s.events > 0 && s.busy == 0 && (s.events >= float64(events) || s.at.Sub(since.at) > time.Second)
	}
}

var buffersSaid = regexp.MustCompile(`"buffers":"([0-9.]+) MiB: `)

// saidBuffers returns the bytes that a worker said at its start it may hold: in flight, fetched, and in
// the sinks.
func saidBuffers(t *testing.T, log string) float64 {
	t.Helper()
	found := buffersSaid.FindStringSubmatch(log)
	if found == nil {
		t.Fatalf("the log names no buffers:\n%s", log)
	}
	var n float64
	_, err := fmt.Sscan(found[1], &n)
	must(t, err)
	return n * (1 << 20)
}

// startFatAPI answers at once, like the api, and with more bytes beside.
func startFatAPI(t *testing.T, more int) *job.API {
	t.Helper()
	rest := strings.Repeat("more ", more/5)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		id := r.URL.Query().Get("id")
		fmt.Fprintf(w, `{"id":%s,"text":"content of event %s","more":%q}`, id, id, rest)
	}))
	t.Cleanup(server.Close)
	return &job.API{URL: server.URL}
}
