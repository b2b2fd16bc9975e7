package cli_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/a0c75104/enricher/cli"
)

// described is what docs/metrics.md or the program says of a metric.
type described struct{ kind, labels, help string }

var metricRow = regexp.MustCompile("(?m)^\\| `(enricher_\\w+)` \\| (\\w+) \\| ([^|]*) \\| ([^|]*) \\|$")

func documentedMetrics(t *testing.T) map[string]described {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]described{}
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = described{kind: m[2], labels: strings.ReplaceAll(m[3], "`", ""), help: m[4]}
	}
	return found
}

// servedMetrics runs two events through Kafka and the http function and returns what /metrics says then.
func servedMetrics(t *testing.T) []byte {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	defer api.Close()
	dir := t.TempDir()
	const common = "kafka: {brokers: embedded}\ngateway: {listen: 127.0.0.1:0}\n"
	write(t, dir, "first.yaml", "name: first\n"+common+"source: {file: {path: '-'}}\nsink: {kafka: {topic: a}}\n")
	write(t, dir, "second.yaml", "name: second\n"+common+"source: {kafka: {topics: [a]}}\nwindow: {count: 2, timeout: 10ms}\n"+
		"process:\n  - http: {url: "+api.URL+", into: .b, cache: {ttl: 1m}}\n"+
		"  - http: {url: '"+api.URL+"/?n=\\(length)', into: .c, bulk: {items: '[.]', match: {event: '\"one\"', item: '\"one\"'}}}\nsink: {kafka: {topic: b}}\nerror_sink: {kafka: {topic: c}}\n")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	logged, log := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		args := []string{"run", filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")}
		ended <- cli.Run(ctx, args, strings.NewReader("{}\n{}\n"), io.Discard, log)
		_ = log.Close()
	}()
	url := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		buf := make([]byte, 4096)
		for {
			n, err := logged.Read(buf)
			all.Write(buf[:n])
			if m := served.FindSubmatch(all.Bytes()); m != nil && len(url) == 0 {
				select {
				case url <- string(m[1]):
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	base := <-url
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var body []byte
	emitted, lag := []byte(`enricher_events_total{outcome="emitted",pipeline="second"} 2`), []byte("\nenricher_source_lag{")
	for !bytes.Contains(body, emitted) || !bytes.Contains(body, lag) {
		res, err := http.Get(base + "/metrics")
		if err != nil {
			t.Fatalf("after %v, before both events were emitted and the lag was known: %v", patience, err)
		}
		body, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	stop()
	if got := <-ended; got != 0 {
		t.Errorf("status %d, want 0", got)
	}
	return body
}

func TestMetricsAreDocumentedAndWellNamed(t *testing.T) {
	text := servedMetrics(t)
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !strings.HasPrefix(name, "enricher_") {
			continue
		}
		f := families[name]
		got := described{kind: strings.ToLower(f.GetType().String()), labels: labelsOf(t, f), help: f.GetHelp()}
		if want := documented[name]; got != want {
			t.Errorf("docs/metrics.md: got %+v, want the row\n| `%s` | %s | %s | %s |", want, name, got.kind, got.labels, got.help)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/metrics.md names %s, which does not exist", name)
	}
}

// labelsOf returns the labels beside pipeline, which every series must have.
func labelsOf(t *testing.T, f *dto.MetricFamily) string {
	t.Helper()
	names := map[string]bool{}
	for _, m := range f.GetMetric() {
		has := false
		for _, l := range m.GetLabel() {
			if l.GetName() == "pipeline" {
				has = true
				continue
			}
			names[l.GetName()] = true
		}
		if !has {
			t.Errorf("%s has a series without the label pipeline: %v", f.GetName(), m.GetLabel())
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
