//go:build unix

package mainjob_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// bulkFile looks events up with so many requests at once, each in 20 ms, be it for one or for 50. %[1]s is the broker,
// %[2]s the http function.
const bulkFile = `
name: mainjob
kafka: {brokers: ["%[1]s"]}
source: {kafka: {topics: [in]}}
partition_by: [.wiki_id, .page.page_id]
workers: 8
window: {count: 50, timeout: 1s, by: '"all"'}
process:
  - name: content
    http: {%[2]s, into: .content}
sink: {kafka: {topic: out}}
error_sink: {kafka: {topic: errors}}
gateway: {listen: "127.0.0.1:0"}
`

const (
	lookUpOne  = `url: '%s/items?ids=\(.load.id)', select: '.items[0]'`
	lookUpMany = `url: '%s/items?ids=\(map(.load.id) | join(","))', bulk: {max: 50, items: .items, match: {event: .load.id, item: .id}}`
)

// itemsAPI answers for a list of ids, the last first, after 20 ms.
type itemsAPI struct {
	mu          sync.Mutex // guards all below
	calls       int
	most        int            // ids of a call
	now, atOnce int            // calls in progress, and the most of them
	asked       map[string]int // by id
	first, last time.Time      // of calls, and of answers
}

func (a *itemsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ids := strings.Split(r.URL.Query().Get("ids"), ",")
	a.mu.Lock()
	if a.calls == 0 {
		a.first = time.Now()
	}
	a.calls++
	a.most = max(a.most, len(ids))
	a.now++
	a.atOnce = max(a.atOnce, a.now)
	for _, id := range ids {
		a.asked[id]++
	}
	a.mu.Unlock()
	takeTime(r)
	var b strings.Builder
	for i := len(ids) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, `,{"id":%s,"text":"content of event %s"}`, ids[i], ids[i])
	}
	a.mu.Lock()
	a.now--
	a.last = time.Now()
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"items":[%s]}`, b.String()[1:])
}

// takeTime is the 20 ms that an API takes for an answer.
func takeTime(r *http.Request) {
	answer := time.NewTimer(20 * time.Millisecond)
	defer answer.Stop()
	select {
	case <-answer.C:
	case <-r.Context().Done():
	}
}

// lookUps are those of events, all of which are there before the worker is.
type lookUps struct {
	api    *itemsAPI
	events int
}

// rate is events a second, from the first call to the last answer.
func (l lookUps) rate() float64 { return float64(l.events) / l.api.last.Sub(l.api.first).Seconds() }

// loadWide writes n events to the input topic, each with so many events of the same kind in it, as one that tells of what
// was before.
func loadWide(t *testing.T, b *broker, n, within int) job.Loaded {
	t.Helper()
	m := job.NewMaker(t, 2, 0)
	events := make(job.Loaded, n)
	for i := range events {
		_, o, r := m.Make(inputTopic, m.AnyOf(10_000), 0)
		events[i] = o
		if within > 0 {
			earlier := slices.Repeat([][]byte{r.Value}, within)
			r.Value = slices.Concat(r.Value[:len(r.Value)-1], []byte(`,"earlier":[`), bytes.Join(earlier, []byte(",")), []byte("]}"))
		}
		b.client.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("loading event %d: %v", i, err)
			}
		})
	}
	must(t, b.client.Flush(t.Context()))
	return events
}

func runLookUps(t *testing.T, function string, events, within int) lookUps {
	t.Helper()
	a := &itemsAPI{asked: map[string]int{}}
	server := httptest.NewServer(a)
	defer server.Close()
	b := startBroker(t, topics())
	loaded := loadWide(t, b, events, within)
	w := job.StartWorker(t, job.WorkerConfig{
		Binary: enricherBinary, File: fmt.Sprintf(bulkFile, b.addr, fmt.Sprintf(function, server.URL)), Patience: patience,
	})
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
	d, _ := checkDelivered(t, b, loaded)
	w.Terminate()
	w.Wait()
	if d.Repeated > 0 || len(a.asked) != events || a.atOnce > 8 {
		t.Errorf("%d outputs are repeated, %d events of %d were asked for, with %d requests at once; want each once, and 8 at most",
			d.Repeated, len(a.asked), events, a.atOnce)
	}
	for id, n := range a.asked {
		if n != 1 {
			t.Errorf("event %s was asked for %d times, want once", id, n)
		}
	}
	return lookUps{a, events}
}

// With 50 events in a request as many are looked up at once as before requests, and keys keep their order.
func TestBulkLookUpsOfARealProcessAreTwentyTimesAsFast(t *testing.T) {
	ones, manies := 400, 8_000
	if *full {
		ones, manies = 4_000, 40_000
	}
	for _, c := range []struct {
		name   string
		within int
	}{{"events of 1.5 kB", 0}, {"events of 11 kB", 6}} {
		t.Run(c.name, func(t *testing.T) {
			one, many := runLookUps(t, lookUpOne, ones, c.within), runLookUps(t, lookUpMany, manies, c.within)
			if one.api.calls != ones || one.api.most != 1 {
				t.Errorf("%d calls for %d events, of up to %d; want one each", one.api.calls, ones, one.api.most)
			}
			if many.api.calls > manies/10 || many.api.most > 50 {
				t.Errorf("%d calls for %d events, of up to %d; want 50 in one where they are there", many.api.calls, manies, many.api.most)
			}
			ratio := many.rate() / one.rate()
			if *full && ratio < 20 {
				t.Errorf("in bulk %.0f times as many events a second as by themselves, want 20 times", ratio)
			}
			t.Logf("%s: by themselves %d calls for %d events, %.0f events a second; in bulk %d calls for %d, %.0f a second: %.1f times as many",
				c.name, one.api.calls, ones, one.rate(), many.api.calls, manies, many.rate(), ratio)
		})
	}
}
