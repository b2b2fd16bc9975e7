package asynchttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
)

// script answers the nth request with its nth entry, and all further ones with the last.
type script struct {
	steps []func(*http.Request) (*http.Response, error)
	at    []time.Duration // of each request, since the first
	began time.Time
}

func (s *script) answer(r *http.Request) (*http.Response, error) {
	if len(s.at) == 0 {
		s.began = time.Now()
	}
	s.at = append(s.at, time.Since(s.began))
	return s.steps[min(len(s.at), len(s.steps))-1](r)
}

func status(code int, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return reply(code, `{"ok":true}`, headers...) }
}

func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

func refuse(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

func reset(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
}

// brokenBody fails in the middle.
type brokenBody struct{ io.Reader }

func (brokenBody) Close() error { return nil }

func cutShort(*http.Request) (*http.Response, error) {
	body := brokenBody{io.MultiReader(strings.NewReader(`{"ok"`), failing{})}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body, ContentLength: -1}, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestFailedAttemptIsMadeAgainWhereThatMayHelp(t *testing.T) {
	type steps = []func(*http.Request) (*http.Response, error)
	post := "method: POST\nbody: .\n"
	tests := []struct {
		name, options string
		steps         steps
		calls         int
		want          event.Type // "" where it ends well
		status        int
	}{
		{name: "503 then well", steps: steps{status(503), status(200)}, calls: 2, status: 200},
		{name: "501, 500, 502, 504 and well", steps: steps{status(501), status(500), status(502), status(504), status(200)}, calls: 5, status: 200},
		{name: "408, 425 and 429", steps: steps{status(408), status(425), status(429), status(200)}, calls: 4, status: 200},
		{name: "refused connection", steps: steps{refuse, status(200)}, calls: 2, status: 200},
		{name: "reset connection", steps: steps{reset, status(200)}, calls: 2, status: 200},
		{name: "answer cut short", steps: steps{cutShort, status(200)}, calls: 2, status: 200},
		{name: "attempt over its own time-out, the next in time", steps: steps{hang, status(200)}, calls: 2, status: 200},
		{name: "five 500 keep status and body", steps: steps{status(500)}, calls: 5, want: event.UnexpectedStatus, status: 500},
		{name: "five 429", steps: steps{status(429)}, calls: 5, want: event.RateLimited, status: 429},
		{name: "five hangs", steps: steps{hang}, calls: 5, want: event.Timeout},
		{name: "five resets", steps: steps{reset}, calls: 5, want: event.Connection},
		{name: "attempts: 1", options: "retry: {attempts: 1}", steps: steps{status(500)}, calls: 1, want: event.UnexpectedStatus, status: 500},
		{name: "403 at once", steps: steps{status(403)}, calls: 1, want: event.UnexpectedStatus, status: 403},
		{name: "POST after 500 is not sent again", options: post, steps: steps{status(500), status(200)}, calls: 1, want: event.UnexpectedStatus, status: 500},
		{name: "POST after a time-out is not sent again", options: post, steps: steps{hang, status(200)}, calls: 1, want: event.Timeout},
		{name: "POST after a reset is not sent again", options: post, steps: steps{reset, status(200)}, calls: 1, want: event.Connection},
		{name: "POST that could not connect is", options: post, steps: steps{refuse, status(200)}, calls: 2, status: 200},
		{name: "POST that was refused with 429 is", options: post, steps: steps{status(429), status(200)}, calls: 2, status: 200},
		{name: "POST said to be idempotent is", options: post + "idempotent: true\n", steps: steps{status(500), hang, status(200)}, calls: 3, status: 200},
		{name: "PUT is", options: "method: PUT\nbody: .\n", steps: steps{status(500), reset, status(200)}, calls: 3, status: 200},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: tc.steps}
				f := build(t, cannedClient(s.answer), "url: http://api/p?token=hush\ninto: .r\n"+tc.options)
				got := drive(t.Context(), f, `{}`)
				if got.kind() != tc.want || (tc.want == "") != (got.err == nil) || len(s.at) != tc.calls || got.attempts != tc.calls || got.status != tc.status {
					t.Errorf("got %v after %d calls, %d attempts, status %d; want %q after %d, status %d", got.err, len(s.at), got.attempts, got.status, tc.want, tc.calls, tc.status)
				}
				if got.err != nil && (event.AsReject(got.err).Status != tc.status || strings.Contains(got.err.Error(), "hush")) {
					t.Errorf("error event %v, status %d; want status %d and no query", got.err, event.AsReject(got.err).Status, tc.status)
				}
			})
		})
	}
}

func TestLongWaitGivesTheWorkerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(*http.Request) (*http.Response, error){status(503)}}
		f := build(t, cannedClient(s.answer), "{url: http://api/, into: .r, total_timeout: 0s, breaker: {calls: 0}, retry: {attempts: 200, initial: 50ms, max: 5s, share: 100}}")
		tries := event.NewAttempts(time.Now())
		var longest time.Duration
		for {
			began, before := time.Now(), len(s.at)
			_, err := f.Process(t.Context(), event.WithAttempts(newEvent(`{}`), tries))
			if waited := time.Since(began); waited > f.CallTimeout() || waited > 3*300*time.Millisecond || len(s.at) > before+4 {
				t.Fatalf("one call kept the worker for %v and %d tries", waited, len(s.at)-before)
			}
			var retry *event.RetryError
			if !errors.As(err, &retry) {
				break
			}
			longest = max(longest, retry.After)
			tries.Add(1)
			pause(t.Context(), retry.After)
		}
		if tries.Number() != 200 || len(s.at) != 200 {
			t.Errorf("%d attempts counted, %d made, want 200", tries.Number(), len(s.at))
		}
		if longest > 5*time.Second || longest < 2*time.Second {
			t.Errorf("longest wait %v, want up to max 5s", longest)
		}
	})
}

func TestNoAttemptBeginsAfterTotalTimeout(t *testing.T) {
	tests := []struct {
		name, options string
		step          func(*http.Request) (*http.Response, error)
		want          event.Type
		took          time.Duration // at most
	}{
		{name: "attempts without bound end", options: "total_timeout: 20s\nretry: {attempts: 0}", step: status(500), want: event.UnexpectedStatus, took: 20 * time.Second},
		{name: "a wait that does not fit fails at once", options: "total_timeout: 1s\ntimeout: 1s\nretry: {initial: 100000h, max: 100000h}", step: status(500), want: event.UnexpectedStatus},
		{name: "an attempt is cut", options: "total_timeout: 3s\ntimeout: 2s", step: hang, want: event.Timeout, took: 3 * time.Second},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []func(*http.Request) (*http.Response, error){tc.step}}
				got := drive(t.Context(), build(t, cannedClient(s.answer), "url: http://api/\ninto: .r\n"+tc.options), `{}`)
				if got.kind() != tc.want || got.took > tc.took || !strings.Contains(got.err.Error(), "total_timeout") {
					t.Errorf("got %v after %v; want %s after at most %v, naming total_timeout", got.err, got.took, tc.want, tc.took)
				}
				calls := len(s.at)
				time.Sleep(time.Hour)
				if len(s.at) != calls {
					t.Errorf("%d requests after the end", len(s.at)-calls)
				}
			})
		})
	}
}

func TestRetryAfterHoldsTheHostForAllCallsAndIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var refused int
		open := began.Add(8 * time.Minute) // refusals alone take longer than total_timeout
		client := cannedClient(func(*http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if time.Now().Before(open) {
				refused++
				return reply(503, ``, "Retry-After", "20")
			}
			return reply(200, `1`)
		})
		first := build(t, client, "{url: http://api/, into: .r, retry: {attempts: 2}}")
		second := build(t, client, "{url: http://api/other, into: .r, retry: {attempts: 2}}")
		results := make([]ended, 20)
		var wg sync.WaitGroup
		for i := range results {
			f := first
			if i%2 == 1 {
				f = second
			}
			wg.Go(func() { results[i] = drive(t.Context(), f, `{}`) })
		}
		wg.Wait()
		for i, r := range results {
			if r.err != nil || r.attempts != 1 || r.retries != 0 {
				t.Errorf("event %d: %v, %d attempts, %d retries; want one attempt", i, r.err, r.attempts, r.retries)
			}
		}
		if refused > 24*len(results) {
			t.Errorf("%d requests were refused, want at most one per event and hold", refused)
		}
	})
}

// What calls for another attempt may say when, whatever its status; what does not holds nothing.
func TestRetryAfterHoldsTheHostWhateverTheStatus(t *testing.T) {
	for _, tc := range []struct {
		name string
		step func(*http.Request) (*http.Response, error)
		hold time.Duration // 0: none
	}{
		{"500", status(500, "Retry-After", "5"), 5 * time.Second},
		{"408", status(408, "Retry-After", "0.5"), 500 * time.Millisecond},
		{"a failure in a 200 that a rule retries", says(200, maxlag, "Retry-After", "5"), 5 * time.Second},
		{"a 403 that a rule retries", status(403, "Retry-After", "5"), 5 * time.Second},
		{"404", status(404, "Retry-After", "5"), 0},
		{"a good answer", status(200, "Retry-After", "5"), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client := cannedClient(func(r *http.Request) (*http.Response, error) {
					if time.Since(began) > 0 {
						return reply(200, `1`)
					}
					return tc.step(r)
				})
				f := build(t, client, "{url: http://api/, into: .r, errors: [{on: [200], when: '.error?', do: retry}, {on: [403], do: retry}]}")
				got := drive(t.Context(), f, `{}`)
				if (got.holds > 0) != (tc.hold > 0) || got.took != tc.hold || tc.hold > 0 && (got.err != nil || got.attempts != 1) {
					t.Errorf("got %v after %v, %d holds and %d attempts; want one attempt and a hold of %v", got.err, got.took, got.holds, got.attempts, tc.hold)
				}
			})
		})
	}
}

func TestNoCallIsMadeWhileAHostIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "other" {
				return reply(200, `1`)
			}
			calls.Add(1)
			return reply(429, ``, "Retry-After", "7.5")
		})
		f := build(t, client, "{url: 'http://\\(.h)/', allow_hosts: [api, other], into: .r}")
		began := time.Now()
		for i := range 3 {
			_, err := f.Process(t.Context(), newEvent(`{"h":"api"}`))
			var hold *event.HoldError
			// Each comes back a little after the one before.
			if !errors.As(err, &hold) || hold.Until.Sub(began) < 7500*time.Millisecond || hold.Until.Sub(began) > 7500*time.Millisecond+time.Duration(i)*50*time.Millisecond {
				t.Fatalf("got %v, want a hold of 7.5s", err)
			}
			if kind := event.AsReject(err).Type; kind != event.RateLimited {
				t.Errorf("held as %s, want %s", kind, event.RateLimited)
			}
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls reached the held host, want 1", n)
		}
		if got := drive(t.Context(), f, `{"h":"other"}`); got.err != nil || got.holds != 0 {
			t.Errorf("another host: %v after %d holds, want none", got.err, got.holds)
		}
	})
}

func TestRetryAfterIsCapped(t *testing.T) {
	tests := []struct {
		value string
		want  time.Duration
	}{
		{"3600", 60 * time.Second}, {"9223372037", 60 * time.Second}, {"2", 2 * time.Second}, {"0.5", 500 * time.Millisecond},
	}
	for _, tc := range tests {
		t.Run(tc.value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []func(*http.Request) (*http.Response, error){status(429, "Retry-After", tc.value), status(200)}}
				got := drive(t.Context(), build(t, cannedClient(s.answer), "{url: http://api/, into: .r}"), `{}`)
				if got.err != nil || got.took != tc.want || got.attempts != 1 {
					t.Errorf("got %v after %v and %d attempts, want %v and one", got.err, got.took, got.attempts, tc.want)
				}
			})
		})
	}
}

func TestRetryAfterWithoutAWaitIsAnAttemptLikeAnyOther(t *testing.T) {
	for _, value := range []string{"0", "-5", "soon", "0.001", "Fri, 01 Jan 1999 15:04:05 GMT"} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []func(*http.Request) (*http.Response, error){status(429, "Retry-After", value)}}
				got := drive(t.Context(), build(t, cannedClient(s.answer), "{url: http://api/, into: .r}"), `{}`)
				if got.kind() != event.RateLimited || len(s.at) != 5 || got.holds != 0 {
					t.Errorf("got %v after %d calls, %d holds; want %s after 5", got.err, len(s.at), got.holds, event.RateLimited)
				}
			})
		})
	}
}

func TestEndOfTheStreamIsReturnedPlainly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, step := range map[string]func(*http.Request) (*http.Response, error){"in a request": hang, "in a wait": status(500)} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			s := &script{steps: []func(*http.Request) (*http.Response, error){step}}
			f := build(t, cannedClient(s.answer), "{url: http://api/, into: .r, retry: {attempts: 0, initial: 100ms, max: 100ms}}")
			var err error
			for ctx.Err() == nil {
				_, err = f.Process(ctx, newEvent(`{}`))
			}
			cancel()
			var r *event.RejectError
			if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &r) {
				t.Errorf("%s: got %v, want the context's error", name, err)
			}
		}
	})
}

func TestWaitsAreSpreadOverTheirWholeRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		for range 300 {
			s := &script{steps: []func(*http.Request) (*http.Response, error){status(500), status(200)}}
			drive(t.Context(), build(t, cannedClient(s.answer), "{url: http://api/, into: .r}"), `{}`)
			waits = append(waits, s.at[1])
		}
		slices.Sort(waits)
		if waits[0] > 20*time.Millisecond || waits[299] < 180*time.Millisecond || waits[299] > 200*time.Millisecond {
			t.Errorf("first waits from %v to %v, want 0 to 200ms", waits[0], waits[299])
		}
	})
}
