//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Need skips the test where no broker can be started, and fails it where CI is set.
func Need(t testing.TB) {
	t.Helper()
	err := Check()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%v; where CI is set these tests are not left out", err)
	default:
		t.Skipf("left out: %v", err)
	}
}

// Check returns what is missing to start brokers and to read back what they hold.
func Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := javaVersion(ctx); err != nil {
		return err
	}
	for _, tool := range []string{"mvn", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("tests on Apache Kafka need JDK 17 or later, mvn and python3: looking for %s: %w", tool, err)
		}
	}
	return nil
}

var majorVersion = regexp.MustCompile(`version "(\d+)[^"]*"`)

// javaVersion returns the version that the Java in PATH tells, if it is new enough.
func javaVersion(ctx context.Context) (string, error) {
	const need = "tests on Apache Kafka need JDK 17 or later"
	out, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: asking java for its version: %w", need, err)
	}
	found := majorVersion.FindSubmatch(out)
	if found == nil {
		return "", errors.New(need + ": java does not tell its version")
	}
	if major, err := strconv.Atoi(string(found[1])); err != nil || major < 17 {
		return "", fmt.Errorf("%s, and not %s", need, found[0])
	}
	return string(found[0]), nil
}
