//go:build linux

package mainjob_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// largeAnswer is the content of each answer.
const largeAnswer = 56 << 20

// answersFile is a pipeline with the default limits. %[1]s is a directory, %[2]s the API, %[3]s what is selected.
const answersFile = `
name: answers
source: {file: {path: %[1]s/in.jsonl}}
workers: 64
process:
  - http:
      url: %[2]s/\(.id)
      select: %[3]s
      into: .answer
sink: {file: {path: %[1]s/out.jsonl}}
gateway: {listen: "127.0.0.1:0"}
`

// 64 answers of 56 MB do not fit into 64 MiB, so they wait for each other, whatever is made of them.
func TestMemoryIsBoundedWithAnswersThatAreLargerThanTheLimits(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(serveLarge))
	defer api.Close()
	paths, jq := 66, 8
	if *full {
		paths, jq = 256, 64
	}
	for _, c := range []struct {
		name, sel string
		events    int
		most      int64 // MiB of resident memory
	}{
		{"a path of the answer", ".query.pages[0].pageid", paths, 400},
		{"jq over all of the answer", "'[.query.pages[] | .pageid] | add'", jq, 400},
		{"the text of the answer", ".query.pages[0].content", 6, 700},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			writeInput(t, filepath.Join(dir, "in.jsonl"), c.events)
			took, peak := runAnswers(t, dir, fmt.Sprintf(answersFile, dir, api.URL, c.sel))
			out, err := os.ReadFile(filepath.Join(dir, "out.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(out), "\n"); n != c.events || strings.Count(string(out), `"answer":`) != c.events {
				t.Errorf("%d outputs, want %d, each with its answer", n, c.events)
			}
			t.Logf("%d answers of %d MiB took %v, resident memory was at most %d MiB", c.events, largeAnswer>>20, took.Round(100*time.Millisecond), peak)
			if peak == 0 || peak > c.most {
				t.Errorf("resident memory was at most %d MiB, want at most %d", peak, c.most)
			}
		})
	}
}

// writtenFile writes the text of each answer to a topic. %[1]s is a directory, %[2]s the API, %[3]s the broker.
const writtenFile = `
name: written
source: {file: {path: %[1]s/in.jsonl}}
workers: 64
process:
  - http:
      url: %[2]s/\(.id)
      select: .query.pages[0].content
      into: .answer
kafka: {brokers: ["%[3]s"]}
sink:
  kafka:
    topic: out
    options: {max.request.size: 70000000, buffer.memory: 70000000}
gateway: {listen: "127.0.0.1:0"}
`

// An answer of 56 MB goes to a topic as it is where the limits of the sink and of the topic allow it.
func TestLargeAnswersAreWrittenWhereTheLimitsOfTheSinkAllowIt(t *testing.T) {
	events := 4
	if *full {
		events = 64
	}
	api := httptest.NewServer(http.HandlerFunc(serveLarge))
	defer api.Close()
	b := startBroker(t, map[string]int{outputTopic: 1})
	changed, err := b.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: new("70000000")}}, outputTopic)
	must(t, err)
	must(t, changed[0].Err)
	dir := t.TempDir()
	writeInput(t, filepath.Join(dir, "in.jsonl"), events)
	took, peak := runAnswers(t, dir, fmt.Sprintf(writtenFile, dir, api.URL, b.addr))
	found := map[int]int{}
	job.EachRecord(t, b.admin, []string{b.addr}, outputTopic, func(r *kgo.Record) {
		id := -1
		_, err := fmt.Sscanf(string(r.Value[:min(20, len(r.Value))]), `{"id":%d,`, &id)
		must(t, err)
		if len(r.Value) < largeAnswer*9/10 {
			t.Errorf("event %d has %d bytes, want its answer in it", id, len(r.Value))
		}
		found[id]++
	})
	for id := range events {
		if found[id] != 1 {
			t.Errorf("event %d is there %d times, want once", id, found[id])
		}
	}
	t.Logf("%d answers of %d MiB were written in %v, resident memory was at most %d MiB", len(found), largeAnswer>>20, took.Round(100*time.Millisecond), peak)
	if peak == 0 || peak > 1000 {
		t.Errorf("resident memory was at most %d MiB, want at most 1000", peak)
	}
}

// serveLarge answers with a page. Every second answer does not say how long it is.
func serveLarge(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	head := fmt.Sprintf(`{"query":{"pages":[{"pageid":%d,"content":"`, id)
	const tail = `"}]}}`
	piece := []byte(strings.Repeat("a text of some words, and with a line's end\\n  ", 1<<20/48)) // less than 1 MiB
	times := largeAnswer / len(piece)
	w.Header().Set("Content-Type", "application/json")
	if id%2 == 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(head)+times*len(piece)+len(tail)))
	}
	_, _ = w.Write([]byte(head)) // a worker that has gone is seen by its outputs
	for range times {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
	_, _ = w.Write([]byte(tail))
}

// writeInput writes events of 11 KB.
func writeInput(t *testing.T, path string, events int) {
	t.Helper()
	var b strings.Builder
	for i := range events {
		fmt.Fprintf(&b, `{"id":%d,"pad":"%s"}`+"\n", i, strings.Repeat("p", 11_000))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runAnswers runs the pipeline to its end and returns how long that took and the most resident memory in MiB.
func runAnswers(t *testing.T, dir, pipeline string) (took time.Duration, peak int64) {
	t.Helper()
	file := filepath.Join(dir, "answers.yaml")
	if err := os.WriteFile(file, []byte(pipeline), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, enricherBinary, "run", file)
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// What the kernel says at the end of a child is no less than what its parent had when it was started, and that is this test.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			peak = max(peak, int64(job.PeakResident(cmd.Process.Pid))>>20)
		case err := <-ended:
			if err != nil {
				t.Errorf("the run: %v\n%s", err, log)
			}
			return time.Since(began), peak
		}
	}
}
