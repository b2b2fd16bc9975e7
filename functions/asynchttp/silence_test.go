package asynchttp_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
)

// A call that hangs has a worker until its time is over. Those of a host that hangs must not be all there are.
func TestAHostThatHangsLeavesWorkersToOthers(t *testing.T) {
	const perHost, from, until = 200, 3 * time.Second, 12 * time.Second
	for _, hung := range [][]string{{"a"}, {"a", "b"}} {
		for _, further := range []string{"", ", breaker: {while_open: error}", ", breaker: {calls: 0}"} {
			t.Run(fmt.Sprintf("%d hosts%s", len(hung), further), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					down := map[string]bool{}
					for _, h := range hung {
						down[h+".org"] = true
					}
					a := newFarm(func(r *http.Request, t time.Duration) bool { return down[r.URL.Host] && t >= from && t < until }, hang)
					hosts := append([]string{"c"}, hung...)
					fl := flood{
						f:       wide(t, a.answer, `{url: 'http://\(.h).org/', allow_hosts: ["*.org"], into: .r, timeout: 5s, retry: {attempts: 0}`+further+`}`),
						workers: 64, inFlight: 10_000, perSecond: perHost * len(hosts), length: 14 * time.Second,
						value: func(i int) string { return fmt.Sprintf(`{"h":%q}`, hosts[i%len(hosts)]) },
					}
					fl.run(t)
					for at := time.Second; at < 13*time.Second; at += time.Second {
						if n := between(fl.done[`{"h":"c"}`], at, at+time.Second); n < perHost*95/100 {
							t.Errorf("%d events of the host that answers in the second from %v on, want %d", n, at, perHost)
						}
					}
					if n := fl.failed[event.Connection]; len(fl.failed) > 0 && (further != ", breaker: {while_open: error}" || n == 0) {
						t.Errorf("error events %v", fl.failed)
					}
				})
			})
		}
	}
}

// The only host that is called may have all workers, however slow it is.
func TestASlowHostHasAllWorkersWhereNoOtherIsCalled(t *testing.T) {
	for _, other := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			running, most := 0, 0
			answer := func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "other.org" {
					return reply(200, `1`)
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(3 * time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				return reply(200, `1`)
			}
			f := wide(t, answer, `{url: 'http://\(.h).org/', allow_hosts: ["*.org"], into: .r}`)
			if other {
				drive(t.Context(), f, `{"h":"other"}`)
			}
			fl := flood{f: f, workers: 64, inFlight: 1000, perSecond: 1000, length: 200 * time.Millisecond, value: func(int) string { return `{"h":"slow"}` }}
			began := time.Now()
			fl.run(t)
			// 200 calls are four rounds of 64. Where another host may need workers the first calls wait for a sign.
			if took := time.Since(began); len(fl.failed) > 0 || most != 64 || !other && took > 13*time.Second || took > 16*time.Second {
				t.Errorf("beside another host %v: at most %d calls at once, all done after %v, error events %v; want 64 calls, within 13s, 16s beside another host", other, most, took, fl.failed)
			}
		})
	}
}

// What is kept for other hosts costs a host that answers nothing, be it called more than others or be there few workers.
func TestHostsThatAnswerHaveAllWorkers(t *testing.T) {
	for _, workers := range []int{2, 8, 16, 64} {
		for _, takes := range []time.Duration{50 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("%d workers, %v", workers, takes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					answer := func(*http.Request) (*http.Response, error) {
						time.Sleep(takes/2 + rand.N(takes))
						return reply(200, `1`)
					}
					could := float64(workers) / takes.Seconds()
					// So long that the sum of all that answers take is hardly a matter of chance.
					length := time.Duration(max(8, 320/could) * float64(time.Second))
					fl := flood{
						f:       manned(t, workers, answer, `{url: 'http://\(.h).org/', allow_hosts: ["*.org"], into: .r}`),
						workers: workers, inFlight: 5 * workers, perSecond: int(could * 1.5), length: length, live: true, cut: true,
						value: func(i int) string {
							return fmt.Sprintf(`{"h":%q}`, map[bool]string{true: "rare", false: "usual"}[i%10 == 0])
						},
					}
					fl.run(t)
					n := 0
					for _, done := range fl.done {
						n += between(done, length/4, length)
					}
					if got := float64(n) / (length * 3 / 4).Seconds(); got < 0.9*could || len(fl.failed) > 0 {
						t.Errorf("%.0f events a second, error events %v; want the %.0f that so many workers can do", got, fl.failed, could)
					}
				})
			})
		}
	}
}

// An answer that waits for room has begun: the host is not silent, and what the answer waits for may have to call it.
func TestAnAnswerThatHasBegunIsASign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		answer := func(r *http.Request) (*http.Response, error) {
			resp, err := reply(200, `1`)
			resp.Body = waitingBody{ctx}
			return resp, err
		}
		f := wide(t, answer, `{url: 'http://\(.h).org/', allow_hosts: ["*.org"], into: .r}`)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				got := drive(t.Context(), f, fmt.Sprintf(`{"h":"%d"}`, i%2))
				if got.err != nil || got.holds > 0 {
					t.Errorf("call %d: %v after %d holds, want none", i, got.err, got.holds)
				}
			})
			time.Sleep(time.Millisecond)
		}
		end()
		wg.Wait()
	})
}

// waitingBody is all there once its context has ended.
type waitingBody struct{ until context.Context }

func (b waitingBody) Read(p []byte) (int, error) {
	<-b.until.Done()
	return copy(p, `1`), io.EOF
}

func (waitingBody) Close() error { return nil }
