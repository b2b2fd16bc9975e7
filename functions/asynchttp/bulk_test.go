package asynchttp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
)

func TestEventsOfABatchShareOneRequestAndGetTheirItemByItsKey(t *testing.T) {
	d := &directory{names: map[string]string{"1": `"one"`, "9007199254740993": `"big"`, "3": `1.0`}}
	reg := prometheus.NewRegistry()
	got := driveBatch(t, buildBulk(t, d.client(), users, reg), `{"id":1}`, `{"id":"9007199254740993"}`, `{"id":3}`, `{"id": 1, "again": true}`)
	for i, want := range []string{`{"id":1,"user":"one"}`, `{"id":"9007199254740993","user":"big"}`, `{"id":3,"user":1.0}`, `{"id": 1, "again": true,"user":"one"}`} {
		if got[i].value != want || got[i].err != nil || got[i].attempts != 1 {
			t.Errorf("event %d: got %s, %v after %d attempts; want %s", i, got[i].value, got[i].err, got[i].attempts, want)
		}
	}
	wantAsked(t, d, "1,9007199254740993,3") // once for the two events that ask for 1
	if n, sum := histogram(t, reg, "enricher_http_bulk_events"); n != 1 || sum != 4 {
		t.Errorf("counted %d requests for %v events, want 1 for 4", n, sum)
	}
	if n, _ := histogram(t, reg, "enricher_http_request_duration_seconds"); n != 1 {
		t.Errorf("counted %d calls, want 1", n)
	}
}

func TestKeysMayHaveSeveralPartsAndItemsBeMembersOfAnObject(t *testing.T) {
	tests := []struct{ name, items, match, answer string }{
		{"an object", ".users | to_entries", `{event: .id, item: .key}`, `{"users":{"2":{"name":"b"},"1":{"name":"a"}}}`},
		{"several parts", ".users | map({key: [.w, .n], value: .})", `{event: "[.wiki, .id]", item: .key}`, `{"users":[{"w":"y","n":2,"name":"b"},{"w":"x","n":2,"name":"no"},{"w":"x","n":1,"name":"a"}]}`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			o := strings.NewReplacer("items: .users", "items: '"+tc.items+"'", "{event: .id, item: .id}", tc.match, "select: .name", "select: .value.name").Replace(users)
			got := driveBatch(t, buildBulk(t, cannedClient(says(200, tc.answer)), o, nil), `{"wiki":"x","id":1}`, `{"wiki":"y", "id": 2}`)
			if got[0].value != `{"wiki":"x","id":1,"user":"a"}` || got[1].value != `{"wiki":"y", "id": 2,"user":"b"}` {
				t.Errorf("got %s, %v and %s, %v", got[0].value, got[0].err, got[1].value, got[1].err)
			}
		})
	}
}

func TestAnEventThatTheAnswerLeavesOutFailsAlone(t *testing.T) {
	tests := []struct {
		name, options, answer string
		want                  event.Type // of the event 2; 1 and 3 get their item
		message               string
		value                 string
		dropped               bool
	}{
		{name: "no item", answer: `{"users":[{"id":3,"name":"c"},{"id":1,"name":"a"}]}`, want: event.NotFound, message: `GET api/users: key "2": none of the 2 items in the answer is for it`},
		{name: "null in its place", answer: `{"users":[{"id":1,"name":"a"},null,{"id":3,"name":"c"}]}`, want: event.NotFound},
		{name: "an item without what select wants", answer: `{"users":[{"id":1,"name":"a"},{"id":2},{"id":3,"name":"c"}]}`, want: event.NotFound, message: `the answer has nothing at ".name": "{\"id\":2}"`},
		{name: "an item on which select fails", options: "SELECT .name | if . == 5 then .x else . end", answer: `{"users":[{"id":1,"name":"a"},{"id":2,"name":5},{"id":3,"name":"c"}]}`, want: event.Expression},
		{name: "two items that differ", answer: `{"users":[{"id":1,"name":"a"},{"id":2,"name":"x"},{"id":2,"name":"y"},{"id":3,"name":"c"}]}`, want: event.InvalidResponse, message: "several items"},
		{name: "two items that are the same", answer: `{"users":[{"id":1,"name":"a"},{"id":2,"name":"b"},{"id":2,"name":"b"},{"id":3,"name":"c"}]}`, value: `{"id":2,"user":"b"}`},
		{name: "an item whose key cannot be read", answer: `{"users":[{"id":1,"name":"a"},7,{"id":3,"name":"c"}]}`, want: event.NotFound, message: "of one the key could not be read"},
		{name: "a rule drops what is missing", options: "errors: [{on: [no_match], do: drop}]\n", answer: `{"users":[{"id":1,"name":"a"},{"id":3,"name":"c"}]}`, dropped: true},
		{name: "a rule about the answer drops what is missing", options: "errors: [{on: [no_match], when: .gone, do: drop}]\n", answer: `{"users":[{"id":1,"name":"a"},{"id":3,"name":"c"}],"gone":[2]}`, dropped: true},
		{name: "a rule about the item", options: "errors: [{item: .failed, do: error, type: broken}]\n", answer: `{"users":[{"id":1,"name":"a"},{"id":2,"failed":"disk"},{"id":3,"name":"c"}]}`, want: "broken", message: `{\"id\":2,\"failed\":\"disk\"}`},
		{name: "a rule about the item passes it on", options: "errors: [{on: [200, no_match], item: .failed, do: pass}]\n", answer: `{"users":[{"id":1,"name":"a"},{"id":2,"failed":"disk"},{"id":3,"name":"c"}]}`, value: `{"id":2}`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			client := cannedClient(func(*http.Request) (*http.Response, error) { calls++; return reply(200, tc.answer) })
			o := users + tc.options
			if pick, ok := strings.CutPrefix(tc.options, "SELECT "); ok {
				o = strings.Replace(users, "select: .name", "select: "+pick, 1)
			}
			got := driveBatch(t, buildBulk(t, client, o, nil), `{"id":1}`, `{"id":2}`, `{"id":3}`)
			if got[0].value != `{"id":1,"user":"a"}` || got[2].value != `{"id":3,"user":"c"}` || calls != 1 {
				t.Errorf("others: got %s, %v and %s, %v after %d calls", got[0].value, got[0].err, got[2].value, got[2].err, calls)
			}
			two := got[1]
			if two.kind() != tc.want || two.value != tc.value || two.dropped != tc.dropped {
				t.Errorf("got %q, %v, dropped %v; want %q, %s, dropped %v", two.value, two.err, two.dropped, tc.value, tc.want, tc.dropped)
			}
			if two.err != nil && (!strings.Contains(two.err.Error(), tc.message) || strings.Contains(two.err.Error(), "hush") || event.AsReject(two.err).Status != 200) {
				t.Errorf("error event %v, want …%s…, status 200 and no query", two.err, tc.message)
			}
		})
	}
}

func TestOnlyEventsThatCallForAnotherTryAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(5)
		d := &directory{names: names}
		d.fails = func(n int, _ []string) (*http.Response, error) {
			if n > 2 {
				return nil, nil
			}
			return reply(200, `{"users":[{"id":1,"name":"u1"},{"id":2,"busy":true},{"id":4,"busy":true},{"id":5,"name":"u5"},{"id":3,"name":"u3"}]}`)
		}
		got := driveBatch(t, buildBulk(t, d.client(), users+"errors: [{item: .busy, do: retry, type: busy}]\n", nil), events...)
		for i, want := range []int{1, 3, 1, 3, 1} {
			if got[i].value != fmt.Sprintf(`{"id":%d,"user":"u%d"}`, i+1, i+1) || got[i].attempts != want {
				t.Errorf("event %d: got %s, %v after %d attempts, want %d", i+1, got[i].value, got[i].err, got[i].attempts, want)
			}
		}
		wantAsked(t, d, "1,2,3,4,5", "2,4", "2,4")
	})
}

func TestAnEventThatStaysBusyFailsOnceItsAttemptsAreUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := cannedClient(says(200, `{"users":[{"id":1,"name":"u1"},{"id":2,"busy":true}]}`))
		got := driveBatch(t, buildBulk(t, client, users+"errors: [{item: .busy, do: retry, type: busy}]\n", nil), `{"id":1}`, `{"id":2}`)
		if got[0].attempts != 1 || got[1].kind() != "busy" || got[1].attempts != 5 {
			t.Errorf("got %d attempts, then %v after %d; want 1, and busy after 5", got[0].attempts, got[1].err, got[1].attempts)
		}
	})
}

func TestAYoungEventThatIsMissingIsAskedForAloneWithoutAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := &directory{names: map[string]string{"1": `"u1"`}}
		d.fails = func(int, []string) (*http.Response, error) {
			if time.Since(began) >= 3*time.Second {
				d.names["2"] = `"u2"`
			}
			return nil, nil
		}
		o := users + "retry_recent: {younger_than: 10s, every: 1s, time: .at}\n"
		now := began.UTC().Format(time.RFC3339)
		got := driveBatch(t, buildBulk(t, d.client(), o, nil), `{"id":1,"at":"`+now+`"}`, `{"id":2,"at":"`+now+`"}`, `{"id":3,"at":"1999-01-01T00:00:00Z"}`)
		if got[1].value != `{"id":2,"at":"`+now+`","user":"u2"}` || got[1].attempts != 1 || got[1].holds != 3 {
			t.Errorf("the young one: got %s, %v, %d attempts, %d holds; want it after 3 holds", got[1].value, got[1].err, got[1].attempts, got[1].holds)
		}
		if got[2].kind() != event.NotFound || got[2].took != 0 {
			t.Errorf("the old one: got %v after %v, want not_found at once", got[2].err, got[2].took)
		}
		wantAsked(t, d, "1,2,3", "2", "2", "2")
	})
}

// A request that is answered by a 404 as a whole is made again while one of its events is young, and then bisected.
func TestAYoungEventHasItsWholeRequestAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		names, events := named(2)
		d := &directory{names: names}
		d.fails = func(_ int, ids []string) (*http.Response, error) {
			if slices.Contains(ids, "2") || time.Since(began) < 3*time.Second {
				return reply(404, "")
			}
			return nil, nil
		}
		got := driveBatch(t, buildBulk(t, d.client(), users+"retry_recent: {younger_than: 5s, every: 1s}\n", nil), events...)
		if got[0].err != nil || got[0].holds != 5 || got[0].took != 5*time.Second || got[1].kind() != event.NotFound || got[1].attempts != 2 {
			t.Errorf("got %v after %d holds and %v, and %v after %d attempts; want the first after 5s, and not_found after 2", got[0].err, got[0].holds, got[0].took, got[1].err, got[1].attempts)
		}
	})
}

// One event's host must not be asked for what another's has.
func TestEventsOfSeveralHostsAreNotAskedForTogether(t *testing.T) {
	d := &directory{names: map[string]string{"1": `"one"`, "2": `"two"`}}
	o := strings.Replace(users, "http://api/", `http://\(.[0].domain)/`, 1) + "allow_hosts: ['*.wiki']\n"
	got := driveBatch(t, buildBulk(t, d.client(), o, nil),
		`{"id":1,"domain":"a.wiki"}`, `{"id":1,"domain":"b.wiki"}`, `{"id":2,"domain":"a.wiki"}`, `{"id":2}`, `{"id":3,"domain":"evil"}`)
	if got[0].err != nil || got[1].err != nil || got[2].err != nil || got[3].kind() != event.MissingField || got[4].kind() != event.Rejected {
		t.Errorf("got %v, %v, %v, %v, %v", got[0].err, got[1].err, got[2].err, got[3].err, got[4].err)
	}
	if want := []string{"http://a.wiki/users?token=hush&ids=1%2C2", "http://b.wiki/users?token=hush&ids=1"}; !slices.Equal(d.urls, want) {
		t.Errorf("asked %q, want %q", d.urls, want)
	}
}

func TestAnEventWithoutAKeyOrARequestFailsAlone(t *testing.T) {
	d := &directory{names: map[string]string{"1": `"one"`, "2": `"two"`}}
	o := strings.Replace(users, "map(.id)", `map(if .poison then error("poison") else .id end)`, 1)
	got := driveBatch(t, buildBulk(t, d.client(), o, nil), `{"id":1}`, `{}`, `{"id":""}`, `{"id":4,"poison":true}`, `{"id":2}`, `{"id":null}`)
	for i, want := range []event.Type{"", event.MissingField, event.MissingField, event.Expression, "", event.MissingField} {
		if got[i].kind() != want || (want == "") != (got[i].value != "") {
			t.Errorf("event %d: got %s, %v; want %s", i, got[i].value, got[i].err, want)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(slices.Concat(d.requests()...))), []string{"1", "2"}) {
		t.Errorf("asked for %q, want 1 and 2", d.requests())
	}
}

func TestTheWholeRequestIsTheFateOfAllItsEvents(t *testing.T) {
	const maxlag = `{"error":{"code":"maxlag"}}`
	tests := []struct {
		name, options string
		answer        func(*http.Request) (*http.Response, error)
		want          event.Type
		attempts      int
		value         bool // passed as they came
		dropped       bool
		message       string
	}{
		{name: "a status that no rule names", answer: says(403, "no"), want: event.UnexpectedStatus, attempts: 1, message: `asked for with 2 others: GET api/users: status 403 Forbidden: "no"`},
		{name: "a rule that drops", options: "errors: [{on: [403], do: drop}]", answer: says(403, ""), attempts: 1, dropped: true},
		{name: "a rule that passes", options: "errors: [{on: [403], do: pass}]", answer: says(403, ""), attempts: 1, value: true},
		{name: "a failure in a 200, where looking for the items fails", options: "ITEMSerrors: [{on: [200], when: .error.code == \"maxlag\", do: retry, type: lagging}]", answer: says(200, maxlag), want: "lagging", attempts: 5},
		{name: "a failure in a 200 that no rule names", options: "ITEMS", answer: says(200, maxlag), want: event.InvalidResponse, attempts: 1, message: "finding the items in the answer"},
		{name: "a 200 that items cannot read", options: "ITEMSerrors: [{on: [no_match], do: retry}]", answer: says(200, `{"users":[{"id":9,"id":9}]}`), want: event.InvalidResponse, attempts: 5, message: "occurs twice"},
		{name: "a 200 without the list", answer: says(200, `{"n":1}`), want: event.NotFound, attempts: 1, message: `the answer has no items at ".users"`},
		{name: "a 200 with something else than a list", answer: says(200, `{"users":{"1":{}}}`), want: event.InvalidResponse, attempts: 1, message: "is no list of items"},
		{name: "no JSON", answer: says(200, `<html>`), want: event.InvalidResponse, attempts: 1},
		{name: "a connection that fails", answer: reset, want: event.Connection, attempts: 5},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []func(*http.Request) (*http.Response, error){tc.answer}}
				o := users + tc.options
				if rules, ok := strings.CutPrefix(tc.options, "ITEMS"); ok {
					o = strings.Replace(users, "items: .users", "items: '[.users[]]'", 1) + rules
				}
				got := driveBatch(t, buildBulk(t, cannedClient(s.answer), o, nil), `{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":2}`)
				for i, e := range got {
					if e.kind() != tc.want || (e.err == nil) != (tc.want == "") || e.attempts != tc.attempts || (e.value != "") != tc.value || e.dropped != tc.dropped {
						t.Errorf("event %d: got %q, %v, dropped %v, %d attempts; want %s after %d", i, e.value, e.err, e.dropped, e.attempts, tc.want, tc.attempts)
					}
					if e.err != nil && (!strings.Contains(e.err.Error(), tc.message) || !strings.Contains(e.err.Error(), fmt.Sprintf("key %q", []string{"1", "2", "3", "2"}[i]))) {
						t.Errorf("event %d: error event %v, want its key and …%s…", i, e.err, tc.message)
					}
				}
				if len(s.at) != tc.attempts {
					t.Errorf("%d calls, want %d", len(s.at), tc.attempts)
				}
			})
		})
	}
}

func TestRetryAfterHoldsAllEventsOfTheRequestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(3)
		d := &directory{names: names}
		d.fails = func(n int, _ []string) (*http.Response, error) {
			if n == 1 {
				return reply(503, "", "Retry-After", "2")
			}
			return nil, nil
		}
		for i, e := range driveBatch(t, buildBulk(t, d.client(), users, nil), events...) {
			if e.err != nil || e.holds != 1 || e.attempts != 1 || e.took != 2*time.Second {
				t.Errorf("event %d: got %v after %d holds, %d attempts and %v; want one hold of 2s", i, e.err, e.holds, e.attempts, e.took)
			}
		}
		wantAsked(t, d, "1,2,3", "1,2,3")
	})
}

// A batch of many requests does not run past the time of a call: the stream would abandon it.
func TestRequestsThatFindNoTimeInACallAreHeldAndFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, events := named(6)
		d := &directory{names: names}
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			pause(r.Context(), 9*time.Second)
			return d.answer(r)
		})
		f := buildBulk(t, client, strings.Replace(users, "max: 50", "max: 1", 1), nil)
		longest := f.(interface{ CallTimeout() time.Duration }).CallTimeout()
		held := 0
		for i, e := range driveBatch(t, timed{f, t, longest}, events...) {
			if e.err != nil || e.attempts != 1 {
				t.Errorf("event %d: got %v after %d attempts", i+1, e.err, e.attempts)
			}
			held += e.holds
		}
		if held == 0 || len(d.requests()) != 6 {
			t.Errorf("%d holds, %d requests; want 6 requests over more than one call", held, len(d.requests()))
		}
	})
}

func TestTheEndOfTheCallSaysNothingOfItsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := buildBulk(t, cannedClient(hang), users, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		for i, r := range f.ProcessBatch(ctx, []*event.Event{newEvent(`{"id":1}`), newEvent(`{"id":2}`)}) {
			if r.Err == nil || r.Err.Error() != context.Canceled.Error() {
				t.Errorf("event %d: got %v, want the context's end", i, r.Err)
			}
		}
	})
}

func TestABodyHasTheKeysOfAllEvents(t *testing.T) {
	d := &directory{names: map[string]string{"1": `"one"`, "2": `"two"`}}
	o := strings.Replace(users, `url: http://api/users?token=hush&ids=\(map(.id) | join(","))`, "url: http://api/users\nmethod: POST\nidempotent: true\nbody: map(.id)", 1)
	got := driveBatch(t, buildBulk(t, d.client(), o, nil), `{"id":1}`, `{"id":2}`)
	if got[0].value != `{"id":1,"user":"one"}` || got[1].value != `{"id":2,"user":"two"}` {
		t.Errorf("got %s, %v and %s, %v", got[0].value, got[0].err, got[1].value, got[1].err)
	}
	wantAsked(t, d, "1,2")
}

// What a request of the batch held is given back before the next.
func TestRequestsOfABatchTakeTurnsInTheirRoom(t *testing.T) {
	room := &narrow{free: 1 << 30}
	ctx := event.WithRoom(t.Context(), room)
	pad := strings.Repeat("x", 100_000)
	client := cannedClient(func(r *http.Request) (*http.Response, error) {
		id := r.URL.Query().Get("ids")
		return reply(200, `{"users":[{"id":`+id+`,"name":"user `+id+`","pad":"`+pad+`"}]}`)
	})
	f := buildBulk(t, client, strings.Replace(users, "max: 50", "max: 1", 1), nil)
	var most []int64
	for _, n := range []int{1, 4} {
		evs := []*event.Event{newEvent(`{"id":1}`), newEvent(`{"id":2}`), newEvent(`{"id":3}`), newEvent(`{"id":4}`)}[:n]
		for i, r := range f.ProcessBatch(ctx, evs) {
			if r.Err != nil {
				t.Fatalf("event %d: %v", i, r.Err)
			}
		}
		if want := int64(n * len(`"user 1"`)); room.held != want {
			t.Errorf("%d events: %d bytes are held at the end, want the %d that went into them", n, room.held, want)
		}
		room.Give(room.held)
		most = append(most, room.most)
	}
	if most[0] < 100_000 || most[1] > most[0]+100 {
		t.Errorf("at most %d bytes were held for one request and %d for four; want all of an answer, and no two", most[0], most[1])
	}
}
