//go:build !synctests

package kafka_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// tagged runs the test of the same name in a second go test with the build tag synctests. Its locks of the
// client library let virtual time go on; else a goroutine that waits for one stops it for ever.
func tagged(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-tags", "synctests", "-count", "1", "-timeout", "2m", "-v", "-run", "^"+t.Name()+"$", ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("with the build tag synctests: %v\n%s", err, out)
	}
}

func TestASinkIsWellSoonAfterBrokersThatStalled(t *testing.T) { tagged(t) }

func TestACommitWhoseAnswerNeverComesIsNotWrittenAgain(t *testing.T) { tagged(t) }

func TestATransactionOutlivesARebalanceThatTakesLonger(t *testing.T) { tagged(t) }
