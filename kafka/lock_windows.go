package kafka

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errSharingViolation is what Windows answers where another process has a file for itself.
const errSharingViolation = syscall.Errno(32)

// lockFile opens path for this process alone, and reports whether another one has it. The system closes
// the file of a process that ends in whatever way.
func lockFile(path string) (f *os.File, taken bool, err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, false, fmt.Errorf("opening its lock: %w", err)
	}
	const shareNothing = 0
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, shareNothing, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, errors.Is(err, errSharingViolation), fmt.Errorf("locking %q: %w", path, err)
	}
	return os.NewFile(uintptr(h), path), false, nil
}
