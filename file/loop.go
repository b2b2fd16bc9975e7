package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errLoop is what a user reads whose sink would feed the source.
var errLoop = errors.New("it is the file that the source reads, and every output would be an input again: write to another file")

// Same reports whether two paths name one file, however they are spelled. Of files that are missing the
// spelling alone can tell. Devices hold nothing that could be read again: they are the same by name only.
func Same(a, b string) bool {
	if clean(a) == clean(b) {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && sameFile(x, y)
}

func clean(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs // cleaned too
	}
	return filepath.Clean(path)
}

func sameFile(x, y os.FileInfo) bool {
	return (x.Mode().IsRegular() || x.Mode()&os.ModeNamedPipe != 0) && os.SameFile(x, y)
}

// checkLoop refuses an output that the source of the pipeline reads, which for standard input and output
// only the open files can tell. It is called before the first byte is written.
func (s *Sink) checkLoop() error {
	out, ok := s.out.(*os.File)
	if !ok || s.cfg.Source.Path == "" {
		return nil
	}
	written, err := out.Stat()
	if err != nil {
		return nil // a write will say what is wrong
	}
	read, err := s.cfg.Source.stat()
	if err != nil || read == nil || !sameFile(read, written) {
		return nil // a source that is not there is not this file
	}
	return fmt.Errorf("%q: %w", s.name, errLoop)
}

// stat returns what the source reads, nil where it is no file.
func (c SourceConfig) stat() (os.FileInfo, error) {
	if c.Path != "-" {
		return os.Stat(c.Path)
	}
	in, ok := c.Stdin.(*os.File)
	if c.Stdin == nil {
		in, ok = os.Stdin, true
	}
	if !ok {
		return nil, nil
	}
	return in.Stat()
}
