// Package cli is the command enricher: it parses the command line, loads pipeline files, runs their
// streams in one process behind its gateway, asks the gateways of others, and turns what happened into an exit
// status. What a pipeline file means is package pipeline's; the demonstration is package demo's.
//
// A program with functions of its own is one line:
//
//	func main() { os.Exit(cli.Main(os.Args[1:], htmldiff.Spec)) }
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/functions"
)

// The exit statuses.
const (
	exitOK      = 0  // finished, or stopped as asked
	exitFailed  = 1  // failed while running
	exitUsage   = 2  // wrong usage
	exitInvalid = 78 // invalid configuration
)

// exitError ends the command with a status. Its text has been said where it belongs if err is nil.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("status %d", e.status)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

func failed(err error) error { return &exitError{status: exitFailed, err: err} }

// sameStop is the time in which a second signal belongs to the first: timeout(1) and shells signal the
// process and then its whole group, and nobody has changed their mind that soon.
const sameStop = 500 * time.Millisecond

// Main runs the command on the process's own streams and signals, with the functions of the user beside
// those that are built in, and returns the exit status. The first SIGINT or SIGTERM drains, one that
// comes later than half a second after it returns at once. The command calls itself as its file is named.
func Main(args []string, specs ...functions.Spec) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	// Without this a reader of standard output that goes away kills the process where it stands; so it
	// is an error of the write, with a reason and a status.
	signal.Ignore(syscall.SIGPIPE)

	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	status := make(chan int, 1)
	go func() { status <- Run(ctx, args, os.Stdin, os.Stdout, os.Stderr, specs...) }()
	for stopping := (time.Time{}); ; {
		select {
		case s := <-status:
			return s
		case sig := <-signals:
			switch {
			case stopping.IsZero():
				stopping = time.Now()
				stop(fmt.Errorf("signal: %v", sig))
			case time.Since(stopping) >= sameStop:
				fmt.Fprintf(os.Stderr, "%s: a second signal (%v): leaving at once\n", program(), sig)
				return exitFailed
			}
		}
	}
}

// program is what the command calls itself: a program with functions of its own is no enricher.
func program() string { return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") }

// Run runs the command until it has finished or ctx ends, which drains, and returns the exit status.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, specs ...functions.Spec) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, specs: specs}
	root := a.command()
	root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		fmt.Fprintf(stderr, "%[1]s: %[2]v\nRun %[1]s --help for the commands and flags.\n", program(), err)
		return exitUsage
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program(), exit.err)
	}
	return exit.status
}

// app is one run of the command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	specs          []functions.Spec
	log            logFlags
}

// command makes the tree of commands. An error of theirs that is no exitError is wrong usage.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           program(),
		Short:         "Enrich events from Kafka by calling something slow for each of them",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("a command is missing")
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	a.log.register(root)
	root.AddCommand(a.runCommand(), a.validateCommand(), a.tryCommand(), a.testCommand(), a.replayCommand(), a.jobCommand(), a.demoCommand(), a.schemaCommand(), a.functionsCommand(), a.versionCommand())
	return root
}
