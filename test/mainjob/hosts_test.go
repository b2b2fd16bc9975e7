//go:build unix

package mainjob_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// twoHostsFile asks one host for the events of even keys and another for those of odd ones. %[1]s is the broker, %[2]s
// and %[3]s are the hosts.
const twoHostsFile = `
name: mainjob
kafka: {brokers: ["%[1]s"]}
source: {kafka: {topics: [in]}}
partition_by: [.wiki_id, .page.page_id]
workers: 64
process:
  - name: content
    http:
      url: http://\(if .load.key %% 2 == 0 then "%[2]s" else "%[3]s" end)/page/\(.page.page_id)?id=\(.load.id)
      allow_hosts: ["%[2]s", "%[3]s"]
      into: .content
sink: {kafka: {topic: out}}
error_sink: {kafka: {topic: errors}}
gateway: {listen: "127.0.0.1:0"}
`

// twoHosts starts a worker that calls the two APIs, and what feeds it.
func twoHosts(t *testing.T, rate int, even, odd string, overrides ...string) *feed {
	t.Helper()
	b := startBroker(t, topics())
	w := job.StartWorker(t, job.WorkerConfig{
		Binary: enricherBinary, Set: overrides, Patience: patience,
		File: fmt.Sprintf(twoHostsFile, b.addr, strings.TrimPrefix(even, "http://"), strings.TrimPrefix(odd, "http://")),
	})
	return &feed{t: t, b: b, w: w, came: func() int { return 0 }, rate: rate, keys: 10_000, maker: job.NewMaker(t, 1, 0)}
}

// ofOdd counts events of odd keys among those loaded from the i-th on.
func (f *feed) ofOdd(i int) int {
	n := 0
	for _, o := range f.loaded[i:] {
		n += o.Key % 2
	}
	return n
}

// downHost is a case of one of two hosts that is down.
type downHost struct {
	mode   job.Mode
	length time.Duration
	rate   int  // events a second, of both hosts
	fails  bool // while_open: error
}

func downHosts() []downHost {
	if *full {
		return []downHost{
			{job.Refuses, 8 * time.Second, 2000, false},
			{job.Hangs, 8 * time.Second, 2000, false},
			{job.Unavailable, 8 * time.Second, 2000, false},
			{job.Refuses, 20 * time.Second, 2000, true},
			{job.Hangs, 20 * time.Second, 2000, true},
			{job.Unavailable, 20 * time.Second, 2000, true},
		}
	}
	return []downHost{{job.Refuses, 3 * time.Second, 300, false}, {job.Refuses, 3 * time.Second, 300, true}}
}

// settings has the backlog of the host that is down fit into the limits, or with while_open: error not.
func (c downHost) settings() (overrides []string, limit int) {
	switch {
	case !c.fails:
		return nil, 10_000
	case *full:
		limit = 10_000
	default:
		limit = 200
	}
	overrides = []string{"process[0].http.breaker.while_open=error", fmt.Sprintf("limits.in_flight_events=%d", limit)}
	if c.mode == job.Hangs {
		overrides = append(overrides, "process[0].http.timeout=1s") // what hangs is known to after that
	}
	return overrides, limit
}

// While one of two hosts is down, the events of the other go on: as long as those that wait fit into the limits, and with
// while_open: error as long as it takes.
func TestAHostThatIsDownLeavesTheOtherItsRate(t *testing.T) {
	for _, c := range downHosts() {
		name := fmt.Sprintf("%s for %v, while_open hold", c.mode, c.length)
		if c.fails {
			name = strings.Replace(name, "hold", "error", 1)
		}
		t.Run(name, func(t *testing.T) { oneHostDown(t, c) })
	}
}

func oneHostDown(t *testing.T, c downHost) {
	overrides, limit := c.settings()
	down, other := job.StartAPI(t, 20*time.Millisecond), job.StartAPI(t, 20*time.Millisecond)
	f := twoHosts(t, c.rate, down.URL, other.URL, overrides...)
	// rate is how many events of the other host are answered in a second, and in how many percent that is of those written.
	rate := func(while time.Duration) (perSecond, percent float64) {
		began, answers, written := time.Now(), other.Answers(), len(f.loaded)
		f.flow(while)
		n := float64(other.Answers() - answers)
		return n / time.Since(began).Seconds(), 100 * n / float64(f.ofOdd(written))
	}
	rate(3 * time.Second) // the group settles
	before, percentBefore := rate(5 * time.Second)
	from := len(f.loaded)
	must(t, down.Become(c.mode))
	during, percent := rate(c.length)
	must(t, f.b.client.Flush(t.Context()))
	backlog := len(f.loaded) - from - f.ofOdd(from)
	if c.fails != (backlog > limit) {
		t.Errorf("%d events of the host that is down were written, with a limit of %d in flight: this case is not what it says", backlog, limit)
	}
	waitFor(t, "all events of the other host are answered while one is down", func() bool { return other.Distinct() == f.ofOdd(0) })
	must(t, down.Become(job.Answers))
	waitFor(t, "everything is committed", func() bool { return idle(t, f.b, group, inputTopic) })

	failed := f.failedByConnection()
	d := job.DeliveryOf(f.loaded, parseOutputs(t, readAll(t, f.b, outputTopic)), failed)
	if d.Lost+d.Repeated+d.Disordered+d.Moved > 0 {
		t.Errorf("delivered %v, want nothing lost, repeated or out of order", d)
	}
	if c.fails != (len(failed) > 0) {
		t.Errorf("%d error events, want them with while_open: error alone", len(failed))
	}
	if *full && percent < 0.95*min(percentBefore, 100) { // what was late before is no rate to keep
		t.Errorf("%.0f events a second of the other host, %.1f %% of what was written, want 95 %% of the %.1f %% before", during, percent, percentBefore)
	}
	t.Logf("events=%d %v error_events=%d of_the_host_that_is_down=%d; of the other %.0f a second, %.1f %% of what was written, and before %.0f, %.1f %%",
		len(f.loaded), d, len(failed), backlog, during, percent, before, percentBefore)
}

// failedByConnection returns the ids of the error events, each of which must be of type connection and of an even key.
func (f *feed) failedByConnection() map[int]bool {
	f.t.Helper()
	failed := map[int]bool{}
	for _, r := range readAll(f.t, f.b, errorTopic) {
		kind := ""
		for _, h := range r.Headers {
			if h.Key == "enricher.error.type" {
				kind = string(h.Value)
			}
		}
		var ev struct{ Load struct{ ID, Key int } }
		must(f.t, json.Unmarshal(r.Value, &ev))
		if kind != "connection" && kind != "timeout" || ev.Load.Key%2 != 0 {
			f.t.Errorf("event %d of key %d is an error event of type %q, want none but of the host that is down", ev.Load.ID, ev.Load.Key, kind)
		}
		failed[ev.Load.ID] = true
	}
	return failed
}
