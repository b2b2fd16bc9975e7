//go:build unix

package job

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
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/a0c75104/enricher/test/internal/process"
)

// Build builds a command of this module into dir and returns its path. pkg is relative to the test's folder.
func Build(dir, pkg string) (string, error) {
	binary := filepath.Join(dir, filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", binary, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

// WorkerConfig says what a worker runs.
type WorkerConfig struct {
	// Binary is the enricher.
	Binary string
	// File is the text of the pipeline file. Every %WORKER% in it is the worker's name.
	File string
	// Set are overrides, such as "limits.in_flight_events=100".
	Set []string
	// Patience bounds waits for the worker.
	Patience time.Duration
	// Keep has it serve its metrics when its pipeline has ended, until Release: a second pipeline reads what never comes.
	// Overrides would be that one's too.
	Keep bool
}

// Kept is the name of the second pipeline of a worker that is kept.
const Kept = "kept"

// Worker is a process of "enricher run".
type Worker struct {
	*process.Process
	// Name is in its outputs, if its pipeline file has it put there.
	Name string

	t        testing.TB
	patience time.Duration
	url      string // of its metrics
	stderr   *lockedBuffer
	release  func() error // nil: it is not kept
}

// StartWorker runs a pipeline until the test ends at the latest. It returns when its metrics are served.
func StartWorker(t testing.TB, c WorkerConfig) *Worker {
	t.Helper()
	dir := t.TempDir()
	w := &Worker{Name: "worker-" + filepath.Base(dir), t: t, patience: c.Patience, stderr: &lockedBuffer{}}
	file := filepath.Join(dir, "job.yaml")
	Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(c.File, "%WORKER%", w.Name)), 0o600))
	args := []string{"run", "--log-format", "json"}
	for _, o := range c.Set {
		args = append(args, "--set", o)
	}
	args = append(args, file)
	if c.Keep {
		beside := filepath.Join(dir, "kept.yaml")
		text := fmt.Sprintf("name: %s\nsource: {file: {path: \"-\"}}\nsink: {file: {path: %q}}\n", Kept, filepath.Join(dir, "kept.jsonl"))
		Must(t, os.WriteFile(beside, []byte(text), 0o600))
		args = append(args, beside)
	}
	cmd := exec.Command(c.Binary, args...)
	cmd.Stderr = w.stderr
	var err error
	if c.Keep {
		held, err := cmd.StdinPipe()
		Must(t, err)
		w.release = held.Close
	}
	w.Process, err = process.Start(cmd)
	Must(t, err)
	t.Cleanup(func() {
		w.Kill()
		if t.Failed() {
			t.Logf("%s logged:\n%s", w.Name, tail(w.Log(), 32<<10))
		}
	})
	WaitFor(t, c.Patience, "the worker serves its metrics", func() bool {
		if !w.Running() {
			status, _ := w.Status()
			t.Fatalf("the worker ended with status %d:\n%s", status, w.Log())
		}
		if found := servingURL.FindStringSubmatch(w.Log()); found != nil {
			w.url = found[1]
		}
		return w.url != ""
	})
	return w
}

func tail(text string, n int) string {
	if len(text) > n {
		return "…" + text[len(text)-n:]
	}
	return text
}

var servingURL = regexp.MustCompile(`"msg":"serving [^\n]*"url":"([^"]+)"`)

// Release lets a worker that is kept end once its pipeline has.
func (w *Worker) Release() { _ = w.release() }

// URL is where it serves /metrics and the like.
func (w *Worker) URL() string { return w.url }

// Wait waits until the worker has ended, and returns what Status does.
func (w *Worker) Wait() (status int, took time.Duration) {
	w.t.Helper()
	select {
	case <-w.Ended():
	case <-time.After(w.patience):
		w.t.Fatalf("waited %v in vain: %s ends", w.patience, w.Name)
	}
	return w.Status()
}

// Log returns what the worker has logged, a JSON text a line.
func (w *Worker) Log() string { return w.stderr.String() }

// Ready returns the status of /readyz, and what it says.
func (w *Worker) Ready(ctx context.Context) (status int, text string, err error) {
	status, body, err := w.get(ctx, "/readyz")
	return status, string(body), err
}

// Metrics returns what /metrics serves now.
func (w *Worker) Metrics() Families {
	w.t.Helper()
	found, err := w.Scrape(w.t.Context())
	Must(w.t, err)
	return found
}

// Scrape is Metrics for a worker that may have ended.
func (w *Worker) Scrape(ctx context.Context) (Families, error) {
	_, text, err := w.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

func (w *Worker) get(ctx context.Context, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("asking %s: %w", w.Name, err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	return resp.StatusCode, text.Bytes(), err
}

// Resident returns how many bytes of a process are in memory, 0 if it has ended.
func Resident(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return float64(pages * os.Getpagesize())
}

// PeakResident returns how many bytes of a process were in memory at most since it was started, 0 if it has ended.
func PeakResident(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				return 0
			}
			return float64(kib << 10)
		}
	}
	return 0
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
