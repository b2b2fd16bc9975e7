package file_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/streammanager"
)

func openSink(t *testing.T, cfg file.SinkConfig) *file.Sink {
	t.Helper()
	s, err := file.NewSink(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// produce hands the values over and returns what each done was told.
func produce(t *testing.T, s *file.Sink, values ...[]byte) []error {
	t.Helper()
	errs := make([]error, len(values))
	var wg sync.WaitGroup
	for i, v := range values {
		wg.Add(1)
		s.Produce(t.Context(), &streammanager.Record{Value: v}, func(err error) {
			errs[i] = err
			wg.Done()
		})
	}
	wg.Wait()
	return errs
}

func TestARecordBecomesALine(t *testing.T) {
	tests := []struct {
		name  string
		value []byte
		want  string
		typ   event.Type
	}{
		{name: "bytes stay as they are", value: []byte(`{"a" : 1.0,  "b":"é\u00e9"}`), want: "{\"a\" : 1.0,  \"b\":\"é\\u00e9\"}\n"},
		{name: "a tombstone is the text null", value: nil, want: "null\n"},
		{name: "JSON over several lines loses white space alone", value: []byte("{\n \"a\": 1e400,\n \"b\": \"<x> \\n\"\n}\n"), want: `{"a":1e400,"b":"<x> \n"}` + "\n"},
		{name: "text with a line feed is refused", value: []byte("a\nb"), typ: event.Rejected},
		{name: "two JSON texts are refused", value: []byte("{}\n{}"), typ: event.Rejected},
		{name: "an empty value is refused", value: []byte{}, typ: event.Rejected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := openSink(t, file.SinkConfig{Path: "-", Stdout: &out})
			err := produce(t, s, tt.value)[0]
			check := s.Check(&streammanager.Record{Value: tt.value})
			if closeErr := s.Close(t.Context()); closeErr != nil {
				t.Fatalf("Close: %v", closeErr)
			}
			for what, err := range map[string]error{"Produce": err, "Check": check} {
				var reject *event.RejectError
				if tt.typ == "" && err != nil || tt.typ != "" && (!errors.As(err, &reject) || reject.Type != tt.typ) {
					t.Errorf("%s: %v, want type %q", what, err, tt.typ)
				}
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out.String(), tt.want)
			}
		})
	}
}

func TestADoneRecordIsInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := openSink(t, file.SinkConfig{Path: path})
	var want strings.Builder
	for i := range 100 {
		if err := produce(t, s, fmt.Append(nil, i))[0]; err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&want, i)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want.String() {
			t.Fatalf("after record %d: got %q and %v, want %q", i, got, err, want.String())
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsAppendedToOnALineOfItsOwn(t *testing.T) {
	for before, want := range map[string]string{"": "1\n", "old\n": "old\n1\n", "old\nbroken o": "old\nbroken o\n1\n"} {
		path := writeFile(t, before)
		s := openSink(t, file.SinkConfig{Path: path})
		if err := produce(t, s, []byte("1"))[0]; err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("file of %q: got %q and %v, want %q", before, got, err, want)
		}
	}
}

func TestRecordsOfManyProducersAreWholeLinesInTheOrderOfEach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := openSink(t, file.SinkConfig{Path: path})
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for i := range 500 {
				s.Produce(t.Context(), &streammanager.Record{Value: fmt.Appendf(nil, "%d %d", p, i)}, func(err error) {
					if err != nil {
						t.Errorf("producer %d, record %d: %v", p, i, err)
					}
				})
			}
		})
	}
	wg.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := [4]int{}
	for line := range strings.Lines(string(got)) {
		var p, i int
		if _, err := fmt.Sscanf(line, "%d %d\n", &p, &i); err != nil || i != next[p] {
			t.Fatalf("line %q after %d lines of its producer (%v)", line, next[p], err)
		}
		next[p]++
	}
	if next != [4]int{500, 500, 500, 500} {
		t.Errorf("lines per producer: %v, want 500 of each", next)
	}
}

// failing writes some bytes and then fails.
type failing struct {
	room int
	err  error
}

func (f *failing) Write(b []byte) (int, error) {
	n := min(f.room, len(b))
	f.room -= n
	if n < len(b) {
		return n, f.err
	}
	return n, nil
}

func TestAWriteThatFailsEndsThePipelineForTheRecordAndAllAfterIt(t *testing.T) {
	reason := errors.New("broken pipe")
	s := openSink(t, file.SinkConfig{Path: "-", Stdout: &failing{room: 3, err: reason}})
	for i, wantErr := range []bool{false, true, true} {
		err := produce(t, s, []byte("1"))[0]
		var fatal *event.FatalError
		if wantErr && (!errors.As(err, &fatal) || !errors.Is(err, reason)) || !wantErr && err != nil {
			t.Errorf("record %d: %v, want failure %v", i, err, wantErr)
		}
	}
	if err := s.Health(); !errors.Is(err, reason) {
		t.Errorf("Health: %v, want the reason", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskEndsThePipeline(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("this system has no /dev/full (%v); run the test on Linux", err)
	}
	s := openSink(t, file.SinkConfig{Path: "/dev/full"})
	var fatal *event.FatalError
	if err := produce(t, s, []byte("1"))[0]; !errors.As(err, &fatal) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v, want a fatal error with the reason", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestProduceWaitsForRoomAndGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := openSink(t, file.SinkConfig{Path: "-", Stdout: w})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // passes once everything waits
		defer cancel()
		value := bytes.Repeat([]byte("x"), 1<<20)
		results := make(chan error, 100)
		sent := 0
		for ctx.Err() == nil && sent < cap(results) {
			s.Produce(ctx, &streammanager.Record{Value: value}, func(err error) { results <- err })
			sent++
		}
		if most := s.BufferBytes()>>20 + 2; int64(sent) > most {
			t.Errorf("%d MiB were taken over, want at most %d: what the sink says it buffers, and a line", sent, most)
		}
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the record without room: %v, want its context's end", err)
		}
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close while a write hangs: %v, want the context's end", err)
		}
		go func() { _, _ = io.Copy(io.Discard, r) }()
		for range sent - 1 {
			if err := <-results; err != nil {
				t.Errorf("a record that was taken over: %v", err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		_ = w.Close()
	})
}

func TestARecordAfterCloseIsRefused(t *testing.T) {
	s := openSink(t, file.SinkConfig{Path: filepath.Join(t.TempDir(), "out")})
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := produce(t, s, []byte("1"))[0]; err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// TestAClosedStandardOutputIsRefused promises that nothing is taken for written that went to the null
// device which the Go runtime opens in place of a closed output.
func TestAClosedStandardOutputIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		flag    int
		refused bool
	}{
		{name: "as the runtime opens it", flag: os.O_RDWR, refused: true},
		{name: "as a shell opens it", flag: os.O_WRONLY},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := os.OpenFile(os.DevNull, tt.flag, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			s, err := file.NewSink(file.SinkConfig{Path: "-", Stdout: out})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Open(t.Context())
			if err == nil {
				err = errors.Join(produce(t, s, []byte("1"))...)
			}
			if refused := err != nil && strings.Contains(err.Error(), "standard output is closed"); refused != tt.refused {
				t.Errorf("got %v, want refused %v", err, tt.refused)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
