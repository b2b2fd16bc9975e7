//go:build unix

package mainjob_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// servedNames are the metrics that dashboards are written against.
var servedNames = []string{
	"enricher_batch_duration_seconds", "enricher_batch_events", "enricher_build_info", "enricher_commits_total", "enricher_errors_total",
	"enricher_event_latency_seconds", "enricher_events_read_total", "enricher_events_total", "enricher_http_connections_total",
	"enricher_http_request_duration_seconds", "enricher_http_retries_total", "enricher_in_flight_bytes", "enricher_in_flight_events",
	"enricher_lanes", "enricher_outputs_total", "enricher_paused_seconds_total", "enricher_rebalances_total", "enricher_source_lag",
	"enricher_source_lag_seconds", "enricher_windows_closed_total", "enricher_windows_open", "enricher_workers", "enricher_workers_busy",
}

// fatesProcess calls what the event names, and then refuses some. %q are the hosts that may be called; at one of them
// nobody ever answers, so that a breaker would hold its events for good.
const fatesProcess = `process=[
  {name: content, when: '.fate != "plain"', http: {url: 'http://\(.host)/\(.fate)/\(.id)', allow_hosts: [%q, %q], select: .text,
    into: .content, timeout: 2s, max_response: 4KiB, retry: {attempts: 2, initial: 10ms, max: 20ms}, breaker: {calls: 0}}},
  {name: stamp, jq: '.stamp = (if .fate == "unstamped" then error("no stamp") else .id end)'}]`

// /metrics says of a run with all that can become of an event what the topics and the API say of it.
func TestMetricsAgreeWithTheTopicsAndTheAPI(t *testing.T) {
	each, well := 6, 600
	if *full {
		each, well = 100, 7_000 // below the limits, which close windows early
	}
	b := startBroker(t, topics())
	a := startFateAPI(t)
	f := loadFates(t, b, a, each, well)
	w := startWorker(t, b, &job.API{URL: a.url}, fmt.Sprintf(fatesProcess, a.host, a.nobody), "partition_by=.key", "window={count: 5, timeout: 2s}",
		`filter=.fate | startswith("canary") | not`, `sink.kafka.topic=\(.topic)`, `sink.kafka.options["max.request.size"]=20000`)
	var m job.Families
	waitFor(t, "everything is committed and nothing lags", func() bool {
		m = w.Metrics()
		return idle(t, b, group, inputTopic) && len(m["enricher_source_lag"].GetMetric()) == 8 && m.Value("enricher_source_lag") == 0
	})
	for _, name := range servedNames {
		if len(m[name].GetMetric()) == 0 {
			t.Errorf("%s has no series", name)
		}
	}
	lint(t, w)
	errors := f.checkErrors(t, b, m)
	outputs := count(t, b, outputTopic)
	same(t, "outputs", map[string]float64{"topic": float64(outputs)}, map[string]float64{"topic": float64(f.emitted)})
	same(t, "events by outcome", m.ByLabel("enricher_events_total", "outcome"), map[string]float64{
		"emitted": float64(outputs), "dropped": float64(f.dropped), "error": float64(count(t, b, errorTopic)),
	})
	same(t, "windows closed", m.ByLabel("enricher_windows_closed_total", "reason"), map[string]float64{
		"count": float64(f.groups), "timeout": float64(f.singles), "bytes": 0, "eager": 0, "limits": 0, "drain": 0, "transaction": 0, "barrier": 0,
	})
	f.checkSingleValues(t, m)
	a.checkHTTP(t, m)
	t.Logf("metrics: read=%.0f emitted=%d dropped=%d errors=%d of %d kinds calls=%d connections=%d retries=%.0f windows=%d+%d commits=%.0f",
		m.Value("enricher_events_read_total"), outputs, f.dropped, count(t, b, errorTopic), len(errors), a.calls(), a.connections,
		m.Value("enricher_http_retries_total"), f.groups, f.singles, m.Value("enricher_commits_total"))
}

// lint holds the text that is served to the rules of Prometheus.
func lint(t *testing.T, w *job.Worker) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL()+"/metrics", nil)
	must(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	must(t, err)
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
}

// same compares values by name. Those that are 0 may be left out of what is wanted.
func same(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%s: %q is %v, want %v", what, name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok {
			t.Errorf("%s: %q is missing, want %v", what, name, want[name])
		}
	}
}

// fate is what becomes of an event, and why.
type fate struct {
	name    string
	change  string // of the event's text, as OLD->NEW
	failure string // type and function of its error event; empty: it is emitted
	early   bool   // it fails before it enters a window
}

var fates = []fate{
	{name: "plain"},
	{name: "healed"},
	{name: "limited"},
	{name: "held"},
	{name: "gone", failure: "not_found content"},
	{name: "nothing", failure: "not_found content"},
	{name: "empty", failure: "no_content content"},
	{name: "blank", failure: "empty_response content"},
	{name: "garbled", failure: "invalid_response content"},
	{name: "huge", failure: "too_large content"},
	{name: "broken", failure: "unexpected_status content"},
	{name: "teapot", failure: "unexpected_status content"},
	{name: "busy", failure: "rate_limited content"},
	{name: "slow", failure: "timeout content"},
	{name: "unreachable", change: `"host":"API"->"host":"NOBODY"`, failure: "connection content"},
	{name: "foreign", change: `"host":"API"->"host":"foreign.example"`, failure: "rejected content"},
	{name: "homeless", change: `"host":"API",->`, failure: "missing_field content"},
	{name: "unstamped", failure: "expression stamp"},
	{name: "topicless", change: `"topic":"out",->`, failure: "missing_field sink"},
	{name: "fat", change: `"pad":""->"pad":"FAT"`, failure: "too_large sink"},
	{name: "keyless", change: `"key":->"other":`, failure: "missing_key partition_by", early: true},
	{name: "cut", change: `}->`, failure: "invalid_event source", early: true},
	{name: "numbered", change: `"fate":"numbered"->"fate":7`, failure: "expression filter", early: true},
}

// loadedFates is what the input topic got.
type loadedFates struct {
	read, emitted, dropped int
	failures               map[string]float64 // by type and function
	groups, singles        int                // keys with five events, and with one
}

// loadFates writes each fate each times, every one with a key of its own, as many canaries, and well events
// that go well, five of a key.
func loadFates(t *testing.T, b *broker, a *fateAPI, each, well int) loadedFates {
	t.Helper()
	f := loadedFates{failures: map[string]float64{}}
	names := strings.NewReplacer("API", a.host, "NOBODY", a.nobody, "FAT", strings.Repeat("fat ", 6_000))
	write := func(key int, fate, change string) {
		old, changed, _ := strings.Cut(change, "->")
		text := fmt.Sprintf(`{"id":%d,"key":%d,"fate":%q,"host":"API","topic":"out","pad":""}`, f.read, key, fate)
		text = names.Replace(strings.Replace(text, old, changed, 1))
		f.read++
		b.client.Produce(t.Context(), &kgo.Record{Topic: inputTopic, Key: fmt.Append(nil, key), Value: []byte(text)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("loading an event: %v", err)
			}
		})
	}
	for range each {
		write(f.read, "canary", "")
		f.dropped++
		for _, one := range fates {
			write(f.read, one.name, one.change)
			if one.failure == "" {
				f.emitted++
			} else {
				f.failures[one.failure]++
			}
			if !one.early {
				f.singles++
			}
		}
	}
	for range well / 5 {
		key := f.read
		for range 5 {
			write(key, "well", "")
			f.emitted++
		}
		f.groups++
	}
	must(t, b.client.Flush(t.Context()))
	return f
}

// checkErrors compares the error topic to what was loaded, and the metrics to both.
func (f loadedFates) checkErrors(t *testing.T, b *broker, m job.Families) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, r := range readAll(t, b, errorTopic) {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		found[headers["enricher.error.type"]+" "+headers["enricher.error.function"]]++
	}
	same(t, "error events by type and function", found, f.failures)
	same(t, "enricher_errors_total", m.ByLabel("enricher_errors_total", "type", "function"), found)
	return found
}

// checkSingleValues compares what has one value, or one that is at rest.
func (f loadedFates) checkSingleValues(t *testing.T, m job.Families) {
	t.Helper()
	failed := 0.0
	for _, n := range f.failures {
		failed += n
	}
	batches := m["enricher_batch_events"].GetMetric()[0].GetHistogram()
	same(t, "single values", map[string]float64{
		"read": m.Value("enricher_events_read_total", "topic="+inputTopic), "outputs": m.Value("enricher_outputs_total"),
		"latencies": m.ByLabel("enricher_event_latency_seconds")[""], "batches": float64(batches.GetSampleCount()), "in batches": batches.GetSampleSum(),
		"durations": m.ByLabel("enricher_batch_duration_seconds")[""], "workers": m.Value("enricher_workers"), "build": m.Value("enricher_build_info"),
	}, map[string]float64{
		"read": float64(f.read), "outputs": float64(f.emitted), "latencies": float64(f.emitted) + failed, "batches": float64(f.groups + f.singles),
		"in batches": float64(5*f.groups + f.singles), "durations": float64(f.groups + f.singles), "workers": 64, "build": 1,
	})
	for _, name := range []string{
		"enricher_in_flight_events", "enricher_in_flight_bytes", "enricher_lanes", "enricher_windows_open", "enricher_workers_busy",
		"enricher_source_lag_seconds", "enricher_paused_seconds_total", "enricher_rewinds_total", "enricher_calls_abandoned_total",
	} {
		if n := m.Value(name); n != 0 {
			t.Errorf("%s is %v at rest, want 0", name, n)
		}
	}
	if commits := m.ByLabel("enricher_commits_total", "outcome"); commits["ok"] < 1 || commits["failed"]+commits["lost"] > 0 {
		t.Errorf("commits are %v, want that some went well and none otherwise", commits)
	}
	if n := m.Value("enricher_rebalances_total"); n < 1 {
		t.Errorf("enricher_rebalances_total is %v, want that joining counts", n)
	}
}
