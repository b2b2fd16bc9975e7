package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/pipeline"
)

// profiles is an API that takes its time, and may fail.
type profiles struct {
	size  int // of an answer
	fails func() bool

	mu    sync.Mutex // guards all below
	rand  *rand.Rand
	calls int
}

func (a *profiles) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.calls++
	takes, fails := time.Duration(a.rand.IntN(100))*time.Millisecond, a.fails != nil && a.fails()
	a.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if fails {
		return nil, errors.New("broken")
	}
	text := fmt.Sprintf(`{"name":"n%s","fill":"%s"}`, r.URL.Query().Get("id"), strings.Repeat("x", a.size))
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: -1}, nil
}

// looks runs events of so many users through a cache and holds what comes out to the order of their keys.
func looks(t *testing.T, api *profiles, n, users, ids int, more string) (took time.Duration) {
	t.Helper()
	var in, out bytes.Buffer
	for i := range n {
		fmt.Fprintf(&in, `{"user":%d,"n":%d,"id":%d}`+"\n", api.rand.IntN(users), i, api.rand.IntN(ids))
	}
	p := mustLoad(t, "name: looks\nsource: {file: {path: '-'}}\nsink: {file: {path: '-'}}\npartition_by: .user\n"+more)
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	began := time.Now()
	if err := p.Run(ctx, pipeline.Deps{Logger: quiet, Metrics: prometheus.NewRegistry(), Stdin: &in, Stdout: &out, Transport: api}); err != nil {
		t.Fatal(err)
	}
	took = time.Since(began)
	latest, seen := map[int]int{}, 0
	for line := range strings.Lines(out.String()) {
		var ev struct {
			User, N, ID int
			Name        string
		}
		if err := json.Unmarshal([]byte(line), &ev); err != nil || ev.Name != fmt.Sprint("n", ev.ID) {
			t.Fatalf("line %.200s: %v", line, err)
		}
		if before, ok := latest[ev.User]; ok && before >= ev.N {
			t.Errorf("user %d: event %d came behind %d", ev.User, ev.N, before)
		}
		latest[ev.User] = ev.N
		seen++
	}
	if seen != n {
		t.Errorf("%d events of %d after %v and %d requests", seen, n, took, api.calls)
	}
	return took
}

func TestSharedRequestsKeepTheOrderOfTheKeys(t *testing.T) {
	for _, workers := range []int{1, 2, 16} {
		synctest.Test(t, func(t *testing.T) {
			api := &profiles{rand: rand.New(rand.NewPCG(1, 2))}
			looks(t, api, 2000, 20, 50, fmt.Sprintf(`
workers: %d
window: {count: 20, timeout: 10ms}
process:
  - http: {url: 'http://api/?id=\(.id)', select: .name, into: .name, cache: {ttl: 1h}}
`, workers))
			if api.calls != 50 {
				t.Errorf("%d workers: %d requests for 50 users, want as many", workers, api.calls)
			}
		})
	}
}

// paced answers each path after a time of its own, with so much text.
type paced map[string]time.Duration

func (a paced) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(a[r.URL.Path])
	text := "1"
	if strings.HasPrefix(r.URL.Path, "/large") {
		text = `"` + strings.Repeat("x", 60_000) + `"`
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: -1}, nil
}

// The second event of key 1 stands over the limit until the first has left. That wants what was asked for the event of
// key 2, whose answer waits for room.
func TestAnOldEventDoesNotWaitForAYoungOneThatWaitsForItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := paced{"/first/1": time.Second, "/large/a": 2 * time.Second}
		p := mustLoad(t, `name: looks
source: {file: {path: "-"}}
sink: {file: {path: "-"}}
partition_by: .key
workers: 3
limits: {in_flight_bytes: 50000B}
window: {count: 2, timeout: 10ms}
process:
  - {name: first, http: {url: 'http://api/first/\(.n)', into: .first}}
  - {name: large, http: {url: 'http://api/large/\(.id)', into: .large, cache: {ttl: 1h}}}
`)
		in := strings.NewReader(`{"key":1,"n":1,"id":"a"}` + "\n" + `{"key":1,"n":2,"id":"b"}` + "\n" + `{"key":2,"n":3,"id":"a"}` + "\n")
		var out bytes.Buffer
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		began := time.Now()
		err := p.Run(ctx, pipeline.Deps{Logger: quiet, Metrics: prometheus.NewRegistry(), Stdin: in, Stdout: &out, Transport: api})
		if n, took := strings.Count(out.String(), "\n"), time.Since(began); err != nil || n != 3 || took > 10*time.Second {
			t.Errorf("%v, %d events after %v; want three within seconds", err, n, took)
		}
	})
}

// Answers wait for room, which an event may have that waits for the same answer: whoever waits for whom, all of it goes on.
func TestEventsThatShareRequestsNeverWaitInACircle(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			api := &profiles{rand: random, size: 20_000 + random.IntN(80_000)}
			if random.IntN(2) == 0 {
				api.fails = func() bool { return random.IntN(10) == 0 }
			}
			into := []string{"into: .name, select: .name", "into: {.name: .name, .fill: .fill}"}[random.IntN(2)]
			ttl, bytes := []string{"1ms", "100ms", "1h"}[random.IntN(3)], []string{"64KiB", "256KiB", "16MiB"}[random.IntN(3)]
			order := []string{"key", "key_serial", "none"}[random.IntN(2)]
			text := fmt.Sprintf(`
workers: %d
order: %s
limits: {in_flight_bytes: %dB}
window: {count: %d, timeout: 10ms}
process:
  - http: {url: 'http://api/?id=\(.id)', %s, cache: {ttl: %s, max_bytes: %s}, retry: {attempts: 0, share: 100}, total_timeout: 0s, breaker: {calls: 0}}
  - jq: del(.fill)
`, 1+random.IntN(8), order, 40_000+random.IntN(200_000), 1+random.IntN(10), into, ttl, bytes)
			if took := looks(t, api, 300, 1+random.IntN(30), 1+random.IntN(20), text); took > 10*time.Minute {
				t.Errorf("it took %v", took)
			}
			if t.Failed() {
				t.Fatalf("seed %d: answers of %d bytes\n%s", seed, api.size, text)
			}
		})
	}
}
