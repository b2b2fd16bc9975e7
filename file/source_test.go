package file_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/streammanager"
)

// assignments notes what a source says of its partitions.
type assignments struct {
	mu     sync.Mutex
	starts map[streammanager.TopicPartition]streammanager.Position
}

func (a *assignments) Assigned(starts map[streammanager.TopicPartition]streammanager.Position) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starts = starts
}
func (*assignments) Revoked(context.Context, []streammanager.TopicPartition) {}
func (*assignments) Lost([]streammanager.TopicPartition)                     {}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, cfg file.SourceConfig) (*file.Source, *assignments) {
	t.Helper()
	s, err := file.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &assignments{}
	if err := s.Open(t.Context(), a); err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s, a
}

// drain polls until the end and returns "offset:value" of each record.
func drain(t *testing.T, s *file.Source, limit int) ([]string, error) {
	t.Helper()
	var got []string
	for {
		p, err := s.Poll(t.Context(), limit)
		if len(p.Records) > limit {
			t.Fatalf("Poll returned %d records, limit %d", len(p.Records), limit)
		}
		if err != nil && len(p.Records) > 0 {
			t.Fatalf("Poll returned records together with %v", err)
		}
		for _, r := range p.Records {
			got = append(got, fmt.Sprintf("%d:%s", r.Offset, r.Value))
			if r.Key != nil || r.Headers != nil || r.Timestamp.IsZero() {
				t.Errorf("record %d: key %q, headers %v, timestamp %v; want none, none, the time of reading", r.Offset, r.Key, r.Headers, r.Timestamp)
			}
		}
		if err != nil {
			return got, err
		}
	}
}

func TestLinesBecomeRecords(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	tests := []struct {
		name, text string
		want       []string
	}{
		{name: "the offset is the number of the line, from 1", text: "{}\n[1]\n", want: []string{"1:{}", "2:[1]"}},
		{name: "the last line may lack its line feed", text: "1\n2", want: []string{"1:1", "2:2"}},
		{name: "a carriage return stays", text: "1\r\n2\r\n", want: []string{"1:1\r", "2:2\r"}},
		{name: "blank lines count and are no events", text: "\n1\n \t\r\n2\n\n", want: []string{"2:1", "4:2"}},
		{name: "what is not JSON is delivered for the pipeline to judge", text: "{oops\n\xff\n", want: []string{"1:{oops", "2:\xff"}},
		{name: "null is a value", text: "null\n", want: []string{"1:null"}},
		{name: "a line longer than any buffer is whole", text: "1\n" + long + "\n3\n", want: []string{"1:1", "2:" + long, "3:3"}},
		{name: "an empty file has no events", text: "", want: nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, tt.text)
			for _, limit := range []int{1, 2, 1000} {
				fromFile, a := open(t, file.SourceConfig{Path: path})
				if want := (streammanager.TopicPartition{Topic: path}); a.starts[want].Offset != 1 || len(a.starts) != 1 {
					t.Errorf("assigned %v, want %v from 1", a.starts, want)
				}
				fromStdin, _ := open(t, file.SourceConfig{Path: "-", Stdin: strings.NewReader(tt.text)})
				for name, s := range map[string]*file.Source{"file": fromFile, "stdin": fromStdin} {
					got, err := drain(t, s, limit)
					if !errors.Is(err, io.EOF) || !slices.Equal(got, tt.want) {
						t.Errorf("%s, limit %d: got %.80q and %v, want %.80q and io.EOF", name, limit, got, err, tt.want)
					}
					if _, err := s.Poll(t.Context(), 1); !errors.Is(err, io.EOF) {
						t.Errorf("%s: Poll after the end: %v, want io.EOF", name, err)
					}
				}
			}
		})
	}
}

func TestALineOverTheBoundEndsThePipelineAndIsNamed(t *testing.T) {
	for name, text := range map[string]string{"with a line feed": "1\n12345\n123456\n", "at the end": "1\n12345\n123456"} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, file.SourceConfig{Path: writeFile(t, text), MaxLineBytes: 5})
			got, err := drain(t, s, 1)
			var fatal *event.FatalError
			if !errors.As(err, &fatal) || !strings.Contains(err.Error(), "line 3 is longer than 5 bytes") {
				t.Errorf("got %v, want a fatal error that names line 3 and the bound", err)
			}
			if want := []string{"1:1", "2:12345"}; !slices.Equal(got, want) {
				t.Errorf("before it: %q, want %q", got, want)
			}
		})
	}
}

func TestWhatCannotBeOpenedEndsThePipeline(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"a missing file": filepath.Join(dir, "nope"), "a directory": dir} {
		t.Run(name, func(t *testing.T) {
			s, err := file.NewSource(file.SourceConfig{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(t.Context())
			var fatal *event.FatalError
			if err := s.Open(t.Context(), &assignments{}); !errors.As(err, &fatal) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open: %v, want a fatal error that names %q", err, path)
			}
		})
	}
}

func TestARelativePathThatIsNotThereIsNamedInFull(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	src, err := file.NewSource(file.SourceConfig{Path: "nope"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close(t.Context())
	dst, err := file.NewSink(file.SinkConfig{Path: "no/nope"})
	if err != nil {
		t.Fatal(err)
	}
	if err, want := src.Open(t.Context(), &assignments{}), strconv.Quote(filepath.Join(dir, "nope")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("source: %v, want an error that names %s", err, want)
	}
	if err, want := dst.Open(t.Context()), strconv.Quote(filepath.Join(dir, "no/nope")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("sink: %v, want an error that names %s", err, want)
	}
}

func TestASourceAndASinkNeedAPath(t *testing.T) {
	if _, err := file.NewSource(file.SourceConfig{}); err == nil || err.Error() != "a file source needs a path, or - for stdin" {
		t.Errorf("source: %v", err)
	}
	if _, err := file.NewSink(file.SinkConfig{}); err == nil || err.Error() != "a file sink needs a path, or - for stdout" {
		t.Errorf("sink: %v", err)
	}
}

func TestALineIsDeliveredWhileStdinStaysOpen(t *testing.T) {
	r, w := io.Pipe()
	s, _ := open(t, file.SourceConfig{Path: "-", Stdin: r})
	defer func() { _ = w.Close() }()
	for i := range 3 {
		if _, err := fmt.Fprintf(w, "%d\n", i); err != nil {
			t.Fatal(err)
		}
		p, err := s.Poll(t.Context(), 10)
		if err != nil || len(p.Records) != 1 || string(p.Records[0].Value) != fmt.Sprint(i) {
			t.Fatalf("after line %d: got %v and %v, want that line", i, p.Records, err)
		}
	}
}

func TestAPollThatWaitsForStdinEndsWithItsContext(t *testing.T) {
	r, w := io.Pipe()
	s, _ := open(t, file.SourceConfig{Path: "-", Stdin: r})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Poll(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Poll: %v, want the context's end", err)
	}
	s.Close(t.Context())
	_ = w.Close() // the read that nobody waits for ends now
}

func TestANamedPipeIsReadToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := open(t, file.SourceConfig{Path: path})
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(path, []byte("1\n2\n"), 0o600) }()
	got, err := drain(t, s, 10)
	if want := []string{"1:1", "2:2"}; !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
		t.Errorf("got %q and %v, want %q and io.EOF", got, err, want)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsReadAgainFromALine(t *testing.T) {
	s, _ := open(t, file.SourceConfig{Path: writeFile(t, "a\n\nb\nc\n")})
	if _, err := drain(t, s, 10); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	tp := streammanager.TopicPartition{Topic: s.Topic()}
	for _, tt := range []struct {
		from int64
		want []string
	}{{1, []string{"1:a", "3:b", "4:c"}}, {3, []string{"3:b", "4:c"}}, {5, nil}, {2, []string{"3:b", "4:c"}}} {
		s.Rewind(map[streammanager.TopicPartition]int64{tp: tt.from})
		got, err := drain(t, s, 10)
		if !errors.Is(err, io.EOF) || !slices.Equal(got, tt.want) {
			t.Errorf("from line %d: got %q and %v, want %q and io.EOF", tt.from, got, err, tt.want)
		}
	}
}

func TestStdinCannotBeReadAgain(t *testing.T) {
	s, _ := open(t, file.SourceConfig{Path: "-", Stdin: strings.NewReader("1\n")})
	if _, err := drain(t, s, 10); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	s.Rewind(map[streammanager.TopicPartition]int64{{Topic: s.Topic()}: 1})
	var fatal *event.FatalError
	if _, err := s.Poll(t.Context(), 1); !errors.As(err, &fatal) || !strings.Contains(err.Error(), "only a regular file") {
		t.Errorf("Poll: %v, want a fatal error with the reason", err)
	}
}
