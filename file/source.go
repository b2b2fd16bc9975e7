package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// DefaultMaxLineBytes bounds one line where SourceConfig leaves it out.
const DefaultMaxLineBytes = 64 << 20

// SourceConfig says what to read.
type SourceConfig struct {
	Path         string    // a file, or "-" for Stdin; required
	MaxLineBytes int64     // a longer line ends the pipeline; 0: DefaultMaxLineBytes
	Stdin        io.Reader // read for "-"; nil: os.Stdin
}

// Source reads the lines of a file once.
type Source struct {
	cfg     SourceConfig
	name    string
	regular bool // reads do not wait for anybody, so Poll does them, and lines can be read again

	file  *os.File // of a regular file
	lines *lines

	batches chan batch // of anything else: filled by feed
	rest    batch
	stop    chan struct{}

	mu       sync.Mutex // guards rewindTo
	rewindTo int64      // the line to read next, 0: go on
}

type batch struct {
	records []streammanager.Record
	err     error
}

var (
	_ streammanager.Source   = (*Source)(nil)
	_ streammanager.Rewinder = (*Source)(nil)
	_ streammanager.Buffered = (*Source)(nil)
)

// NewSource checks cfg. It opens nothing.
func NewSource(cfg SourceConfig) (*Source, error) {
	name, err := nameOf(cfg.Path, "source", "stdin")
	if err != nil {
		return nil, err
	}
	if cfg.MaxLineBytes < 0 {
		return nil, fmt.Errorf("the bound of a line is %d bytes, which is less than 1", cfg.MaxLineBytes)
	}
	if cfg.MaxLineBytes == 0 {
		cfg.MaxLineBytes = DefaultMaxLineBytes
	}
	if cfg.Stdin == nil {
		cfg.Stdin = os.Stdin
	}
	return &Source{cfg: cfg, name: name}, nil
}

// Topic is the name that the records carry: the path, or "stdin".
func (s *Source) Topic() string { return s.name }

// Open opens the file. A file that is missing or may not be read ends the pipeline.
func (s *Source) Open(_ context.Context, a streammanager.Assignments) error {
	s.stop = make(chan struct{})
	if s.cfg.Path == "-" {
		s.feed(func() (io.Reader, error) { return s.cfg.Stdin, nil })
	} else if err := s.openPath(); err != nil {
		return event.Fatal(err)
	}
	a.Assigned(map[streammanager.TopicPartition]streammanager.Position{{Topic: s.name}: {Offset: 1}})
	return nil
}

func (s *Source) openPath() error {
	info, err := os.Stat(s.cfg.Path)
	switch {
	case err != nil:
		return fmt.Errorf("opening a file source: %w", located(err, s.cfg.Path))
	case info.IsDir():
		return fmt.Errorf("opening a file source: %q is a directory", s.cfg.Path)
	case !info.Mode().IsRegular():
		// Opening a named pipe waits for its writer.
		s.feed(func() (io.Reader, error) { return os.Open(s.cfg.Path) })
		return nil
	}
	f, err := os.Open(s.cfg.Path)
	if err != nil {
		return fmt.Errorf("opening a file source: %w", err)
	}
	s.regular, s.file, s.lines = true, f, newLines(f, s.name, s.cfg.MaxLineBytes)
	return nil
}

// feed starts the goroutine that reads what may keep a reader waiting for ever. Such a read cannot be
// interrupted, so Close does not wait for it: the goroutine ends with the read, which is at the latest
// when the process does.
func (s *Source) feed(open func() (io.Reader, error)) {
	batches, stop := make(chan batch), s.stop
	s.batches = batches
	go func() {
		in, err := open()
		if c, ok := in.(io.Closer); ok && s.cfg.Path != "-" && err == nil {
			defer func() { _ = c.Close() }() // read only: nothing can be lost
		}
		lines := newLines(in, s.name, s.cfg.MaxLineBytes)
		for {
			var b batch
			if b.err = err; err == nil {
				b.records, b.err = lines.next(batchLines)
			}
			select {
			case batches <- b:
			case <-stop:
				return
			}
			if b.err != nil {
				return
			}
		}
	}()
}

// Poll returns the next lines, and io.EOF after the last.
func (s *Source) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	if err := ctx.Err(); err != nil {
		return streammanager.Polled{}, err
	}
	if err := s.rewind(); err != nil {
		return streammanager.Polled{}, event.Fatal(err)
	}
	if s.regular {
		records, err := s.lines.next(limit)
		return streammanager.Polled{Records: records}, s.explain(err)
	}
	if len(s.rest.records) == 0 && s.rest.err == nil {
		select {
		case s.rest = <-s.batches:
		case <-ctx.Done():
			return streammanager.Polled{}, ctx.Err()
		}
	}
	n := min(limit, len(s.rest.records))
	records := s.rest.records[:n]
	s.rest.records = s.rest.records[n:]
	return streammanager.Polled{Records: records}, s.explain(s.rest.err)
}

func (s *Source) explain(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return event.Fatal(fmt.Errorf("reading %q: %w", s.name, err))
}

// Rewind makes the next Poll start at a line that was already read.
func (s *Source) Rewind(offsets map[streammanager.TopicPartition]int64) {
	if line, ok := offsets[streammanager.TopicPartition{Topic: s.name}]; ok {
		s.mu.Lock()
		s.rewindTo = max(line, 1)
		s.mu.Unlock()
	}
}

func (s *Source) rewind() error {
	s.mu.Lock()
	line := s.rewindTo
	s.rewindTo = 0
	s.mu.Unlock()
	if line == 0 {
		return nil
	}
	if !s.regular {
		return fmt.Errorf("reading %q again from line %d: only a regular file can be read twice", s.name, line)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading %q again from line %d: %w", s.name, line, err)
	}
	s.lines = newLines(s.file, s.name, s.cfg.MaxLineBytes)
	var buf []byte
	for s.lines.last+1 < line {
		var err error
		if buf, err = s.lines.line(buf[:0]); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading %q again from line %d: %w", s.name, line, err)
		} else if err != nil {
			return nil // the next read says io.EOF
		}
	}
	return nil
}

// BufferBytes bounds what is read ahead of Poll, save for one line that is longer.
func (s *Source) BufferBytes() int64 { return 2 * batchBytes }

// Close frees the file.
func (s *Source) Close(context.Context) {
	if s.stop == nil {
		return
	}
	close(s.stop)
	s.stop = nil
	if s.file != nil {
		_ = s.file.Close() // read only: nothing can be lost
	}
}

// located adds to err where a relative path led, which depends on where the program was started.
func located(err error, path string) error {
	abs, absErr := filepath.Abs(path)
	if absErr != nil || filepath.IsAbs(path) {
		return err
	}
	return fmt.Errorf("%w: looked for at %q", err, abs)
}
