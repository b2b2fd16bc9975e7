package secrets

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Read reads a secret; one newline at its end does not belong to it. An empty one is an error.
func Read(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("%q is empty", path)
	}
	return secret, nil
}

// readAgain is how long a File goes by what it has read.
const readAgain = time.Second

// File is a secret in a file that may be replaced at any time. It may be used by many goroutines.
type File struct {
	path string

	mu   sync.Mutex // guards the rest
	text string     // "": not read, or not to be read
	at   time.Time
}

// NewFile opens nothing.
func NewFile(path string) *File { return &File{path: path} }

// Text returns what the file held within the last second.
func (f *File) Text() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text != "" && time.Since(f.at) < readAgain {
		return f.text, nil
	}
	return f.read()
}

// Fresh returns what the file holds now.
func (f *File) Fresh() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read()
}

// read is called with the lock held.
func (f *File) read() (string, error) {
	text, err := Read(f.path)
	f.text, f.at = text, time.Now()
	return text, err
}
