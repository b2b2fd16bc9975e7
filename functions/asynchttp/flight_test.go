package asynchttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// asked is an API that notes what it is asked, and how often at once.
type asked struct {
	answer func(r *http.Request, nth int) (*http.Response, error)

	mu        sync.Mutex // guards all below
	now, most int
	calls     []string        // URL and body, in order
	at        []time.Duration // since it was made
	began     time.Time
}

func newAsked(answer func(r *http.Request, nth int) (*http.Response, error)) *asked {
	return &asked{answer: answer, began: time.Now()}
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.calls, a.at = append(a.calls, r.URL.String()), append(a.at, time.Since(a.began))
	nth := len(a.calls)
	a.now++
	a.most = max(a.most, a.now)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.now--
		a.mu.Unlock()
	}()
	return a.answer(r, nth)
}

// after answers with text after a time.
func after(d time.Duration, status int, text string, headers ...string) func(*http.Request, int) (*http.Response, error) {
	return func(r *http.Request, _ int) (*http.Response, error) {
		select {
		case <-time.After(d):
			return reply(status, text, headers...)
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

// caching makes a function over an API, and the metrics of it.
func caching(t *testing.T, api http.RoundTripper, text string) (*asynchttp.Func, prometheus.Gatherer) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	client := asynchttp.NewClient(asynchttp.ClientConfig{Workers: 64, Transport: api, Metrics: reg}).HTTP()
	f, err := asynchttp.New(functions.Env{Name: "content", Workers: 64, HTTP: client}, options(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return f, reg
}

// found are the events by what they found.
func found(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != "enricher_http_cache_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if n := m.GetCounter().GetValue(); n > 0 && l.GetName() == "result" {
					out = append(out, fmt.Sprintf("%s %v", l.GetValue(), n))
				}
			}
		}
	}
	return strings.Join(out, ", ")
}

func keyed(key, value string) *event.Event {
	return event.New(event.Position{Topic: "in"}, []byte(key), []byte(value), nil, time.Unix(0, 0))
}

// together has events called by so many workers, and returns what became of each.
func together(ctx context.Context, f event.Func, workers int, evs []*event.Event) []ended {
	out := make([]ended, len(evs))
	crew := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i, ev := range evs {
		wg.Go(func() { out[i] = driveWith(ctx, f, crew, ev) })
	}
	wg.Wait()
	return out
}

func equal(n int) []*event.Event {
	evs := make([]*event.Event, n)
	for i := range evs {
		evs[i] = keyed(fmt.Sprint(i), `{"id":7}`)
	}
	return evs
}

const sharing = "url: http://api/\\(.id)\ninto: .r\ncache: {ttl: 10s}\n"

func TestEqualRequestsInFlightAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(time.Second, 200, `{"x":{"5":"five","6":"six"}}`))
		f, reg := caching(t, api, "url: http://api/\\(.id)\nselect: '.x[$key] // \"none\"'\ninto: .r\ncache: {ttl: 10s}\n")
		for i, got := range together(t.Context(), f, 64, equal(64)) {
			want := map[int]string{5: `"five"`, 6: `"six"`}[i]
			if want == "" {
				want = `"none"`
			}
			if got.err != nil || got.value != `{"id":7,"r":`+want+`}` || got.attempts != 1 || got.took != time.Second {
				t.Errorf("event %d: %s, %v after %d attempts and %v", i, got.value, got.err, got.attempts, got.took)
			}
		}
		if len(api.calls) != 1 {
			t.Errorf("%d requests, want one", len(api.calls))
		}
		if got := found(t, reg); got != "miss 1, shared 63" {
			t.Errorf("counted %s", got)
		}
	})
}

func TestEventsThatWaitForAnAnswerHoldNoWorker(t *testing.T) {
	for _, workers := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			slow := 0
			api := newAsked(func(r *http.Request, nth int) (*http.Response, error) {
				if r.URL.Path != "/7" {
					return after(10*time.Millisecond, 200, `1`)(r, nth)
				}
				if slow++; slow == 1 && workers == 1 { // what makes the request waits itself for its next try
					return reply(503, ``, "Retry-After", "5")
				}
				return after(5*time.Second, 200, `1`)(r, nth)
			})
			f, _ := caching(t, api, "url: http://\\(.h).org/\\(.id)\nallow_hosts: ['*.org']\ninto: .r\ncache: {ttl: 10s}\n")
			var evs []*event.Event
			for i := range 64 {
				evs = append(evs, keyed(fmt.Sprint(i), `{"h":"slow","id":7}`))
			}
			for i := range 64 {
				evs = append(evs, keyed(fmt.Sprint(i), fmt.Sprintf(`{"h":"quick","id":%d}`, 100+i)))
			}
			for i, got := range together(t.Context(), f, workers, evs) {
				if got.err != nil || i >= 64 && got.took > time.Second {
					t.Errorf("%d workers, event %d: %v after %v", workers, i, got.err, got.took)
				}
			}
			if n := len(api.calls); n != 64+3-workers {
				t.Errorf("%d workers: %d requests", workers, n)
			}
		})
	}
}

func TestAnEventWhoseCallEndsLeavesItsRequestToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(time.Second, 200, `1`))
		f, _ := caching(t, api, sharing)
		ctx, revoke := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := f.Process(ctx, keyed("a", `{"id":7}`))
			first <- err
		}()
		synctest.Wait()
		time.AfterFunc(500*time.Millisecond, revoke)
		for i, got := range together(t.Context(), f, 64, equal(63)) {
			if got.err != nil || got.attempts != 1 || got.took != 1500*time.Millisecond {
				t.Errorf("event %d: %v after %d attempts and %v", i, got.err, got.attempts, got.took)
			}
		}
		if err := <-first; !errors.Is(err, context.Canceled) || len(api.calls) > 3 {
			t.Errorf("the first ended with %v, %d requests; want that it was cancelled, and 3 at most", err, len(api.calls))
		}
	})
}

// The stream gives up what waits of a partition that was taken away, and tells nobody.
func TestAnEventThatNeverComesBackLeavesItsRequestToOthers(t *testing.T) {
	for name, first := range map[string]func(*http.Request) (*http.Response, error){"an attempt": status(500), "a hold": status(503, "Retry-After", "1")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAsked(func(r *http.Request, nth int) (*http.Response, error) {
					if nth == 1 {
						return first(r)
					}
					return reply(200, `1`)
				})
				f, _ := caching(t, api, sharing+"retry: {initial: 100ns, max: 1s}\n")
				tries := event.NewAttempts(time.Now())
				_, err := f.Process(t.Context(), event.WithAttempts(keyed("a", `{"id":7}`), tries))
				var retry *event.RetryError
				var hold *event.HoldError
				if err != nil && !errors.As(err, &retry) && !errors.As(err, &hold) {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for i, got := range together(ctx, f, 64, equal(63)) {
					if got.err != nil || got.took > 3*time.Second {
						t.Errorf("event %d: %v after %v", i, got.err, got.took)
					}
				}
			})
		})
	}
}

// The stream abandons such a call.
func TestACallThatNeverReturnsLeavesItsRequestToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		api := newAsked(func(_ *http.Request, nth int) (*http.Response, error) {
			if nth == 1 {
				<-end
			}
			return reply(200, `1`)
		})
		f, _ := caching(t, api, sharing+"timeout: 1s\n")
		var wg sync.WaitGroup
		wg.Go(func() { drive(t.Context(), f, `{"id":7}`) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for i, got := range together(ctx, f, 64, equal(63)) {
			if got.err != nil || got.took > f.CallTimeout()+3*time.Second {
				t.Errorf("event %d: %v after %v, want it well soon after %v", i, got.err, got.took, f.CallTimeout())
			}
		}
		close(end)
		wg.Wait()
	})
}

func TestAnEventThatComesBackGoesOnForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(func(r *http.Request, nth int) (*http.Response, error) {
			if nth < 5 {
				return reply(500, ``)
			}
			return reply(200, `1`)
		})
		f, reg := caching(t, api, sharing+"retry: {initial: 2s, share: 100}\n")
		most := 0
		for i, got := range together(t.Context(), f, 4, equal(64)) {
			most = max(most, got.attempts)
			if got.err != nil {
				t.Errorf("event %d: %v", i, got.err)
			}
		}
		if len(api.calls) != 5 || most != 5 || found(t, reg) != "miss 1, shared 63" {
			t.Errorf("%d requests, up to %d attempts, %s; want the tries of one event, and no attempt of another", len(api.calls), most, found(t, reg))
		}
	})
}

func TestWhereEachFailsTwiceAsManyAskTheNextTime(t *testing.T) {
	for name, answer := range map[string]func(r *http.Request, nth int) (*http.Response, error){
		"an answer": after(time.Second, 500, ``),
		"none":      func(*http.Request, int) (*http.Response, error) { time.Sleep(time.Second); return reset(nil) },
		"not JSON":  after(time.Second, 200, `<`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAsked(answer)
				f, _ := caching(t, api, sharing+"retry: {attempts: 1}\nbreaker: {calls: 0}\n")
				began := time.Now()
				for i, got := range together(t.Context(), f, 64, equal(63)) {
					if got.kind() == "" || got.attempts != 1 {
						t.Errorf("event %d: %v after %d attempts", i, got.err, got.attempts)
					}
				}
				var each []int
				for from := time.Duration(0); from < time.Since(began); from += time.Second {
					each = append(each, between(api.at, from, from+time.Second))
				}
				if got := fmt.Sprint(each); got != "[1 2 4 8 16 32]" {
					t.Errorf("requests in each second: %s", got)
				}
			})
		})
	}
}

// A failure that is the same for all is one request.
func TestAnAnswerThatIsNoGoodIsOneForAll(t *testing.T) {
	for code, want := range map[int]event.Type{404: event.NotFound, 400: event.UnexpectedStatus, 204: event.NoContent} {
		synctest.Test(t, func(t *testing.T) {
			api := newAsked(after(time.Second, code, `why`))
			f, _ := caching(t, api, sharing)
			for i, got := range together(t.Context(), f, 64, equal(64)) {
				if got.kind() != want || got.status != code || got.attempts != 1 {
					t.Errorf("%d: event %d: %v, status %d", code, i, got.err, got.status)
				}
			}
			if len(api.calls) != 1 {
				t.Errorf("%d: %d requests, want one", code, len(api.calls))
			}
			drive(t.Context(), f, `{"id":7}`)
			if len(api.calls) != 2 {
				t.Errorf("%d: the answer was kept", code)
			}
		})
	}
}

func TestAnAnswerThatWaitsForRoomKeepsNoOtherEventWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(time.Second, 200, `"`+strings.Repeat("a", 20_000)+`"`))
		f, _ := caching(t, api, sharing)
		young := event.WithRoom(t.Context(), &narrow{wait: time.Hour})
		var wg sync.WaitGroup
		wg.Go(func() { drive(young, f, `{"id":7}`) })
		synctest.Wait()
		if got := drive(t.Context(), f, `{"id":7}`); got.err != nil || got.took > 3*time.Second {
			t.Errorf("%v after %v, want it well without the room of another", got.err, got.took)
		}
		wg.Wait()
	})
}

func TestAnswersThatAreTooLargeToBeKeptAreAskedForSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(time.Second, 200, `"`+strings.Repeat("a", 100_000)+`"`))
		f, _ := caching(t, api, "url: http://api/\\(.id)\ninto: .r\ncache: {ttl: 10s, max_bytes: 64KiB}\n")
		for i, got := range together(t.Context(), f, 64, equal(64)) {
			if got.err != nil || got.took > 2*time.Second {
				t.Errorf("event %d: %v after %v, want it after two requests at most", i, got.err, got.took)
			}
		}
	})
}

// Without cache each event asks: nobody has said how old an answer may be.
func TestWhatIsNotToBeSharedIsAskedForEachEvent(t *testing.T) {
	for _, text := range []string{"url: http://api/\\(.id)\ninto: .r\n", "url: http://api/\\(.id)\nmethod: POST\nbody: .\ninto: .r\n"} {
		synctest.Test(t, func(t *testing.T) {
			api := newAsked(after(time.Second, 200, `1`))
			f, _ := caching(t, api, text)
			together(t.Context(), f, 64, equal(64))
			if len(api.calls) != 64 {
				t.Errorf("%s: %d requests, want 64", text, len(api.calls))
			}
		})
	}
}
