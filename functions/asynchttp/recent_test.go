package asynchttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

const young = `
url: http://api/
select: .text
into: .text
retry_recent: {on: [404, no_match], younger_than: 10s, every: 1s, time: .dt}
`

// since is the value of an event that happened so long ago.
func since(ago time.Duration) string {
	return fmt.Sprintf(`{"dt":%q}`, time.Now().Add(-ago).UTC().Format(time.RFC3339Nano))
}

// lagging answers as a copy of the data that has the text from a time after the first request on.
func lagging(after time.Duration, before func(*http.Request) (*http.Response, error)) *script {
	s := &script{}
	s.steps = append(s.steps, func(r *http.Request) (*http.Response, error) {
		if s.at[len(s.at)-1] < after {
			return before(r)
		}
		return reply(200, `{"text":"x"}`)
	})
	return s
}

// retried is how many tries were made again for a reason.
func retried(t *testing.T, reg prometheus.Gatherer, reason string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "enricher_http_retries_total" && l.GetName() == "reason" && l.GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Errorf("no series of the reason %q", reason)
	return 0
}

func TestAYoungEventIsAskedForAgainWithoutAnAttempt(t *testing.T) {
	for name, before := range map[string]func(*http.Request) (*http.Response, error){"404": says(404, ``), "no match": says(200, badrevids)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewPedanticRegistry()
				s := lagging(7*time.Second, before)
				client := asynchttp.NewClient(asynchttp.ClientConfig{Transport: canned(s.answer), Metrics: reg})
				got := drive(t.Context(), build(t, client.HTTP(), young+"retry: {attempts: 1}\n"), since(0))
				if got.err != nil || !strings.HasSuffix(got.value, `,"text":"x"}`) || got.attempts != 1 || got.retries != 0 || got.took != 7*time.Second {
					t.Errorf("got %s, %v after %d attempts, %d retries and %v; want the text after 7s and one attempt", got.value, got.err, got.attempts, got.retries, got.took)
				}
				if len(s.at) != 8 || got.holds != 7 {
					t.Errorf("%d tries, the worker was given back %d times; want 8, one a second, and 7", len(s.at), got.holds)
				}
				if n := retried(t, reg, "recent"); n != 7 {
					t.Errorf("%v tries counted as recent, want 7", n)
				}
			})
		})
	}
}

func TestAnEventIsYoungUntilItsAgeAndNoLonger(t *testing.T) {
	ago := func(d time.Duration) func() string { return func() string { return since(d) } }
	text := func(s string) func() string { return func() string { return s } }
	tests := []struct {
		name  string
		value func() string
		want  time.Duration // until the last try, which counts
	}{
		{"one that has just happened", ago(0), 10 * time.Second},
		{"one that happened a while ago", ago(6500 * time.Millisecond), 3500 * time.Millisecond},
		{"one that is old", ago(10 * time.Second), 0},
		{"one of long ago", text(`{"dt":"0001-01-01T00:00:00Z"}`), 0},
		{"one in milliseconds", func() string { return fmt.Sprintf(`{"dt":%d}`, time.Now().Add(-4*time.Second).UnixMilli()) }, 6 * time.Second},
		{"one of a clock that is ahead", ago(-time.Hour), 10 * time.Second},
		{"one of a clock far ahead", text(`{"dt":"9999-12-31T23:59:59Z"}`), 10 * time.Second},
		{"one without a time", text(`{}`), 10 * time.Second},
		{"one with a time that is null", text(`{"dt":null}`), 10 * time.Second},
		{"one with a time that is none", text(`{"dt":"yesterday"}`), 10 * time.Second},
		{"one whose time is a list", text(`{"dt":[1]}`), 10 * time.Second},
		{"one with a number out of range", text(`{"dt":1e300}`), 10 * time.Second},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []func(*http.Request) (*http.Response, error){says(404, ``)}}
				got := drive(t.Context(), build(t, cannedClient(s.answer), young), tc.value())
				if got.kind() != event.NotFound || got.took != tc.want || s.at[len(s.at)-1] != tc.want || got.attempts != 1 {
					t.Errorf("got %v after %v and %d attempts, tries at %v; want %s after %v", got.err, got.took, got.attempts, s.at, event.NotFound, tc.want)
				}
			})
		})
	}
}

func TestTheTimeOfTheRecordIsOneForItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(*http.Request) (*http.Response, error){says(404, ``)}}
		f := build(t, cannedClient(s.answer), strings.Replace(young, ".dt", "$timestamp", 1))
		at, tries := time.Now().Add(-8*time.Second), event.NewAttempts(time.Now())
		for {
			ev := event.New(event.Position{Topic: "in"}, nil, []byte(`{}`), nil, at)
			_, err := f.Process(t.Context(), event.WithAttempts(ev, tries))
			var hold *event.HoldError
			if !errors.As(err, &hold) {
				break
			}
			pause(t.Context(), time.Until(hold.Until))
		}
		if age := time.Since(at); age != 10*time.Second || len(s.at) != 3 {
			t.Errorf("the last of %d tries was made at an age of %v, want 3 and 10s", len(s.at), age)
		}
	})
}

// Waits that are short are sat out in the call, and are no attempts either.
func TestShortWaitsOfAYoungEventAreNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lagging(time.Second, says(404, ``))
		got := drive(t.Context(), build(t, cannedClient(s.answer), strings.Replace(young, "every: 1s", "every: 100ms", 1)), since(0))
		if got.err != nil || got.attempts != 1 || got.retries != 0 || len(s.at) != 11 || got.holds != 2 {
			t.Errorf("got %v after %d attempts, %d tries and %d holds; want 1, 11 and 2, since a call makes four tries", got.err, got.attempts, len(s.at), got.holds)
		}
	})
}

func TestAttemptsOfAYoungEventCountBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing, busy := says(404, ``), says(500, ``)
		s := &script{steps: []func(*http.Request) (*http.Response, error){missing, busy, missing, busy, missing, busy}}
		got := drive(t.Context(), build(t, cannedClient(s.answer), young+"retry: {attempts: 3}\n"), since(0))
		if got.kind() != event.UnexpectedStatus || got.attempts != 3 || len(s.at) != 6 {
			t.Errorf("got %v after %d attempts and %d tries; want three failed attempts in 6 tries", got.err, got.attempts, len(s.at))
		}
	})
}

// A host that keeps an event waiting gives what it asks for time to appear.
func TestAnEventAgesWhileItsHostIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(*http.Request) (*http.Response, error){says(429, ``, "Retry-After", "20"), says(404, ``)}}
		got := drive(t.Context(), build(t, cannedClient(s.answer), young), since(0))
		if got.kind() != event.NotFound || len(s.at) != 2 || got.attempts != 1 {
			t.Errorf("got %v after %d tries and %d attempts, want %s after the second", got.err, len(s.at), got.attempts, event.NotFound)
		}
	})
}

func TestRulesDecideOnceAnEventIsNoLongerYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []func(*http.Request) (*http.Response, error){says(404, ``)}}
		got := drive(t.Context(), build(t, cannedClient(s.answer), young+"errors: [{on: [404], do: drop}]\n"), since(0))
		if !got.dropped || len(s.at) != 11 {
			t.Errorf("got %v, dropped %v after %d tries; want it dropped after 11", got.err, got.dropped, len(s.at))
		}
	})
}

func TestTriesOfAYoungEventCountInTotalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.steps = append(s.steps, func(*http.Request) (*http.Response, error) {
			if s.at[len(s.at)-1] < 10*time.Second {
				return reply(404, ``)
			}
			return reply(500, ``)
		})
		f := build(t, cannedClient(s.answer), young+"total_timeout: 20s\nbreaker: {calls: 0}\nretry: {attempts: 0, initial: 100ms, max: 100ms, share: 100}\n")
		got := drive(t.Context(), f, since(0))
		if got.kind() != event.UnexpectedStatus || got.took > 20*time.Second || got.took < 19*time.Second {
			t.Errorf("got %v after %v, want %s when total_timeout 20s ends", got.err, got.took, event.UnexpectedStatus)
		}
	})
}

func TestTheTimeOfAYoungEventIsAPathThatIsRead(t *testing.T) {
	f, err := asynchttp.New(functions.Env{}, options(t, young))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Paths() {
		if p.String() == ".dt" {
			return
		}
	}
	t.Errorf("paths are %v, want .dt among them", f.Paths())
}
