package asynchttp_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
)

func TestARequestIsSplitWhereItWouldBeTooLarge(t *testing.T) {
	names, events := named(7)
	for _, tc := range []struct {
		name, options string
		want          []string
	}{
		{"more keys than max", "max: 3", []string{"1,2,3", "4,5,6", "7"}},
		{"a longer URL than max_url", "max_url: 40B", []string{"1,2", "3,4", "5,6", "7"}},
		{"a URL that is too long for a single key is tried", "max_url: 9B", []string{"1", "2", "3", "4", "5", "6", "7"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &directory{names: names}
			key, _, _ := strings.Cut(tc.options, ":")
			var text []string
			for line := range strings.Lines(users) {
				if strings.HasPrefix(line, "  "+key+":") {
					line = "  " + tc.options + "\n"
				}
				text = append(text, line)
			}
			got := driveBatch(t, buildBulk(t, d.client(), strings.Join(text, ""), nil), append(events, events[0])...)
			for i, e := range got {
				if e.err != nil || !strings.Contains(e.value, `"user":"u`) {
					t.Errorf("event %d: got %s, %v", i, e.value, e.err)
				}
			}
			wantAsked(t, d, tc.want...)
		})
	}
}

func TestARefusedRequestIsBisectedUntilItsPoisonFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(50)
		d := &directory{names: names, fails: refuses(400, "17")}
		reg := prometheus.NewRegistry()
		got := driveBatch(t, buildBulk(t, d.client(), users, reg), events...)
		for i, e := range got {
			if i == 16 {
				if e.kind() != event.UnexpectedStatus || e.status != 400 || !strings.Contains(e.err.Error(), `key "17": GET api/users: status 400`) || e.attempts != len(containing(d, "17")) {
					t.Errorf("the poison: got %v, status %d after %d attempts; want a 400 after each request for it counted", e.err, e.status, e.attempts)
				}
				continue
			}
			if e.err != nil || e.holds+e.retries > 0 {
				t.Errorf("event %d: got %v, %d holds, %d retries; want its item within the call", i+1, e.err, e.holds, e.retries)
			}
		}
		if n := len(d.requests()); n > 13 {
			t.Errorf("%d requests to find one of 50, want 13 at most", n)
		}
		if n := counter(t, reg, "enricher_http_bulk_bisected_total"); n != float64(len(containing(d, "17"))-1) {
			t.Errorf("counted %v requests asked in halves, want %d", n, len(containing(d, "17"))-1)
		}
	})
}

func TestAPoisonThatBreaksTheServerIsFoundOnceAttemptsAreUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(8)
		d := &directory{names: names, fails: refuses(500, "3")}
		got := driveBatch(t, buildBulk(t, d.client(), users, nil), events...)
		for i, e := range got {
			if want := i == 2; (e.kind() == event.UnexpectedStatus) != want || (e.err != nil) != want {
				t.Errorf("event %d: got %v", i+1, e.err)
			}
		}
		if n := len(d.requests()); n != 5+6 {
			t.Errorf("%d requests, want 5 attempts, and one for each of 6 halves", n)
		}
	})
}

// A host that is down must not be asked for each event by itself as often as for all of them.
func TestAnOutageCostsEachHalfOneTryAndConnectionsAreNotBisected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(8)
		for _, tc := range []struct {
			name  string
			fails func(int, []string) (*http.Response, error)
			want  int
		}{
			{"5xx", func(int, []string) (*http.Response, error) { return reply(503, "") }, 5 + 14},
			{"connection", func(int, []string) (*http.Response, error) { return reset(nil) }, 5},
			{"429", func(int, []string) (*http.Response, error) { return reply(429, "") }, 5},
		} {
			d := &directory{names: names, fails: tc.fails}
			driveBatch(t, buildBulk(t, d.client(), users, nil), events...)
			if n := len(d.requests()); n != tc.want {
				t.Errorf("%s: %d requests, want %d", tc.name, n, tc.want)
			}
		}
	})
}

func TestAHalfOfARefusedRequestHasItsAttemptsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(4)
		d := &directory{names: names}
		failed := 0
		d.fails = func(_ int, ids []string) (*http.Response, error) {
			switch {
			case len(ids) == 4:
				return reply(413, "")
			case ids[0] == "1" && failed < 4:
				failed++
				return reply(503, "")
			}
			return nil, nil
		}
		got := driveBatch(t, buildBulk(t, d.client(), users+"retry: {attempts: 5, initial: 2s, max: 10s, retry_after_max: 60s}\n", nil), events...)
		for i, e := range got {
			if e.err != nil {
				t.Errorf("event %d: got %v after %d attempts", i+1, e.err, e.attempts)
			}
		}
		asked := containing(d, "1")
		if got[0].attempts != 6 || len(asked) != 6 || slices.ContainsFunc(asked[1:], func(ids []string) bool { return len(ids) != 2 }) {
			t.Errorf("%d attempts, asked by %q; want one for all, and five for a half", got[0].attempts, asked)
		}
	})
}

// One large item of many must not cost the others their answer.
func TestAnAnswerOverTheLimitIsAskedForInHalves(t *testing.T) {
	names, events := named(4)
	names["2"] = `"` + strings.Repeat("u", 2000) + `"`
	d := &directory{names: names}
	got := driveBatch(t, buildBulk(t, d.client(), users+"max_response: 1kB\n", nil), events...)
	for i, e := range got {
		if want := i == 1; (e.kind() == event.TooLarge) != want || (e.err != nil) != want {
			t.Errorf("event %d: got %v", i+1, e.err)
		}
	}
	wantAsked(t, d, "1,2,3,4", "1,2", "1", "2", "3,4")
}

func TestBisectNamesTheFailuresThatAreHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			bisect string
			status int
			want   int
		}{{"[]", 400, 1}, {"[403]", 400, 1}, {"[403]", 403, 7}} {
			names, events := named(4)
			d := &directory{names: names, fails: refuses(tc.status, "1", "2", "3", "4")}
			driveBatch(t, buildBulk(t, d.client(), strings.TrimRight(users, "\n")+"\n  bisect: "+tc.bisect+"\n", nil), events...)
			if n := len(d.requests()); n != tc.want {
				t.Errorf("bisect %s, status %d: %d requests, want %d", tc.bisect, tc.status, n, tc.want)
			}
		}
	})
}
