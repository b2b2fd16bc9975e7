package asynchttp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

func TestAnAnswerIsKeptUntilItIsAsOldAsItMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(time.Second, 200, `1`))
		f, reg := caching(t, api, sharing)
		drive(t.Context(), f, `{"id":7}`)
		drive(t.Context(), f, `{"id":8}`)
		time.Sleep(8*time.Second - time.Nanosecond)
		if got := drive(t.Context(), f, `{"id":7}`); got.value != `{"id":7,"r":1}` || got.took != 0 || got.status != 200 || len(api.calls) != 2 {
			t.Errorf("%s, status %d after %v and %d requests, want the kept answer at once", got.value, got.status, got.took, len(api.calls))
		}
		time.Sleep(time.Nanosecond)
		if got := drive(t.Context(), f, `{"id":7}`); got.took != time.Second || len(api.calls) != 3 {
			t.Errorf("after 10s: %v and %d requests, want that it is asked for again", got.took, len(api.calls))
		}
		if got := found(t, reg); got != "hit 1, miss 3" {
			t.Errorf("counted %s", got)
		}
	})
}

func TestThatThereIsNothingIsKeptForItsOwnTime(t *testing.T) {
	for name, answer := range map[string]func(*http.Request, int) (*http.Response, error){
		"404": after(0, 404, `no such thing`), "410": after(0, 410, ``), "no match": after(0, 200, `{"y":1}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, negative := range []time.Duration{0, 3 * time.Second} {
					api := newAsked(answer)
					f, reg := caching(t, api, fmt.Sprintf("url: http://api/\ninto: .r\nselect: .x\ncache: {ttl: 1h, negative_ttl: %v}\n", negative))
					first := drive(t.Context(), f, `{}`)
					time.Sleep(2 * time.Second)
					second := drive(t.Context(), f, `{}`)
					if second.kind() != event.NotFound || second.err.Error() != first.err.Error() || second.status != first.status {
						t.Errorf("first %v, then %v", first.err, second.err)
					}
					time.Sleep(time.Second)
					drive(t.Context(), f, `{}`)
					want, n := "miss 3", 3
					if negative > 0 {
						want, n = "miss 2, negative_hit 1", 2
					}
					if got := found(t, reg); got != want || len(api.calls) != n {
						t.Errorf("negative_ttl %v: %s and %d requests, want %s", negative, got, len(api.calls), want)
					}
				}
			})
		})
	}
}

func TestWhatFailsIsNotKept(t *testing.T) {
	for _, tc := range []struct {
		name, options, body, header string
		calls                       int // 0: one for each of the two events
	}{
		{name: "an error by its status", body: `403`},
		{name: "not JSON", body: `<`},
		{name: "nothing", body: ``},
		{name: "a good answer that a rule refuses", options: "errors: [{when: .error, do: error}]", body: `{"error":1}`},
		{name: "a good answer that is asked for again", options: "errors: [{when: .error, do: retry}]\nretry: {attempts: 2, initial: 1ms, max: 1ms}", calls: 4, body: `{"error":1}`},
		{name: "a select that fails", options: "select: .a.b", body: `{"a":"x"}`},
		{name: "no-store", body: `1`, header: "no-store"},
		{name: "no-store among others", body: `1`, header: "private, No-Store, max-age=60"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				code := 200
				if tc.body == "403" {
					code = 403
				}
				api := newAsked(after(0, code, tc.body, "Cache-Control", tc.header))
				f, _ := caching(t, api, "url: http://api/\ninto: .r\ncache: {ttl: 1h, negative_ttl: 1h}\n"+tc.options)
				drive(t.Context(), f, `{}`)
				drive(t.Context(), f, `{}`)
				if want := max(2, tc.calls); len(api.calls) != want {
					t.Errorf("%d requests for two events, want %d", len(api.calls), want)
				}
			})
		})
	}
}

func TestWhatPassesAndDropsIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(0, 200, `{"verdict":"spam"}`, "Cache-Control", "private, max-age=0"))
		f, _ := caching(t, api, "url: http://api/\ninto: .r\ncache: {ttl: 1h}\nerrors: [{when: '.verdict == \"spam\"', do: drop}]\n")
		for range 2 {
			if got := drive(t.Context(), f, `{}`); !got.dropped {
				t.Errorf("%s, %v, want it dropped", got.value, got.err)
			}
		}
		if len(api.calls) != 1 {
			t.Errorf("%d requests, want one", len(api.calls))
		}
	})
}

func TestRulesSelectAndIntoOfAKeptAnswerAreThoseOfEachEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(0, 200, `{"owner":"ann","busy":"eve","of":{"ann":1,"bob":2}}`, "ETag", "v1"))
		f, _ := caching(t, api, `
url: http://api/
select: .of[$key]
into: {.n: ., .version: $response_headers.etag}
cache: {ttl: 1h}
retry: {attempts: 2, initial: 1ms}
errors:
  - {when: '.busy == $key', do: retry, type: busy}
  - {when: '.owner != $key', do: error, type: foreign}
`)
		for _, tc := range []struct {
			key, value string
			kind       event.Type
			calls      int
		}{
			{"ann", `{"n":1,"version":"v1"}`, "", 1},
			{"bob", "", "foreign", 1},
			{"eve", "", "busy", 3}, // it asks by itself, twice
			{"ann", `{"n":1,"version":"v1"}`, "", 3},
		} {
			got := driveWith(t.Context(), f, make(chan struct{}, 1), keyed(tc.key, `{}`))
			if got.value != tc.value || got.kind() != tc.kind || len(api.calls) != tc.calls {
				t.Errorf("%s: %s, %v after %d requests, want %s %s after %d", tc.key, got.value, got.err, len(api.calls), tc.value, tc.kind, tc.calls)
			}
		}
	})
}

func TestAYoungEventIsNotContentWithAKeptAnswerThatHasNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := false
		api := newAsked(func(*http.Request, int) (*http.Response, error) {
			if !there {
				return reply(404, ``)
			}
			return reply(200, `{"text":"x"}`)
		})
		f, reg := caching(t, api, young+"cache: {ttl: 1h, negative_ttl: 1m}\n")
		drive(t.Context(), f, since(time.Minute))
		if got := drive(t.Context(), f, since(time.Minute)); got.kind() != event.NotFound || len(api.calls) != 1 {
			t.Fatalf("an old event: %v after %d requests, want the kept answer", got.err, len(api.calls))
		}
		there = true
		if got := drive(t.Context(), f, since(2*time.Second)); got.err != nil || len(api.calls) != 2 {
			t.Errorf("a young event: %v after %d requests, want the text", got.err, len(api.calls))
		}
		there = false
		api.calls = nil
		time.Sleep(2 * time.Hour)
		drive(t.Context(), f, since(time.Hour))
		time.Sleep(20 * time.Second)
		there = true
		if got := drive(t.Context(), f, since(15*time.Second)); got.err != nil || len(api.calls) != 2 {
			t.Errorf("an event that happened after what is kept: %v after %d requests, want the text", got.err, len(api.calls))
		}
		if got := found(t, reg); got != "miss 4, negative_hit 1" {
			t.Errorf("counted %s", got)
		}
	})
}

func TestYoungEventsAskTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(func(_ *http.Request, nth int) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			if nth < 5 {
				return reply(404, ``)
			}
			return reply(200, `{"text":"x"}`)
		})
		f, _ := caching(t, api, young+"cache: {ttl: 1h, negative_ttl: 1m}\n")
		evs := make([]*event.Event, 64)
		for i := range evs {
			evs[i] = newEvent(since(0))
		}
		for i, got := range together(t.Context(), f, 64, evs) {
			if got.err != nil || got.attempts != 1 || got.took > 5*time.Second {
				t.Errorf("event %d: %v after %d attempts and %v", i, got.err, got.attempts, got.took)
			}
		}
		if len(api.calls) != 5 {
			t.Errorf("%d requests, want 5, one a second", len(api.calls))
		}
	})
}

func TestMaxBytesBoundsWhatIsKept(t *testing.T) {
	const bound = 1 << 20
	for _, size := range []int{10, 3000, 40_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			text := strings.Repeat(" ", 30_000) + `"` + strings.Repeat("a", size) + `"` // what is not kept takes no memory
			f, reg := caching(t, canned(func(*http.Request) (*http.Response, error) { return reply(200, text) }),
				"url: http://api/\\(.id)\nselect: length\ninto: .r\ncache: {ttl: 1h, max_bytes: 1MiB}\n")
			before := heap()
			for i := range 2 * bound / (size + 512) {
				if got := drive(t.Context(), f, fmt.Sprintf(`{"id":%d}`, i)); got.err != nil {
					t.Fatal(got.err)
				}
			}
			grown, said := heap()-before, int64(gauge(t, reg, "enricher_http_cache_bytes"))
			n, gone := gauge(t, reg, "enricher_http_cache_entries"), counter(t, reg, "enricher_http_cache_evictions_total")
			if said > bound || said < bound*9/10 || grown > bound+bound/10 || n == 0 || gone == 0 {
				t.Errorf("%d bytes are said to be kept of %v answers, the heap has grown by %d; want %d at most. %v went before their time", said, n, grown, bound, gone)
			}
			runtime.KeepAlive(f)
			t.Logf("%v answers of %d bytes: %d said, %d in the heap, %v gone", n, size, said, grown, gone)
		})
	}
}

func gauge(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Errorf("no series of %s", name)
	return 0
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestWhatWasNotUsedForLongestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAsked(after(0, 200, `"`+strings.Repeat("a", 15_000)+`"`))
		f, _ := caching(t, api, "url: http://api/\\(.id)\ninto: .r\ncache: {ttl: 1h, max_bytes: 64KiB}\n") // three of them
		for _, id := range []int{1, 2, 3, 1, 4, 1, 2} {
			drive(t.Context(), f, fmt.Sprintf(`{"id":%d}`, id))
		}
		if got := strings.Join(api.calls, " "); got != "http://api/1 http://api/2 http://api/3 http://api/4 http://api/2" {
			t.Errorf("asked %s", got)
		}
	})
}

func TestWhatIsKeptIsNotTouchedByWhatBecomesOfAnEvent(t *testing.T) {
	for _, into := range []string{"into: .", "into: .r", "into: {.r: .x}", "select: .x\ninto: .", "as: text\ninto: ."} {
		synctest.Test(t, func(t *testing.T) {
			api := newAsked(after(0, 200, `{"x":"what is kept"}`))
			f, _ := caching(t, api, "url: http://api/\ncache: {ttl: 1h}\n"+into)
			want := ""
			for range 3 {
				out, err := f.Process(t.Context(), event.WithAttempts(newEvent(`{}`), event.NewAttempts(time.Now())))
				if err != nil {
					t.Fatal(err)
				}
				got := string(out[0].Value())
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%s: %s, want %s", into, got, want)
				}
				copy(out[0].Value(), bytes.Repeat([]byte("#"), 1000)) // as a function of the user's may
			}
			if len(api.calls) != 1 {
				t.Errorf("%s: %d requests", into, len(api.calls))
			}
		})
	}
}

func TestRoomIsKeptForWhatIsMadeOfAKeptAnswer(t *testing.T) {
	answer := `{"id":1,"items":[` + strings.Repeat(`{"a":1},`, 20_000) + `{"a":2}]}`
	for _, c := range []struct {
		name, options string
		least, most   int64
	}{
		{"a path takes none", "select: .id\ninto: .a\n", 1, 10},
		{"what goes into the event does", "into: .a\n", int64(len(answer)), int64(len(answer)) + 10},
		{"so do values of an expression", "select: '[.items[].a] | add'\ninto: .a\n", 3 * int64(len(answer)), 1 << 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAsked(after(0, 200, answer))
				f, _ := caching(t, api, "url: http://api/\ncache: {ttl: 1h}\n"+c.options)
				drive(t.Context(), f, `{}`)
				room := &narrow{free: 1 << 40}
				got := drive(event.WithRoom(context.Background(), room), f, `{}`)
				if got.err != nil || room.most < c.least || room.most > c.most || len(api.calls) != 1 {
					t.Errorf("%v, %d bytes were reserved, want from %d to %d", got.err, room.most, c.least, c.most)
				}
			})
		})
	}
}

func TestThatAHostForbidsToKeepItsAnswersIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		api := newAsked(after(0, 200, `1`, "Cache-Control", "no-store"))
		f, err := asynchttp.New(functions.Env{Name: "content", Logger: slog.New(slog.NewTextHandler(&log, nil)), HTTP: &http.Client{Transport: api}}, options(t, sharing))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			drive(t.Context(), f, `{"id":7}`)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), `level=WARN msg="answers are not kept: the host forbids it by Cache-Control: no-store" host=api`) {
			t.Errorf("logged %s", log.String())
		}
	})
}

func TestMetricsOfACacheStartAtZero(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	client := asynchttp.NewClient(asynchttp.ClientConfig{Metrics: reg}).HTTP()
	for name, text := range map[string]string{"kept": sharing, "asked": "url: http://api/\ninto: .r\n"} {
		if _, err := asynchttp.New(functions.Env{Name: name, HTTP: client}, options(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	want := `
# HELP enricher_http_cache_bytes Memory of what is kept, of functions with cache.
# TYPE enricher_http_cache_bytes gauge
enricher_http_cache_bytes{function="kept"} 0
# HELP enricher_http_cache_entries Answers that are kept, of functions with cache; those that are too old are among them until somebody asks or needs the room.
# TYPE enricher_http_cache_entries gauge
enricher_http_cache_entries{function="kept"} 0
# HELP enricher_http_cache_evictions_total Answers that had to go before their time, since max_bytes was used up, of functions with cache.
# TYPE enricher_http_cache_evictions_total counter
enricher_http_cache_evictions_total{function="kept"} 0
# HELP enricher_http_cache_total Events by what they found, of functions with cache; hit: a kept answer, negative_hit: one that says that there is nothing, shared: the answer to a request that another event made meanwhile, miss: nothing, they asked.
# TYPE enricher_http_cache_total counter
enricher_http_cache_total{function="kept",result="hit"} 0
enricher_http_cache_total{function="kept",result="miss"} 0
enricher_http_cache_total{function="kept",result="negative_hit"} 0
enricher_http_cache_total{function="kept",result="shared"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "enricher_http_cache_bytes", "enricher_http_cache_entries", "enricher_http_cache_evictions_total", "enricher_http_cache_total"); err != nil {
		t.Error(err)
	}
}
