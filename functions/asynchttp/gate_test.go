package asynchttp_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// farm answers in 20 ms, and is down for a time.
type farm struct {
	down func(r *http.Request, t time.Duration) bool
	how  func(*http.Request) (*http.Response, error)

	mu    sync.Mutex
	began time.Time
	calls map[string][]time.Duration // by host
}

func (a *farm) answer(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	t := time.Since(a.began)
	a.calls[r.URL.Host] = append(a.calls[r.URL.Host], t)
	down := a.down(r, t)
	a.mu.Unlock()
	if down {
		return a.how(r)
	}
	select {
	case <-time.After(20 * time.Millisecond):
		return reply(200, `1`)
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

func newFarm(down func(r *http.Request, t time.Duration) bool, how func(*http.Request) (*http.Response, error)) *farm {
	return &farm{down: down, how: how, began: time.Now(), calls: map[string][]time.Duration{}}
}

func TestAnOutageHoldsEventsAndMakesNoStorm(t *testing.T) {
	type answer = func(*http.Request) (*http.Response, error)
	for _, o := range []struct {
		name      string
		how       answer
		perSecond int
		length    time.Duration
	}{
		{"refused at 2000 a second", refuse, 2000, time.Minute},
		{"reset", reset, 100, 20 * time.Second},
		{"hangs", hang, 100, 30 * time.Second},
		{"500", status(500), 100, 20 * time.Second},
		{"503 with Retry-After", status(503, "Retry-After", "1"), 100, 20 * time.Second},
	} {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const begins = 5 * time.Second
				ends := begins + o.length
				a := newFarm(func(_ *http.Request, t time.Duration) bool { return t >= begins && t < ends }, o.how)
				fl := flood{
					f: wide(t, a.answer, `{url: http://api/, into: .r}`), workers: 64, inFlight: 5 * o.perSecond, live: true, // 10,000, the default, at the full rate
					perSecond: o.perSecond, length: ends + 15*time.Second, value: func(int) string { return `{}` },
				}
				fl.run(t)
				if len(fl.failed) > 0 || len(fl.done[`{}`]) != fl.came {
					t.Errorf("%d events ended well of %d, error events %v", len(fl.done[`{}`]), fl.came, fl.failed)
				}
				most := 0
				for from := begins + 2*time.Second; from < ends; from += 100 * time.Millisecond {
					most = max(most, between(a.calls["api"], from, min(from+time.Second, ends)))
				}
				if most > o.perSecond/10 {
					t.Errorf("%d calls in a second of the outage, want at most a tenth of %d", most, o.perSecond)
				}
				// A burst of the workers, and a tenth more each second, but not all that has waited.
				for from := ends; from < ends+8*time.Second; from += 100 * time.Millisecond {
					bound := float64(o.perSecond) * 1.1 * math.Pow(1.1, (from+time.Second-ends).Seconds())
					if n := between(a.calls["api"], from, from+time.Second); float64(n) > bound {
						t.Errorf("%d calls in the second from %v on, after a rate of %d", n, from, o.perSecond)
					}
				}
				for from := ends + 8*time.Second; from < ends+14*time.Second; from += time.Second {
					if n := between(fl.done[`{}`], from, from+time.Second); n < o.perSecond*95/100 {
						t.Errorf("%d events in the second from %v on, want the full rate of %d", n, from, o.perSecond)
					}
				}
				t.Logf("%d events came, at most %d calls a second after the first two of the outage", fl.came, most)
			})
		})
	}
}

func TestAfterARetryAfterTheHostIsCalledAtItsUsualRate(t *testing.T) {
	const from = 5 * time.Second
	for name, refused := range map[string]int{"all calls of a moment": 1 << 20, "one of 64 workers": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				until := from + 200*time.Millisecond
				if refused == 1 {
					until = time.Hour
				}
				a := newFarm(func(r *http.Request, t time.Duration) bool {
					if r.URL.Host != "busy.org" || t < from || t >= until || refused == 0 {
						return false
					}
					refused--
					return true
				}, status(429, "Retry-After", "2"))
				if refused == 1 {
					until = from + 10*time.Millisecond // no call goes after the one that is refused
				}
				holdsTheHost(t, a, until)
			})
		})
	}
}

// holdsTheHost has a host asked for 400 events a second that refuses calls from five seconds on, and asks for two
// seconds. Beside it another one goes on.
func holdsTheHost(t *testing.T, a *farm, last time.Duration) {
	t.Helper()
	f := wide(t, a.answer, `{url: 'http://\(.h).org/', allow_hosts: ["*.org"], into: .r}`)
	hosts := []string{`{"h":"busy"}`, `{"h":"free"}`}
	fl := flood{f: f, workers: 64, inFlight: 4000, perSecond: 800, length: 15 * time.Second, value: func(i int) string { return hosts[i%2] }}
	fl.run(t)
	if len(fl.failed) > 0 || fl.tries != 1 || len(fl.done[hosts[0]]) != 6000 {
		t.Errorf("%d events ended well in up to %d attempts, error events %v; want 6000 in one", len(fl.done[hosts[0]]), fl.tries, fl.failed)
	}
	busy := a.calls["busy.org"]
	if n := between(busy, last, 7*time.Second); n > 0 {
		t.Errorf("%d calls to a host that asked to wait", n)
	}
	for from := 7 * time.Second; from < 14*time.Second; from += 100 * time.Millisecond {
		if n := between(busy, from, from+100*time.Millisecond); float64(n) > 40*(1.25+0.2*(from.Seconds()-7)) || n < 35 {
			t.Errorf("%d calls in the tenth of a second from %v on, want the usual 40 and a little more each second", n, from)
		}
	}
	for from := time.Second; from < 14*time.Second; from += time.Second {
		if n := between(fl.done[hosts[1]], from, from+time.Second); n < 390 {
			t.Errorf("%d events of the other host in the second from %v on, want 400", n, from)
		}
	}
}

func TestAHostThatIsDownLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, while := range []string{"hold", "error"} {
			a := newFarm(func(r *http.Request, t time.Duration) bool {
				return r.URL.Host == "down.org" && t >= 5*time.Second && t < 15*time.Second
			}, refuse)
			f := wide(t, a.answer, `{url: 'http://\(.h).org/', allow_hosts: ["*.org"], into: .r, breaker: {while_open: `+while+`}}`)
			hosts := []string{`{"h":"down"}`, `{"h":"up"}`}
			fl := flood{
				f: f, workers: 64, inFlight: 4000, perSecond: 400, length: 20 * time.Second, value: func(i int) string { return hosts[i%2] },
			}
			fl.run(t)
			for from := time.Second; from < 19*time.Second; from += time.Second {
				if n := between(fl.done[hosts[1]], from, from+time.Second); n < 190 {
					t.Errorf("%s: %d events of the other host in the second from %v on, want 200", while, n, from)
				}
			}
			failed := fl.failed[event.Connection]
			if while == "hold" && len(fl.failed) > 0 || while == "error" && (failed < 1500 || failed > 2600 || len(fl.failed) > 1) {
				t.Errorf("%s: error events %v", while, fl.failed)
			}
		}
	})
}

// Attempts that follow each other quickly may all be made before the breaker opens.
func TestTheMomentBeforeABreakerOpensMakesNoErrorEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFarm(func(_ *http.Request, t time.Duration) bool { return t >= 3*time.Second && t < 6*time.Second }, refuse)
		fl := flood{
			f:       wide(t, a.answer, `{url: http://api/, into: .r, retry: {initial: 20ms, max: 40ms, share: 10}}`),
			workers: 64, inFlight: 5000, perSecond: 500, length: 8 * time.Second, value: func(int) string { return `{}` },
		}
		fl.run(t)
		if len(fl.failed) > 0 || len(fl.done[`{}`]) != 4000 {
			t.Errorf("%d events of 4000 ended well, error events %v", len(fl.done[`{}`]), fl.failed)
		}
	})
}

func TestWhatIsNoOutageDoesNotOpenTheBreaker(t *testing.T) {
	tests := []struct {
		name, options string
		step          func(*http.Request) (*http.Response, error)
		calls         int
	}{
		{"404", "", status(404), 60},
		{"400", "", status(400), 60},
		{"429", "retry: {attempts: 1}", status(429), 60},
		{"nothing selected", "select: .none", status(200), 60},
		{"5xx that a rule makes an error event", "errors: [{on: [5xx], do: error}]", status(500), 60},
		{"5xx that a rule passes", "errors: [{on: [5xx], do: pass}]", status(500), 60},
		{"5xx that a rule drops", "errors: [{on: [5xx], do: drop}]", status(500), 60},
		{"5xx", "retry: {attempts: 1}", status(500), 20},
		{"5xx of a method that is not sent again", "method: POST\nbody: .", status(500), 20},
		{"refused", "retry: {attempts: 1}", refuse, 20},
		{"time-outs", "retry: {attempts: 1}", hang, 20},
		{"no breaker", "retry: {attempts: 1}\nbreaker: {calls: 0}", refuse, 60},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []func(*http.Request) (*http.Response, error){tc.step}}
				f := build(t, cannedClient(s.answer), "url: http://api/\ninto: .r\n"+tc.options)
				for range 60 {
					_, _ = f.Process(t.Context(), event.WithAttempts(newEvent(`{}`), event.NewAttempts(time.Now())))
				}
				if len(s.at) != tc.calls {
					t.Errorf("%d calls for 60 events, want %d", len(s.at), tc.calls)
				}
			})
		})
	}
}

func TestAFailedTryOfAHostIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			if time.Since(began) < 10*time.Minute {
				return hang(r)
			}
			return reply(200, `1`)
		})
		f := build(t, client, "{url: http://api/, into: .r, total_timeout: 15s, retry: {attempts: 2}, breaker: {calls: 1}}")
		got := drive(t.Context(), f, `{}`)
		if got.err != nil || got.attempts != 2 || got.holds < 40 || got.took > 10*time.Minute+8*time.Second+10*time.Second {
			t.Errorf("got %v after %d attempts, %d holds and %v; want it well in the second attempt, soon after ten minutes", got.err, got.attempts, got.holds, got.took)
		}
	})
}

func TestATryOfAHostThatMayHaveBeenCarriedOutIsNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(*http.Request) (*http.Response, error){refuse, reset, status(200)}}
		f := build(t, cannedClient(s.answer), "{url: http://api/, method: POST, body: ., into: .r, breaker: {calls: 1}}")
		got := drive(t.Context(), f, `{}`)
		if got.kind() != event.Connection || len(s.at) != 2 {
			t.Errorf("got %v after %d calls, want %s after the second", got.err, len(s.at), event.Connection)
		}
	})
}

func TestRetriesWaitForTheirShareAndCostNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string]int{}
		var again []time.Duration
		began := time.Now()
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if seen[r.URL.Path]++; seen[r.URL.Path] > 1 {
				again = append(again, time.Since(began))
				return reply(200, `1`)
			}
			return reply(500, ``)
		})
		f := build(t, client, `{url: 'http://api/\(.i)', into: .r, total_timeout: 11s, breaker: {calls: 0}, retry: {attempts: 2}}`)
		fl := flood{f: f, workers: 8, inFlight: 1000, perSecond: 100, length: 3 * time.Second, value: func(i int) string { return fmt.Sprintf(`{"i":"%d"}`, i) }}
		fl.run(t)
		if len(fl.failed) > 0 || len(fl.done) != 300 || fl.tries != 2 {
			t.Errorf("%d events of 300 ended well with up to %d attempts, error events %v", len(fl.done), fl.tries, fl.failed)
		}
		for from := 5 * time.Second; from < 100*time.Second; from += 10 * time.Second {
			if n := between(again, from, from+10*time.Second); n > 12 || n < 6 {
				t.Errorf("%d retries in the ten seconds from %v on, want one a second", n, from)
			}
		}
	})
}

func TestRateLimitCountsNeitherAsAttemptNorAsTime(t *testing.T) {
	for _, per := range []string{"all", "host"} {
		synctest.Test(t, func(t *testing.T) {
			a := newFarm(func(*http.Request, time.Duration) bool { return false }, nil)
			f := wide(t, a.answer, `{url: 'http://\(.h).org/', allow_hosts: ["*.org"], into: .r, timeout: 1s, total_timeout: 1s, rate_limit: {per_second: 20, burst: 2, per: `+per+`, scope: worker}}`)
			hosts := []string{`{"h":"a"}`, `{"h":"b"}`}
			fl := flood{f: f, workers: 64, inFlight: 4000, perSecond: 400, length: time.Second, value: func(i int) string { return hosts[i%2] }}
			fl.run(t)
			if len(fl.failed) > 0 || fl.tries != 1 || len(fl.done[hosts[0]]) != 200 {
				t.Errorf("%s: %d events ended well with up to %d attempts, error events %v", per, len(fl.done[hosts[0]]), fl.tries, fl.failed)
			}
			for host, calls := range a.calls {
				want := map[string]int{"all": 10, "host": 20}[per]
				if n := between(calls, 2*time.Second, 7*time.Second); n < 5*want-3 || n > 5*want+3 {
					t.Errorf("%s: %d calls to %s in five seconds, want %d", per, n, host, 5*want)
				}
			}
		})
	}
}

// The function itself, beside the simulation of what it finds its limit by. A call that finds no place has no worker.
func TestAdaptiveCallsAServerAsItCarries(t *testing.T) {
	const phase, took = 12 * time.Second, 40 * time.Millisecond
	carries := []int{32, 16, 32, 64}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, began := 0, time.Now()
		f := wide(t, func(*http.Request) (*http.Response, error) {
			mu.Lock()
			running++
			now := took
			if k := carries[min(int(time.Since(began)/phase), len(carries)-1)]; running > k { // it gets slower by the square
				now = took * time.Duration(running*running) / time.Duration(k*k)
			}
			mu.Unlock()
			time.Sleep(now)
			mu.Lock()
			running--
			mu.Unlock()
			return reply(200, `1`)
		}, `{url: http://api/, into: .r, adaptive: true}`)
		fl := flood{
			f: f, workers: 64, inFlight: 150, perSecond: 2000, length: phase * time.Duration(len(carries)), cut: true,
			value: func(int) string { return `{}` },
		}
		fl.run(t)
		for i, k := range carries {
			from := time.Duration(i)*phase + 6*time.Second
			best := float64(k) / took.Seconds() // that many calls at once, always
			got := float64(between(fl.done[`{}`], from, from+5*time.Second)) / 5
			if got < 0.8*best || len(fl.failed) > 0 {
				t.Errorf("server that carries %d: %.0f events a second, error events %v; want 80%% of %.0f", k, got, fl.failed, best)
			}
			t.Logf("server that carries %d: %.0f events a second of %.0f", k, got, best)
		}
	})
}

func TestABreakerIsSaidWhenItOpensAndWhenItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		lines := loggedWith(t, ", breaker: {calls: 3}", func(*http.Request) (*http.Response, error) {
			if calls++; calls <= 5 {
				return refuse(nil)
			}
			return reply(200, `1`)
		}, `{"h":"a.org"}`, `{"h":"a.org"}`)
		want := []string{
			`level=WARN msg="the breaker of a host opened: too many calls failed" host=a.org while_open=hold next_try=5s`,
			`level=INFO msg="the breaker of a host closed: it answers again" host=a.org after=`,
		}
		if len(lines) != len(want) {
			t.Fatalf("got %d lines:\n%s\nwant %q", len(lines), strings.Join(lines, "\n"), want)
		}
		for i, w := range want {
			if !strings.HasPrefix(lines[i], w) {
				t.Errorf("got  %s\nwant %s", lines[i], w)
			}
		}
	})
}

func TestMetricsOfLimitsAgreeWithWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		s := &script{steps: []func(*http.Request) (*http.Response, error){refuse}}
		c := asynchttp.NewClient(asynchttp.ClientConfig{Workers: 8, Metrics: reg, Transport: canned(s.answer)})
		f := build(t, c.HTTP(), `{url: http://api/, into: .r, breaker: {calls: 3}, retry: {initial: 1ms, max: 1ms}}`)
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
		_, _ = f.Process(t.Context(), event.WithAttempts(newEvent(`{}`), event.NewAttempts(time.Now())))
		want := `
# HELP enricher_http_breakers_open Hosts whose breaker is open: their events wait, or fail with while_open: error.
# TYPE enricher_http_breakers_open gauge
enricher_http_breakers_open{function="content"} 1
# HELP enricher_http_concurrency_limit HTTP attempts that may be on their way at once: what adaptive has found, else workers.
# TYPE enricher_http_concurrency_limit gauge
enricher_http_concurrency_limit{function="content"} 8
# HELP enricher_http_in_flight HTTP attempts on their way.
# TYPE enricher_http_in_flight gauge
enricher_http_in_flight{function="content"} 0
# HELP enricher_http_retries_delayed_total Retries that had to wait since their host had had its share (retry.share).
# TYPE enricher_http_retries_delayed_total counter
enricher_http_retries_delayed_total{function="content"} 0
`
		names := []string{"enricher_http_breakers_open", "enricher_http_concurrency_limit", "enricher_http_in_flight", "enricher_http_retries_delayed_total"}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	})
}
