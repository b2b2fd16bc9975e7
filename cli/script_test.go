package cli_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){
		"enricher": func() { os.Exit(cli.Main(os.Args[1:])) }, //nolint:forbidigo // the command itself, as main runs it
		// custom is a program with functions of its own.
		"custom": func() { os.Exit(cli.Main(os.Args[1:], shout, fails)) }, //nolint:forbidigo // as the main of a user
		// doubled is a program that knows one function twice.
		"doubled": func() { os.Exit(cli.Main(os.Args[1:], shout, shout)) }, //nolint:forbidigo // as the main of a user
	})
}

// leakless fails the tests that leave a goroutine behind.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": status, "start": start, "signal": sendSignal, "ends": ends, "wait-for": waitFor, "http-get": httpGet, "busy-port": busyPort,
			"insist": insist, "serves": serves,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
