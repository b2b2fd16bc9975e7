package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// snippets returns the fenced blocks of the README, by language, in order.
func snippets(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, m := range fence.FindAllSubmatch(text, -1) {
		found[string(m[1])] = append(found[string(m[1])], string(m[2]))
	}
	for language, n := range map[string]int{"yaml": 3, "console": 1, "go": 1, "sh": 1} {
		if len(found[language]) != n {
			t.Fatalf("the README has %d blocks of %s, this test knows %d", len(found[language]), language, n)
		}
	}
	return found
}

// command makes a command in dir, whose programs come first.
func command(dir, name string, args ...string) *exec.Cmd {
	if own := filepath.Join(dir, name); fileExists(own) {
		name = own
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "PWD="+dir)
	return cmd
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, errs.String())
	}
	return string(out)
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The reader of the README gets what it shows: its files are valid, its console says what it says, and
// its function builds in a module of its own and works from YAML.
func TestTheREADMEWorks(t *testing.T) {
	found := snippets(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	output(t, command(root, "go", "build", "-o", filepath.Join(dir, "enricher"), "./cmd/enricher"))
	for i, name := range []string{"page-content.yaml", "lines.yaml", "words.yaml"} {
		write(t, dir, name, found["yaml"][i])
	}
	output(t, command(dir, "enricher", "validate", "page-content.yaml", "lines.yaml"))

	shown := strings.SplitN(strings.TrimPrefix(found["console"][0], "$ "), "\n", 2)
	if got := output(t, command(dir, "sh", "-c", shown[0])); got != shown[1] {
		t.Errorf("%s\nprints\n%swant\n%s", shown[0], got, shown[1])
	}

	ownModule(t, dir)
	write(t, dir, "main.go", found["go"][0])
	output(t, command(dir, "go", "build", "-o", "words", "."))
	if got := output(t, command(dir, "words", "functions", "word_count")); !strings.Contains(got, "default .words") {
		t.Errorf("functions says %q, want the option's default", got)
	}
	run := command(dir, "words", "run", "--log-level=error", "--set", "on_error=drop", "words.yaml")
	run.Stdin = strings.NewReader("{\"title\":\"three small words\"}\n{\"title\":7}\n")
	if got, want := output(t, run), "{\"title\":\"three small words\",\"words\":3}\n"; got != want {
		t.Errorf("the README's function made %q, want %q", got, want)
	}
}

// The targets that the README names exist.
func TestTheREADMENamesTargetsOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(snippets(t)["sh"][0]), "\n") {
		target := strings.Fields(line)[1]
		if !bytes.Contains(makefile, []byte("\n"+target+":")) {
			t.Errorf("%q: the Makefile has no target %q", line, target)
		}
	}
}
