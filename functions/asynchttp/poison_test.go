package asynchttp_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
)

func TestOnePoisonURLDoesNotCloseItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			if r.URL.Path == "/poison" {
				return reply(429, ``, "Retry-After", "30")
			}
			return reply(200, `1`)
		})
		f := build(t, client, `{url: 'http://api/\(.p)', into: .r, total_timeout: 300s}`)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var well, late atomic.Int64
		for w := range 2 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					got := drive(ctx, f, fmt.Sprintf(`{"p":"%d-%d"}`, w, i))
					if got.err == nil {
						well.Add(1)
					}
					if got.took > time.Second {
						late.Add(1)
					}
					time.Sleep(time.Duration(w+1) * 30 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		got := drive(ctx, f, `{"p":"poison"}`)
		cancel()
		wg.Wait()
		if got.kind() != event.RateLimited || got.attempts != 5 || got.took < 150*time.Second {
			t.Errorf("poison: %v after %d attempts and %v; want %s after 5 attempts and a hold, 30s apart", got.err, got.attempts, got.took, event.RateLimited)
		}
		// The first refusal might be the first of many. Each of the two then waits once.
		if late.Load() != 2 || well.Load() < 900 {
			t.Errorf("%d other events passed in two minutes and a half, %d were late; want them held once", well.Load(), late.Load())
		}
	})
}

// Nobody else is answered before it is refused again, so nothing tells that it alone is: it must not go first again.
func TestAPoisonURLGoesBehindThoseThatItKeptWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/poison" {
				return reply(429, ``, "Retry-After", "30")
			}
			time.Sleep(50 * time.Millisecond)
			return reply(200, `1`)
		})
		f := build(t, client, `{url: 'http://api/\(.p)', into: .r, total_timeout: 0s}`)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 300 {
				time.Sleep(time.Second)
				wg.Go(func() {
					got := drive(ctx, f, fmt.Sprintf(`{"p":"%d"}`, i))
					if ended := time.Since(began); got.err != nil || got.took > 2*time.Second && ended > 35*time.Second {
						t.Errorf("another event ended with %v at %v, after %v; want it well, and in time but for the first hold of 30s", got.err, ended, got.took)
					}
				})
			}
		})
		if got := drive(ctx, f, `{"p":"poison"}`); got.kind() != event.RateLimited || got.attempts != 5 {
			t.Errorf("poison: %v after %d attempts, want %s after 5", got.err, got.attempts, event.RateLimited)
		}
		wg.Wait()
		cancel()
	})
}

// Where many events are refused for what they ask for, the others go on.
func TestManyPoisonURLsDoNotCloseTheirHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(r *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			if r.URL.Path != "/well" {
				return reply(429, ``, "Retry-After", "10")
			}
			return reply(200, `1`)
		}
		f := wide(t, answer, `{url: 'http://api/\(.p)', into: .r}`)
		fl := flood{f: f, workers: 64, inFlight: 10_000, perSecond: 100, length: 2 * time.Minute, cut: true, value: func(i int) string {
			// None that waits for the end of the first hold: one that happens to go first would close the host once more.
			if i%50 == 10 && (i == 10 || i > 1200) {
				return fmt.Sprintf(`{"p":"%d"}`, i)
			}
			return `{"p":"well"}`
		}}
		fl.run(t)
		for from := 20 * time.Second; from < 2*time.Minute-time.Second; from += time.Second {
			if n := between(fl.done[`{"p":"well"}`], from, from+time.Second); n < 95 {
				t.Errorf("%d events in the second from %v on, want 98", n, from)
			}
		}
		if n := fl.failed[event.RateLimited]; n < 100 || len(fl.failed) != 1 {
			t.Errorf("error events %v, want those that are refused, after a minute each", fl.failed)
		}
	})
}
