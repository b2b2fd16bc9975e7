package cli_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience bounds every wait for what must come.
const patience = 90 * time.Second

// invocation splits "[-stdin FILE | -open-stdin] [-closed-stdout] PROGRAM ARG..." into a command. The
// function it returns frees what it holds, after the command has ended.
func invocation(ts *testscript.TestScript, args []string) (*exec.Cmd, func()) {
	var stdin io.Reader
	var stdout io.Writer
	var held []io.Closer
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-stdin":
			f, err := os.Open(ts.MkAbs(args[1]))
			ts.Check(err)
			stdin, held = f, append(held, f)
			args = args[1:]
		case "-open-stdin":
			r, w, err := os.Pipe()
			ts.Check(err)
			stdin, held = r, append(held, r, w)
		case "-closed-stdout":
			r, w, err := os.Pipe()
			ts.Check(err)
			ts.Check(r.Close())
			stdout, held = w, append(held, w)
		default:
			ts.Fatalf("unknown flag %q", args[0])
		}
		args = args[1:]
	}
	cmd := exec.Command(args[0], args[1:]...)
	if path, err := lookPath(ts, args[0]); err == nil {
		cmd.Path, cmd.Err = path, nil
	}
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"), "WORK="+ts.Getenv("WORK"), "TMPDIR="+ts.Getenv("TMPDIR"))
	cmd.Stdin, cmd.Stdout = stdin, stdout
	return cmd, func() {
		for _, c := range held {
			_ = c.Close()
		}
	}
}

// lookPath finds a program on the script's own PATH.
func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for _, dir := range strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		path := dir + "/" + name
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// status runs a command to its end and checks its exit status: status N [flags] PROGRAM ARG...
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N [-stdin FILE] [-closed-stdout] PROGRAM ARG...")
	}
	cmd, free := invocation(ts, args[1:])
	defer free()
	if cmd.Stdout == nil {
		cmd.Stdout = ts.Stdout()
	}
	cmd.Stderr = ts.Stderr()
	ts.Check(cmd.Start())
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	checkStatus(ts, cmd, cmd.Wait(), args[0])
}

func checkStatus(ts *testscript.TestScript, cmd *exec.Cmd, err error, want string) {
	if cmd.ProcessState == nil {
		ts.Fatalf("running %q: %v", cmd.Args, err)
	}
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != want {
		ts.Fatalf("%q ended with status %s (%v), want %s", cmd.Args, got, err, want)
	}
}

// jobs holds the processes of all scripts, by script and name.
var jobs sync.Map

type process struct {
	cmd  *exec.Cmd
	free func()
	done chan error
}

func jobOf(ts *testscript.TestScript, name string) *process {
	j, ok := jobs.Load(ts.Name() + "/" + name)
	if !ok {
		ts.Fatalf("no process %q was started", name)
	}
	return j.(*process)
}

// start starts a process whose output goes to NAME.out and NAME.err: start NAME [flags] PROGRAM ARG...
func start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME [flags] PROGRAM ARG...")
	}
	cmd, free := invocation(ts, args[1:])
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	errs, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = errs
	ts.Check(cmd.Start())
	p := &process{cmd: cmd, done: make(chan error, 1), free: func() {
		free()
		_ = out.Close()
		_ = errs.Close()
	}}
	go func() { p.done <- cmd.Wait() }()
	jobs.Store(ts.Name()+"/"+args[0], p)
	ts.Defer(func() {
		_ = cmd.Process.Kill() // it has ended already, unless the script failed
		p.free()
	})
}

var signals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}

// sendSignal sends signals, one right after the other: signal NAME TERM|INT|KILL...
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: signal NAME TERM|INT|KILL...")
	}
	for _, name := range args[1:] {
		ts.Check(jobOf(ts, args[0]).cmd.Process.Signal(signals[name]))
	}
}

// insist sends a signal again and again until a process has said something: insist NAME TERM|INT REGEXP
func insist(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: insist NAME TERM|INT REGEXP")
	}
	re := regexp.MustCompile(args[2])
	eventually(ts, func() error {
		text, err := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		if err != nil || re.Match(text) {
			return err
		}
		_ = jobOf(ts, args[0]).cmd.Process.Signal(signals[args[1]]) // it may have ended meanwhile
		return fmt.Errorf("%s does not say %q:\n%s", args[0], re, text)
	})
}

// ends waits for the end of a process and checks its exit status: ends NAME N
func ends(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ends NAME STATUS")
	}
	p := jobOf(ts, args[0])
	select {
	case err := <-p.done:
		ts.Logf("%s", ts.ReadFile(args[0]+".err"))
		checkStatus(ts, p.cmd, err, args[1])
	case <-time.After(patience):
		ts.Fatalf("%s has not ended after %v; it said:\n%s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
}

// eventually tries until it works.
func eventually(ts *testscript.TestScript, try func() error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); ; {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			ts.Fatalf("after %v: %v", patience, err)
		}
		<-tick.C
	}
}

// waitFor waits until a file matches: wait-for FILE REGEXP
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: wait-for FILE REGEXP")
	}
	re := regexp.MustCompile(args[1])
	eventually(ts, func() error {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && !re.Match(text) {
			err = fmt.Errorf("%s does not match %q:\n%s", args[0], re, text)
		}
		return err
	})
}

var served = regexp.MustCompile(`url=(http://\S+)`)

// httpGet asks a process until the answer is right: http-get NAME PATH STATUS REGEXP
func httpGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: http-get NAME PATH STATUS REGEXP")
	}
	re := regexp.MustCompile("(?m)" + args[3])
	eventually(ts, func() error {
		log, err := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		if err != nil {
			return err
		}
		url := served.FindSubmatch(log)
		if url == nil {
			return fmt.Errorf("%s has not said where it serves:\n%s", args[0], log)
		}
		res, err := http.Get(string(url[1]) + args[1])
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err == nil && (strconv.Itoa(res.StatusCode) != args[2] || !re.Match(body)) {
			err = fmt.Errorf("%s answered %d, want %s and %q:\n%s", args[1], res.StatusCode, args[2], re, body)
		}
		return err
	})
}

// serves puts the address at which a process serves into a variable, once it says it: serves VARIABLE NAME
func serves(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: serves VARIABLE NAME")
	}
	eventually(ts, func() error {
		log, err := os.ReadFile(ts.MkAbs(args[1] + ".err"))
		if err != nil {
			return err
		}
		url := served.FindSubmatch(log)
		if url == nil {
			return fmt.Errorf("%s has not said where it serves:\n%s", args[1], log)
		}
		ts.Setenv(args[0], string(url[1]))
		return nil
	})
}

// busyPort takes a port until the end of the script and puts its address into a variable; with an
// address it takes that one, or knows that somebody else keeps it; who has it only for a moment, as another
// script may, is waited for: busy-port VARIABLE [ADDRESS]
func busyPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: busy-port VARIABLE [ADDRESS]")
	}
	addr := "127.0.0.1:0"
	if len(args) == 2 {
		addr = args[1]
	}
	l, err := net.Listen("tcp", addr)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(limit); <-tick.C {
		l, err = net.Listen("tcp", addr)
	}
	if err != nil {
		ts.Setenv(args[0], addr)
		return
	}
	ts.Setenv(args[0], l.Addr().String())
	ts.Defer(func() { _ = l.Close() })
}
