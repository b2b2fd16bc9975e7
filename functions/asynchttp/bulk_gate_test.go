package asynchttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
)

// Where each batch has an event that breaks the server, no whole batch ever gets an answer. That must not be taken for
// an outage for good. What is left in the end are events that always fail; they are known from an outage by others that do not.
func TestPoisonInEveryBatchIsFoundWithTheDefaultBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches, size, others = 30, 10, 30 * time.Minute
		names, events := named(batches * size)
		var poison []string
		for i := range batches {
			poison = append(poison, fmt.Sprint(i*size+4))
		}
		d := &directory{names: names, fails: refuses(500, poison...)}
		reg := prometheus.NewRegistry()
		f := until(buildBulk(t, d.client(), users, reg), 2*others)
		got := make([][]ended, batches)
		var wg, beside sync.WaitGroup
		for i := range batches {
			wg.Go(func() { got[i] = driveBatch(t, f, events[i*size:(i+1)*size]...) })
		}
		ctx, cancel := context.WithCancel(t.Context())
		beside.Go(func() {
			for pause(ctx, others); ctx.Err() == nil; pause(ctx, 10*time.Second) {
				driveBatch(t, f, `{"id":1}`)
			}
		})
		wg.Wait()
		cancel()
		beside.Wait()
		lost, late := 0, 0
		for _, b := range got {
			for n, e := range b {
				switch {
				case (n == 3) != (e.kind() == event.UnexpectedStatus), (n == 3) != (e.err != nil):
					lost++
				case n != 3 && e.took > others:
					late++
				}
			}
		}
		if lost+late > 0 {
			t.Errorf("of %d events %d did not end as they should, and %d only once others were asked for beside them; want none", batches*size, lost, late)
		}
		wantAllGivenBack(t, reg)
	})
}

// until has calls end in failure once so much time has passed, so that what would wait for ever is seen.
func until(f event.BatchFunc, after time.Duration) event.BatchFunc {
	return bounded{f, time.Now().Add(after)}
}

type bounded struct {
	f   event.BatchFunc
	end time.Time
}

func (b bounded) ProcessBatch(ctx context.Context, evs []*event.Event) []event.Result {
	if time.Now().Before(b.end) {
		return b.f.ProcessBatch(ctx, evs)
	}
	out := make([]event.Result, len(evs))
	for i := range out {
		out[i].Err = errors.New("it still waits")
	}
	return out
}

// wantAllGivenBack fails the test where an attempt still counts as running.
func wantAllGivenBack(t *testing.T, g prometheus.Gatherer) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "enricher_http_in_flight" && m.GetGauge().GetValue() != 0 {
				t.Errorf("%v attempts count as running, want 0 at the end", m.GetGauge().GetValue())
			}
		}
	}
}

func TestAnOutageKeepsTheEventsOfARequestAndIsAskedNoMoreThanItsBreakerAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches, size, down = 30, 10, 10 * time.Minute
		names, events := named(batches * size)
		began, asked := time.Now(), 0
		d := &directory{names: names, fails: func(int, []string) (*http.Response, error) {
			if time.Since(began) < down {
				asked++
				return reply(503, "")
			}
			return nil, nil
		}}
		reg := prometheus.NewRegistry()
		f := until(buildBulk(t, d.client(), users, reg), time.Hour)
		var wg sync.WaitGroup
		for i := range batches {
			wg.Go(func() {
				for n, e := range driveBatch(t, f, events[i*size:(i+1)*size]...) {
					if e.err != nil || e.attempts > 5 || !strings.Contains(e.value, fmt.Sprintf(`"user":"u%d"`, i*size+n+1)) || e.took > down+time.Minute {
						t.Errorf("batch %d, event %d: got %s, %v after %d attempts and %v; want it well soon after the outage", i, n, e.value, e.err, e.attempts, e.took)
					}
				}
			})
		}
		wg.Wait()
		if most := 60 + int(down/(5*time.Second)); asked > most {
			t.Errorf("%d requests in an outage of %v, want %d at most", asked, down, most)
		}
		t.Logf("%d requests in the outage, %d after it", asked, len(d.requests())-asked)
		count, _ := histogram(t, reg, "enricher_http_request_duration_seconds")
		if bulk, _ := histogram(t, reg, "enricher_http_bulk_events"); int(count) != len(d.requests()) || bulk != count {
			t.Errorf("counted %d attempts, %d of several events; want %d", count, bulk, len(d.requests()))
		}
		wantAllGivenBack(t, reg)
	})
}

func TestWhatKeepsARequestWaitingKeepsAllItsEventsTogetherAndIsNoAttempt(t *testing.T) {
	for _, tc := range []struct {
		name, options string
		before        func(n int) (*http.Response, error)
		attempts      int
	}{
		{"an open breaker", "breaker: {calls: 1}", func(n int) (*http.Response, error) {
			if n < 4 {
				return refuse(nil)
			}
			return nil, nil
		}, 2},
		{"Retry-After", "", func(n int) (*http.Response, error) {
			if n < 4 {
				return reply(429, "", "Retry-After", "7")
			}
			return nil, nil
		}, 1},
		{"rate_limit", "rate_limit: {per_second: 0.1, burst: 1}", func(int) (*http.Response, error) { return nil, nil }, 1},
		{"the share of retries", "breaker: {calls: 0}\nretry: {attempts: 20, initial: 1ms, max: 2ms, share: 0}", func(n int) (*http.Response, error) {
			if n < 15 {
				return reply(500, "")
			}
			return nil, nil
		}, 15},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names, events := named(6)
				d := &directory{names: names}
				d.fails = func(n int, _ []string) (*http.Response, error) { return tc.before(n) }
				reg := prometheus.NewRegistry()
				f := timed{until(buildBulk(t, d.client(), users+tc.options+"\n", reg), time.Hour), t, 2 * time.Second}
				if tc.name == "rate_limit" { // uses up the burst
					driveBatch(t, f, `{"id":1}`)
				}
				for i, e := range driveBatch(t, f, events...) {
					if !strings.Contains(e.value, fmt.Sprintf(`"user":"u%d"`, i+1)) || e.attempts != tc.attempts || e.holds == 0 {
						t.Errorf("event %d: got %s, %v after %d attempts and %d holds; want it after %d and some", i, e.value, e.err, e.attempts, e.holds, tc.attempts)
					}
				}
				for _, ids := range d.requests() {
					if s := strings.Join(ids, ","); s != "1" && s != "1,2,3,4,5,6" {
						t.Errorf("asked for %s, want all in their order", s)
					}
				}
				wantAllGivenBack(t, reg)
			})
		})
	}
}

func TestASilentHostHoldsARequestOfManyWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, _ := named(9)
		d := &directory{names: names}
		reg := prometheus.NewRegistry()
		text := strings.Replace(users, "http://api/users?", `http://\(.[0].h)/users?`, 1) + "allow_hosts: [silent.org, other.org]\n"
		f := buildBulk(t, cannedClient(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "silent.org" {
				time.Sleep(2 * time.Second)
			}
			return d.answer(r)
		}), text, reg)
		driveBatch(t, f, `{"id":9,"h":"other.org"}`)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { driveBatch(t, f, fmt.Sprintf(`{"id":%d,"h":"silent.org"}`, i+1)) })
		}
		time.Sleep(100 * time.Millisecond)
		for _, e := range driveBatch(t, f, `{"id":4,"h":"silent.org"}`, `{"id":5,"h":"silent.org"}`) {
			if e.err != nil || e.holds == 0 || e.attempts != 1 {
				t.Errorf("got %s, %v after %d holds and %d attempts; want it held, in one attempt", e.value, e.err, e.holds, e.attempts)
			}
		}
		wg.Wait()
		if asked := d.requests(); strings.Join(asked[len(asked)-1], ",") != "4,5" {
			t.Errorf("asked for %q, want both that were held together", asked)
		}
		wantAllGivenBack(t, reg)
	})
}

func TestAnOpenBreakerThatIsNotToWaitGivesEachEventItsErrorEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, events := named(8)
		d := &directory{fails: func(int, []string) (*http.Response, error) { return reply(500, "") }}
		reg := prometheus.NewRegistry()
		f := buildBulk(t, d.client(), users+"breaker: {calls: 3, while_open: error}\nretry: {initial: 1ms, max: 2ms}\n", reg)
		for i, e := range driveBatch(t, f, events...) {
			if e.kind() != event.Connection || !strings.Contains(e.err.Error(), fmt.Sprintf("key %q", fmt.Sprint(i+1))) || e.attempts != 3 {
				t.Errorf("event %d: got %v after %d attempts; want its own error event after 3", i, e.err, e.attempts)
			}
		}
		if n := counter(t, reg, "enricher_http_bulk_bisected_total"); len(d.requests()) != 3 || n != 0 {
			t.Errorf("%d requests, %v counted as asked in halves; want 3 and none", len(d.requests()), n)
		}
		wantAllGivenBack(t, reg)
	})
}

func TestARefusedBatchDoesNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(50)
		d := &directory{names: names, fails: refuses(400, "7")}
		f := buildBulk(t, d.client(), users+"breaker: {calls: 2, failures: 0.1}\n", nil)
		for i, e := range driveBatch(t, f, events...) {
			if (e.err != nil) != (i == 6) || e.holds > 0 {
				t.Errorf("event %d: got %v after %d holds", i, e.err, e.holds)
			}
		}
	})
}

func TestAPassOfABulkRequestIsGivenBackOnEveryWayOut(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer canned
		cancel bool
	}{
		{"cancelled", hang, true},
		{"panic", func(*http.Request) (*http.Response, error) { panic("broken transport") }, false},
		{"no answer", reset, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, events := named(5)
				reg := prometheus.NewRegistry()
				f := buildBulk(t, cannedClient(tc.answer), users+"adaptive: true\n", reg)
				ctx, cancel := context.WithCancel(t.Context())
				var evs []*event.Event
				for _, v := range events {
					evs = append(evs, event.WithAttempts(newEvent(v), event.NewAttempts(time.Now())))
				}
				var wg sync.WaitGroup
				var results []event.Result
				wg.Go(func() {
					defer func() { _ = recover() }()
					results = f.ProcessBatch(ctx, evs)
				})
				time.Sleep(time.Second)
				if tc.cancel {
					cancel()
				}
				wg.Wait()
				cancel()
				if tc.cancel && (len(results) != 5 || slices.ContainsFunc(results, func(r event.Result) bool { return !errors.Is(r.Err, context.Canceled) })) {
					t.Errorf("got %v, want each event cancelled", results)
				}
				wantAllGivenBack(t, reg)
			})
		})
	}
}
