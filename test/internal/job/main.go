//go:build unix

package job

import (
	"fmt"
	"os"

	"go.uber.org/goleak"
)

// Main builds commands, each into the path that it is named by, runs the tests, and returns the status for TestMain: 1
// also where goroutines are left.
func Main(commands map[*string]string, tests func() int) int {
	dir, err := os.MkdirTemp("", "suites")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for binary, pkg := range commands {
		if *binary, err = Build(dir, pkg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	status := tests()
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			return 1
		}
	}
	return status
}
