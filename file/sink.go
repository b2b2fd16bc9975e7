package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// pendingBytes bounds what waits to be written; one line over it is admitted alone.
const pendingBytes = 4 << 20

// SinkConfig says where to write.
type SinkConfig struct {
	Path   string    // a file, made where it is missing and appended to, or "-" for Stdout; required
	Stdout io.Writer // written for "-"; nil: os.Stdout

	// Source is what the pipeline reads, where that is a file: a sink does not open the same one. Zero: the
	// pipeline reads something else.
	Source SourceConfig
}

// Sink writes one line per record. Lines are gathered while a write is under way, so that many records
// share one write and one sync.
type Sink struct {
	cfg  SinkConfig
	name string
	out  io.Writer
	file *os.File // nil for "-"
	sync bool     // a regular file

	mu      sync.Mutex // guards what follows
	pending bytes.Buffer
	waiting []func(error)
	err     error         // why nothing can be written any more
	closed  bool          // no more records come
	room    chan struct{} // closed when pending was taken

	wake    chan struct{} // has one element when the writer has something to look at
	stopped chan struct{} // closed when the writer has ended
}

var (
	_ streammanager.Sink     = (*Sink)(nil)
	_ streammanager.Checker  = (*Sink)(nil)
	_ streammanager.Health   = (*Sink)(nil)
	_ streammanager.Buffered = (*Sink)(nil)
)

// NewSink checks cfg. It opens nothing.
func NewSink(cfg SinkConfig) (*Sink, error) {
	name, err := nameOf(cfg.Path, "sink", "stdout")
	if err != nil {
		return nil, err
	}
	if cfg.Stdout == nil {
		cfg.Stdout = os.Stdout
	}
	return &Sink{cfg: cfg, name: name}, nil
}

// Open opens the file for appending. A last line that lacks its line feed, as a crash leaves it, is
// ended first, so that it cannot swallow the next one.
func (s *Sink) Open(context.Context) error {
	s.out = s.cfg.Stdout
	open := s.openPath
	if s.cfg.Path == "-" {
		open = s.checkStdout
	}
	if err := open(); err != nil {
		return event.Fatal(fmt.Errorf("opening a file sink: %w", err))
	}
	s.room, s.wake, s.stopped = make(chan struct{}), make(chan struct{}, 1), make(chan struct{})
	go s.write()
	return nil
}

// errClosedStdout is what a user reads who closed the output, and the few who gave this one on purpose.
var errClosedStdout = errors.New("standard output is closed, or is the null device open for reading too; " +
	"give it a place, or write to the file /dev/null to throw lines away")

// checkStdout refuses an output that the Go runtime put in place of a closed one, since all lines would
// vanish in it. The runtime opens the null device for reading and writing, a shell for writing alone.
func (s *Sink) checkStdout() error {
	f, ok := s.out.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("looking at standard output: %w", err)
	}
	if sink, err := os.Stat(os.DevNull); err != nil || !os.SameFile(info, sink) {
		return s.checkLoop()
	}
	if _, err := f.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		return errClosedStdout
	}
	return nil
}

func (s *Sink) openPath() error {
	f, err := os.OpenFile(s.cfg.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if errors.Is(err, os.ErrPermission) { // a file that may be written and not read
		f, err = os.OpenFile(s.cfg.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	}
	if err != nil {
		return located(err, s.cfg.Path)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.file, s.out, s.sync = f, f, info.Mode().IsRegular()
	if err := s.checkLoop(); err != nil {
		return errors.Join(err, f.Close())
	}
	if !s.sync || info.Size() == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return nil
	}
	if _, err := f.Write([]byte{'\n'}); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// Check refuses a value that cannot be one line.
func (s *Sink) Check(r *streammanager.Record) error {
	if len(r.Value) == 0 && r.Value != nil {
		return event.Rejectf(event.Rejected, "an empty value cannot be a line of %q", s.name)
	}
	if bytes.IndexByte(r.Value, '\n') >= 0 && !json.Valid(r.Value) {
		return event.Rejectf(event.Rejected, "a value that has a line feed and is not JSON cannot be a line of %q", s.name)
	}
	return nil
}

// Produce adds one line. JSON that holds line feeds loses its white space, and nothing else.
func (s *Sink) Produce(ctx context.Context, r *streammanager.Record, done func(error)) {
	if err := s.Check(r); err != nil {
		done(err)
		return
	}
	if err := s.add(ctx, r.Value, done); err != nil {
		done(err)
	}
}

// add waits for room and takes value and done over, or returns why not.
func (s *Sink) add(ctx context.Context, value []byte, done func(error)) error {
	for {
		s.mu.Lock()
		switch {
		case s.err != nil:
			s.mu.Unlock()
			return s.err
		case s.closed:
			s.mu.Unlock()
			return fmt.Errorf("writing to %q: the sink is closed", s.name)
		case s.pending.Len() == 0 || s.pending.Len()+len(value) <= pendingBytes:
			err := s.append(value)
			if err == nil {
				s.waiting = append(s.waiting, done)
			}
			s.mu.Unlock()
			s.signal()
			return err
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// append is called with mu held.
func (s *Sink) append(value []byte) error {
	switch {
	case value == nil:
		s.pending.WriteString("null")
	case bytes.IndexByte(value, '\n') < 0:
		s.pending.Write(value)
	default:
		if err := json.Compact(&s.pending, value); err != nil { // checked before; it writes nothing on error
			return event.Reject(event.Rejected, fmt.Errorf("making one line of a value: %w", err))
		}
	}
	s.pending.WriteByte('\n')
	return nil
}

func (s *Sink) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write writes what is pending until the sink is closed or a write fails.
func (s *Sink) write() {
	defer close(s.stopped)
	var buf bytes.Buffer
	for range s.wake {
		for {
			buf.Reset()
			s.mu.Lock()
			buf, s.pending = s.pending, buf
			waiting, closed, err := s.waiting, s.closed, s.err
			s.waiting = nil
			close(s.room)
			s.room = make(chan struct{})
			s.mu.Unlock()
			if len(waiting) == 0 {
				if closed {
					return
				}
				break
			}
			if err == nil {
				err = s.writeOut(buf.Bytes())
			}
			for _, done := range waiting {
				done(err)
			}
			if buf.Cap() > 4*pendingBytes {
				buf = bytes.Buffer{} // one huge line should not be kept for ever
			}
		}
	}
}

// writeOut writes whole lines. Of a write that failed in the middle nothing is left in the file, so that
// the line it broke off is not read as an event.
func (s *Sink) writeOut(b []byte) error {
	n, err := s.out.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil && s.sync {
		err = s.file.Sync()
	} else if err != nil && s.sync && n > 0 {
		if info, statErr := s.file.Stat(); statErr == nil {
			err = errors.Join(err, s.file.Truncate(info.Size()-int64(n)))
		}
	}
	if err == nil {
		return nil
	}
	err = event.Fatal(fmt.Errorf("writing to %q: %w", s.name, err))
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	return err
}

// Health returns why the sink cannot write.
func (s *Sink) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// BufferBytes bounds what is gathered and what is being written.
func (s *Sink) BufferBytes() int64 { return 2 * pendingBytes }

// Close writes what is pending and closes the file. A write that waits for ever, as to a pipe that
// nobody reads, is left behind when ctx ends.
func (s *Sink) Close(ctx context.Context) error {
	if s.stopped == nil {
		return nil // never opened
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
	select {
	case <-s.stopped:
	case <-ctx.Done():
		return fmt.Errorf("closing %q: a write is still under way: %w", s.name, ctx.Err())
	}
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("closing %q: %w", s.name, err)
	}
	return nil
}
