//go:build unix

package mainjob_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Names in the pipeline file of every worker.
const (
	group       = "mainjob"
	inputTopic  = "in"
	outputTopic = "out"
	errorTopic  = "errors"
)

// topics are those of the pipeline, with their partitions.
func topics() map[string]int { return map[string]int{inputTopic: 8, outputTopic: 8, errorTopic: 1} }

// pipelineFile is like the one that users read about first. The session is short, so that a killed worker is soon
// given up. %[1]s is the broker, %[2]s the API, %[3]s the worker.
const pipelineFile = `
name: mainjob
kafka: {brokers: ["%[1]s"]}
source:
  kafka:
    topics: [in]
    options: {session.timeout.ms: 3000, heartbeat.interval.ms: 300}
filter: .meta.domain != "canary"
partition_by: [.wiki_id, .page.page_id]
workers: 64
order: key
process:
  - name: content
    when: .load.id != null
    http:
      url: %[2]s/page/\(.page.page_id)?id=\(.load.id)
      into: .content
  - jq: .load.owner = "%[3]s"
sink:
  kafka: {topic: out}
error_sink:
  kafka: {topic: errors}
gateway: {listen: "127.0.0.1:0"}
`

// worker is a process of "enricher run".
type worker struct {
	name string // stands in its outputs as .load.owner
	pid  int
	t    *testing.T
	url  string // of its metrics

	cmd    *exec.Cmd
	stderr *lockedBuffer
	ended  chan struct{} // closed when the process has ended; then endedAt holds

	mu      sync.Mutex // guards told
	told    time.Time  // when it was asked to end
	endedAt time.Time
}

// startWorker runs the pipeline, with overrides such as "limits.in_flight_events=100", until the test
// ends at the latest. It returns when its metrics are served.
func startWorker(t *testing.T, b *broker, a *api, overrides ...string) *worker {
	t.Helper()
	dir := t.TempDir()
	name := "worker-" + filepath.Base(dir)
	file := filepath.Join(dir, "mainjob.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, pipelineFile, b.addr, a.url, name), 0o600))
	args := []string{"run", "--log-format", "json"}
	for _, o := range overrides {
		args = append(args, "--set", o)
	}
	w := &worker{
		name: name, t: t, stderr: &lockedBuffer{}, ended: make(chan struct{}),
		cmd: exec.Command(enricherBinary, append(args, file)...),
	}
	w.cmd.Stderr = w.stderr
	must(t, w.cmd.Start())
	w.pid = w.cmd.Process.Pid
	go func() { // the cleanup below waits for its end
		_ = w.cmd.Wait()
		w.endedAt = time.Now()
		close(w.ended)
	}()
	t.Cleanup(func() {
		w.kill()
		<-w.ended
		_ = b.say("release " + strconv.Itoa(w.pid))
		if t.Failed() {
			t.Logf("%s logged:\n%s", w.name, w.log())
		}
	})
	must(t, b.say("guard "+strconv.Itoa(w.pid)))
	waitFor(t, "the worker serves its metrics", func() bool {
		select {
		case <-w.ended:
			t.Fatalf("the worker ended with status %d:\n%s", w.cmd.ProcessState.ExitCode(), w.log())
		default:
		}
		if found := servingURL.FindStringSubmatch(w.log()); found != nil {
			w.url = found[1] + "/metrics"
		}
		return w.url != ""
	})
	return w
}

var servingURL = regexp.MustCompile(`"msg":"serving [^\n]*"url":"([^"]+)"`)

// terminate asks the worker to end in good order.
func (w *worker) terminate() { w.signal(syscall.SIGTERM) }

// kill ends the worker as kill -9 does.
func (w *worker) kill() { w.signal(syscall.SIGKILL) }

func (w *worker) signal(s syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told.IsZero() {
		w.told = time.Now()
	}
	// It may have ended by itself.
	_ = w.cmd.Process.Signal(s)
}

// wait waits until the worker has ended, and returns its exit status, -1 if it was killed, and how long
// that took since it was asked to.
func (w *worker) wait() (status int, took time.Duration) {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Fatalf("waited %v in vain: %s ends", patience, w.name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told.IsZero() {
		return w.cmd.ProcessState.ExitCode(), 0
	}
	return w.cmd.ProcessState.ExitCode(), w.endedAt.Sub(w.told)
}

// log returns what the worker has logged, a JSON text a line.
func (w *worker) log() string { return w.stderr.String() }

// families are metrics by name.
type families map[string]*dto.MetricFamily

// metrics returns what /metrics serves now.
func (w *worker) metrics() families {
	w.t.Helper()
	found, err := w.scrape(w.t.Context())
	must(w.t, err)
	return found
}

func (w *worker) scrape(ctx context.Context) (families, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", w.name, err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// value adds up the series of a counter or gauge that have all the labels, each written name=value.
func (f families) value(name string, labels ...string) float64 {
	var total float64
	for _, m := range f[name].GetMetric() {
		if hasLabels(m, labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return total
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		name, value, _ := strings.Cut(want, "=")
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == name && l.GetValue() == value
		}
		if !found {
			return false
		}
	}
	return true
}

// lockedBuffer is written by a process and read meanwhile.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
