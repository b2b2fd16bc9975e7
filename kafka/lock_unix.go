//go:build !windows

package kafka

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile opens path for this process alone, and reports whether another one has it. The system frees
// the lock of a process that ends in whatever way.
func lockFile(path string) (f *os.File, taken bool, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("opening its lock: %w", err)
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, errors.Is(err, syscall.EWOULDBLOCK), fmt.Errorf("locking %q: %w", path, err)
	}
	return f, false, nil
}
