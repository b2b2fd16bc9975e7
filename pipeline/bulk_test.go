package pipeline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/pipeline"
)

// lookup is an API that takes 20 ms for an answer, be it for one id or for many.
type lookup struct {
	mu       sync.Mutex // guards all below
	now, ran int        // requests in progress, and the most of them
	calls    int
}

func (a *lookup) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.calls++
	a.now++
	a.ran = max(a.ran, a.now)
	a.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	a.mu.Lock()
	a.now--
	a.mu.Unlock()
	var items []string
	for id := range strings.SplitSeq(r.URL.Query().Get("ids"), ",") {
		items = append([]string{`{"id":` + id + `,"name":"n` + id + `"}`}, items...)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"items":[` + strings.Join(items, ",") + `]}`)), ContentLength: -1}, nil
}

const (
	lookOne = `
  - http:
      url: http://api/?ids=\(.id)
      select: .items[0].name
      into: .name
`
	lookMany = `
  - http:
      url: http://api/?ids=\(map(.id) | join(","))
      select: .name
      into: .name
      bulk: {max: 50, items: .items, match: {event: .id, item: .id}}
`
)

func TestBulkLookUpsAreTwentyTimesAsFastInTheOrderOfTheKeys(t *testing.T) {
	const n, users = 8000, 500
	took := func(function string) time.Duration {
		api := &lookup{}
		var in, out bytes.Buffer
		for i := range n {
			fmt.Fprintf(&in, `{"user":%d,"n":%d,"id":%d}`+"\n", i%users, i, i%3000)
		}
		var spent time.Duration
		synctest.Test(t, func(t *testing.T) {
			p := mustLoad(t, `name: looks
source: {file: {path: "-"}}
sink: {file: {path: "-"}}
workers: 8
partition_by: .user
window: {count: 50, timeout: 100ms, by: '"all"'}
process:`+function)
			began := time.Now()
			if err := p.Run(t.Context(), pipeline.Deps{Logger: quiet, Metrics: prometheus.NewRegistry(), Stdin: &in, Stdout: &out, Transport: api}); err != nil {
				t.Fatal(err)
			}
			spent = time.Since(began)
		})
		latest, seen := map[int]int{}, 0
		for line := range strings.Lines(out.String()) {
			var ev struct {
				User, N, ID int
				Name        string
			}
			if err := json.Unmarshal([]byte(line), &ev); err != nil || ev.Name != fmt.Sprint("n", ev.ID) {
				t.Fatalf("line %s: %v", line, err)
			}
			if before, ok := latest[ev.User]; ok && before >= ev.N {
				t.Errorf("user %d: event %d came behind %d", ev.User, ev.N, before)
			}
			latest[ev.User] = ev.N
			seen++
		}
		if seen != n || api.ran > 8 {
			t.Errorf("%d events of %d, %d requests at once; want all of them and 8 at most", seen, n, api.ran)
		}
		t.Logf("%d requests in %v: %.0f events a second", api.calls, spent, n/spent.Seconds())
		return spent
	}
	if one, many := took(lookOne), took(lookMany); many*20 > one {
		t.Errorf("%d events took %v by themselves and %v in bulk, want a twentieth at most", n, one, many)
	}
}

// refusingBulk answers every request with a 400.
type refusingBulk struct{ calls atomic.Int64 }

func (a *refusingBulk) RoundTrip(*http.Request) (*http.Response, error) {
	a.calls.Add(1)
	return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: http.NoBody}, nil
}

func TestAnEmptyBisectIsNoneAndOneThatIsLeftOutIsTheDefault(t *testing.T) {
	for bisect, want := range map[string]int64{"": 3, ", bisect: []": 1, ", bisect: 400": 3, ", bisect: [5xx]": 1} {
		api := &refusingBulk{}
		file := lines + "on_error: drop\nwindow: {count: 2, timeout: 10s}\nprocess:\n  - http: {url: 'http://h/?\\(map(.a) | join(\",\"))', into: .r, " +
			"bulk: {items: ., match: {event: .a, item: .a}" + bisect + "}}\n"
		if got := runLines(t, file, "{\"a\":1}\n{\"a\":2}\n", pipeline.Deps{Transport: api}); got != "" {
			t.Errorf("got %q", got)
		}
		if n := api.calls.Load(); n != want {
			t.Errorf("%q: %d requests, want %d", bisect, n, want)
		}
	}
}
