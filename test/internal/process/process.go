//go:build unix

// Package process starts processes for tests: brokers and workers that are stopped, killed and paused. None
// of them outlives the test process, however that ends.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a process that was started. Its methods may be called at any time, also when it has ended.
type Process struct {
	// Pid is its id.
	Pid int

	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended; then endedAt holds

	mu      sync.Mutex // guards told
	told    time.Time  // when it was first asked to end
	endedAt time.Time
}

// Start starts cmd in a process group of its own, so that Ctrl-C in a terminal does not reach it. A guard
// beside it kills it when the calling process is gone.
func Start(cmd *exec.Cmd) (*Process, error) {
	own := &syscall.SysProcAttr{Setpgid: true}
	cmd.SysProcAttr = own
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	p := &Process{Pid: cmd.Process.Pid, cmd: cmd, ended: make(chan struct{})}
	// The guard reads until this process, which holds the other end of the pipe, is gone.
	guard := exec.Command("/bin/sh", "-c", fmt.Sprintf("cat >/dev/null; kill -9 %d", p.Pid))
	guard.SysProcAttr = own
	held, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("starting the guard of %s: %w", cmd.Path, err)
	}
	go func() { // ends with the process; whoever started it waits for Ended
		_ = cmd.Wait()
		// The guard and its cat, before the pipe ends and another process may have the id.
		_ = syscall.Kill(-guard.Process.Pid, syscall.SIGKILL)
		_ = guard.Wait()
		_ = held.Close()
		p.endedAt = time.Now()
		close(p.ended)
	}()
	return p, nil
}

// Signal sends s. Of a process that has ended it does nothing.
func (p *Process) Signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told.IsZero() && s != syscall.SIGSTOP && s != syscall.SIGCONT {
		p.told = time.Now()
	}
	_ = p.cmd.Process.Signal(s)
}

// Kill ends it as kill -9 does, and waits for that.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Terminate asks it to end in good order.
func (p *Process) Terminate() { p.Signal(syscall.SIGTERM) }

// Pause stops it where it is, until Continue.
func (p *Process) Pause() { p.Signal(syscall.SIGSTOP) }

// Continue lets a paused process go on.
func (p *Process) Continue() { p.Signal(syscall.SIGCONT) }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// EndedAt waits until the process has ended, and returns when.
func (p *Process) EndedAt() time.Time {
	<-p.ended
	return p.endedAt
}

// Status waits until the process has ended, and returns its exit status, -1 if it was killed, and how long the
// end took from when it was first asked for; 0 if nobody asked.
func (p *Process) Status() (status int, took time.Duration) {
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.told.IsZero() {
		took = p.endedAt.Sub(p.told)
	}
	return p.cmd.ProcessState.ExitCode(), took
}
