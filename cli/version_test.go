package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var linkerFlags = regexp.MustCompile(`-ldflags '([^']*)'`)

// leaveOut skips a test whose need is not there, save where CI is set.
func leaveOut(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// stamps returns what `make build` has the linker write into the binary.
func stamps(t testing.TB, env []string, vars ...string) string {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		leaveOut(t, "make is not there; install it to see what it stamps into the binary")
	}
	cmd := exec.Command("make", append([]string{"--no-print-directory", "-n", "-C", "..", "build"}, vars...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=")
	cmd.Env = append(cmd.Env, env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	found := linkerFlags.FindSubmatch(out)
	if err != nil || errs.Len() > 0 || found == nil {
		t.Fatalf("%q: %v\n%s%s", cmd.Args, err, out, errs.String())
	}
	return string(found[1])
}

func TestMakeStampsWhatGitKnowsAndNothingWithoutIt(t *testing.T) {
	const prefix = "-X github.com/a0c75104/enricher/cli."
	if got := stamps(t, []string{"GIT_DIR=/nowhere"}); got != prefix+"version= "+prefix+"commit=" {
		t.Errorf("without git: %q", got)
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		leaveOut(t, "this is no checkout that git knows; clone it to see what is stamped")
	}
	got := stamps(t, nil)
	if !strings.HasSuffix(got, prefix+"commit="+strings.TrimSpace(string(head))) || strings.Contains(got, "version= ") {
		t.Errorf("at commit %s it stamps %q", head, got)
	}
}

// A build that go does not stamp says what the linker was told, and what this module's version is.
func TestAProgramSaysItsOwnNameAndWhatItWasMadeFrom(t *testing.T) {
	dir := t.TempDir()
	ownModule(t, dir)
	write(t, dir, "main.go", `package main

import (
	"os"

	"github.com/a0c75104/enricher/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
`)
	output(t, command(dir, "go", "build", "-buildvcs=false", "-o", "mine", "."))
	if got := output(t, command(dir, "mine", "version")); !strings.HasPrefix(got, "mine devel, commit unknown, enricher devel, go1.") {
		t.Errorf("without stamps: %q", got)
	}
	output(t, command(dir, "go", "build", "-buildvcs=false", "-ldflags", stamps(t, nil, "VERSION=v1.2.3", "COMMIT=0abc"), "-o", "mine", "."))
	if got := output(t, command(dir, "mine", "version")); !strings.HasPrefix(got, "mine v1.2.3, commit 0abc, enricher devel, go1.") {
		t.Errorf("with stamps: %q", got)
	}
}
