//go:build unix

package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/test/internal/process"
)

// TestMain is also the program that starts a process and is then killed.
func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST") == "" {
		goleak.VerifyTestMain(m)
		return
	}
	p, err := process.Start(exec.Command("sleep", "600"))
	fmt.Println(p.Pid, err) //nolint:forbidigo // read by the test
	select {}
}

func TestAProcessEndsWithTheOneThatStartedIt(t *testing.T) {
	starter := exec.Command(os.Args[0])
	starter.Env = append(os.Environ(), "PROCESS_TEST=starter")
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(line)[0])
	if err != nil {
		t.Fatalf("the starter said %q", line)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("process %d does not run: %v", pid, err)
	}
	_ = starter.Process.Kill()
	_ = starter.Wait()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for running(pid) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d still runs 20s after the one that started it was killed", pid)
		}
	}
}

// running reports whether a process is there and no zombie, which nobody may wait for in a container.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !os.IsNotExist(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestAStatusSaysHowItEndedAndHowLongThatTook(t *testing.T) {
	p, err := process.Start(exec.Command("sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	p.Pause()
	if !p.Running() {
		t.Error("a paused process has ended")
	}
	p.Kill()
	if status, took := p.Status(); status != -1 || took <= 0 || p.Running() {
		t.Errorf("a killed process ended with %d after %v, want -1 and some time", status, took)
	}
	p, err = process.Start(exec.Command("sh", "-c", "exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	if status, took := p.Status(); status != 3 || took != 0 {
		t.Errorf("ended with %d after %v, want 3, unasked", status, took)
	}
}
