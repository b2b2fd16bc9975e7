//go:build linux

package mainjob_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hostileFile calls an API that means no good. %[1]s is a directory, %[2]s the API.
const hostileFile = `
name: hostile
source: {file: {path: %[1]s/in.jsonl}}
workers: 64
process:
  - http:
      url: %[2]s/\(.id)
      into: .answer
      breaker: {calls: 0}
sink: {file: {path: %[1]s/out.jsonl}}
error_sink:
  file: {path: %[1]s/errors.jsonl}
  format: event_platform
  stream: hostile.error
gateway: {listen: "127.0.0.1:0"}
`

// hostile is an answer, and what it costs.
type hostile struct {
	name   string
	serve  http.HandlerFunc
	want   string // type of the error event, "" for a good answer
	most   int64  // MiB of resident memory
	broken bool   // its connection is lost
	set    string // options
}

func hostiles(t *testing.T) []hostile {
	t.Helper()
	bomb := gzipBomb(t)
	explode := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	}
	cases := []hostile{
		{"a good answer", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"good":true}`) }, "", 128, false, ""},
		{"a gzip bomb", explode, "too_large", 128, true, "max_response: 1MiB"},
		{"a slow answer byte by byte", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				takeTime(r)
				_, _ = w.Write([]byte(" "))
				_ = http.NewResponseController(w).Flush()
			}
		}, "timeout", 128, true, "timeout: 500ms\n      retry: {attempts: 1}"},
		{"a redirect loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "unexpected_status", 128, false, ""},
		{"10 MiB of headers", hijacked(func(c io.Writer) error {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			line := "X-More: " + strings.Repeat("x", 1<<10-10) + "\r\n"
			for i := 0; i < 10<<10 && err == nil; i++ {
				_, err = io.WriteString(c, line)
			}
			return err
		}), "too_large", 256, true, ""},
		{"a cut body", said("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":"), "connection", 128, true, "retry: {attempts: 1}"},
		{"a Content-Length that lies", said("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{\"a\":1}"), "invalid_response", 128, true, ""}, // what is too much is the answer to another call, which is made again
	}
	if *full {
		cases = append(cases, hostile{"a gzip bomb up to the default max_response", explode, "too_large", 400, true, ""})
	}
	return cases
}

// said is an answer that is all of what comes over its connection.
func said(text string) http.HandlerFunc {
	return hijacked(func(c io.Writer) error {
		_, err := io.WriteString(c, text)
		return err
	})
}

// gzipBomb is 1 GiB of zeros, compressed to 1 MiB: 16 times the same part.
func gzipBomb(t *testing.T) []byte {
	t.Helper()
	var part bytes.Buffer
	w := gzip.NewWriter(&part)
	_, err := w.Write(bytes.Repeat([]byte("0"), 64<<20))
	must(t, err)
	must(t, w.Close())
	return bytes.Repeat(part.Bytes(), 16)
}

// hijacked writes an answer of its own to the connection, and closes it.
func hijacked(write func(io.Writer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_ = write(conn) // whoever has had enough hangs up
		_ = conn.Close()
	}
}

// Each answer that an API should not give is an error event of its type, costs no connection but its own, and leaves
// memory as it is.
func TestHostileAnswersAreErrorEventsAndLeaveMemoryFlat(t *testing.T) {
	events := 192
	if *full {
		events = 400
	}
	for _, c := range hostiles(t) {
		t.Run(c.name, func(t *testing.T) {
			var calls, connections atomic.Int64
			api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				c.serve(w, r)
			}))
			api.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					connections.Add(1)
				}
			}
			api.Start()
			defer api.Close()
			dir := t.TempDir()
			writeInput(t, filepath.Join(dir, "in.jsonl"), events)
			file := fmt.Sprintf(hostileFile, dir, api.URL)
			if c.set != "" {
				file = strings.Replace(file, "into: .answer", "into: .answer\n      "+c.set, 1)
			}
			took, peak := runAnswers(t, dir, file)
			found := errorTypes(t, filepath.Join(dir, "errors.jsonl"))
			out, _ := os.ReadFile(filepath.Join(dir, "out.jsonl")) // none where nothing came out
			good := strings.Count(string(out), "\n")
			switch {
			case c.want == "" && (good != events || len(found) > 0):
				t.Errorf("%d outputs and error events %v for %d events, want that all go out", good, found, events)
			case c.want != "" && (good > 0 || found[c.want] != events):
				t.Errorf("%d outputs and error events %v for %d events, want all to be %s", good, found, events, c.want)
			}
			most := int64(64)
			if c.broken {
				most += calls.Load()
			}
			if n := connections.Load(); n > most {
				t.Errorf("%d connections for %d calls, want at most %d: those of 64 workers, and one for each that an answer broke", n, calls.Load(), most)
			}
			if peak == 0 || peak > c.most {
				t.Errorf("resident memory was at most %d MiB, want at most %d", peak, c.most)
			}
			t.Logf("%s: %d events, error events %v, %d calls, %d connections, resident memory at most %d MiB, in %v",
				c.name, events, found, calls.Load(), connections.Load(), peak, took.Round(10*time.Millisecond))
		})
	}
}

// errorTypes counts the error events of a file by their type.
func errorTypes(t *testing.T, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	must(t, err)
	found := map[string]int{}
	for line := range bytes.Lines(text) {
		var ev struct {
			Type string `json:"error_type"`
		}
		must(t, json.Unmarshal(line, &ev))
		found[ev.Type]++
	}
	return found
}
