package cli_test

import (
	"bufio"
	"bytes"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// block is a fenced block of a page. What stands behind its language is the file that it is.
type block struct{ language, name, text string }

var fence = regexp.MustCompile("(?ms)^```(\\w+) ?(\\S*)\n(.*?)^```$")

// blocksOf returns the fenced blocks of a page. want is how many the page has of each language, so that
// none is left out unseen.
func blocksOf(t *testing.T, page string, want map[string]int) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []block
	got := map[string]int{}
	for _, m := range fence.FindAllSubmatch(text, -1) {
		found = append(found, block{string(m[1]), string(m[2]), string(m[3])})
		got[string(m[1])]++
	}
	for language, n := range want {
		if got[language] != n {
			t.Errorf("%s has %d blocks of %s, this test knows %d", page, got[language], language, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has blocks of %v, this test knows %v", page, got, want)
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

// reader does what a page says, as its reader would: in a directory beside the checkout, which is called
// enricher there, with the program on the PATH.
type reader struct {
	t    *testing.T
	dir  string // where the reader is
	path string
	env  []string
}

// newReader starts one who has the program in bin.
func newReader(t *testing.T, bin string, env ...string) *reader {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(root, filepath.Join(dir, "enricher")); err != nil {
		t.Fatal(err)
	}
	return &reader{t: t, dir: dir, path: bin + string(os.PathListSeparator) + os.Getenv("PATH"), env: env}
}

// follow makes the files of a page and runs its commands, in their order, and compares what they print.
func (r *reader) follow(blocks []block) {
	r.t.Helper()
	for _, b := range blocks {
		switch {
		case b.name != "":
			write(r.t, r.dir, b.name, b.text)
		case b.language == "sh":
			r.session(b.text, "")
		case b.language == "console":
			r.console(b.text)
		case b.language == "yaml": // a part of a file: it is valid in one
			write(r.t, r.dir, "part.yaml", b.text)
			cmd := r.sh("enricher validate --allow-unset --overlay part.yaml enricher/examples/page-content.yaml")
			if said, err := cmd.CombinedOutput(); err != nil {
				r.t.Errorf("%s\nis not valid in a pipeline file: %v\n%s", b.text, err, said)
			}
		default:
			r.t.Fatalf("a block of %s has no name:\n%s", b.language, b.text)
		}
	}
}

// console runs the lines that begin with a prompt; the others are what they print.
func (r *reader) console(text string) {
	r.t.Helper()
	var commands, prints strings.Builder
	stopped := false
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "$ "); ok {
			commands.WriteString(rest)
		} else if line == "^C\n" {
			stopped = true
		} else {
			prints.WriteString(line)
		}
	}
	if stopped {
		r.interrupted(commands.String(), prints.String())
		return
	}
	r.session(commands.String(), prints.String())
}

func (r *reader) sh(commands string) *exec.Cmd {
	cmd := exec.Command("sh", "-e", "-c", commands)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), "PATH="+r.path), r.env...)
	return cmd
}

// session runs commands in one shell; the reader stays where they lead.
func (r *reader) session(commands, want string) {
	r.t.Helper()
	place := filepath.Join(r.t.TempDir(), "place")
	if got := output(r.t, r.sh(commands+"\npwd >'"+place+"'")); got != want {
		r.t.Errorf("%s\nprints\n%swant\n%s", commands, got, want)
	}
	dir, err := os.ReadFile(place)
	if err != nil {
		r.t.Fatal(err)
	}
	r.dir = strings.TrimSpace(string(dir))
}

// interrupted runs a command that does not end by itself until it has printed what it should, in any order.
func (r *reader) interrupted(line, want string) {
	r.t.Helper()
	feed, run, _ := strings.Cut(strings.TrimSpace(line), " | ")
	cmd := r.sh("exec " + run)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(output(r.t, r.sh(feed))), &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	wanted, got := sortedLines(want), []string(nil)
	lines := bufio.NewReader(out)
	for len(got) < len(wanted) {
		l, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		got = append(got, l)
	}
	_ = cmd.Process.Signal(os.Interrupt) // one that has ended fails below
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		r.t.Errorf("%s\nends with %v\n%s", line, err, &errs)
	}
	if got = append(got, sortedLines(string(rest))...); !slices.Equal(sortedLines(strings.Join(got, "")), wanted) {
		r.t.Errorf("%s\nprints\n%q\nwant\n%q\n%s", line, got, wanted, &errs)
	}
}

func sortedLines(text string) []string { return slices.Sorted(strings.Lines(text)) }

// The reader of a page gets what it shows: its files are valid, its commands print what it says, and its
// functions build in a module of their own, outside the checkout, and work from YAML.
func TestThePagesShowWhatWorks(t *testing.T) {
	bin := t.TempDir()
	output(t, command("..", "go", "build", "-o", filepath.Join(bin, "enricher"), "./cmd/enricher"))
	t.Run("README", func(t *testing.T) { followREADME(t, bin) })
	t.Run("operations", func(t *testing.T) { followOperations(t, bin) })
	t.Run("functions", func(t *testing.T) { followFunctions(t, bin) })
	t.Run("http", func(t *testing.T) { followHTTP(t, bin) })
	t.Run("testing", func(t *testing.T) {
		newReader(t, bin).follow(blocksOf(t, "../docs/testing.md", map[string]int{"yaml": 2, "console": 3}))
	})
}

func followREADME(t *testing.T, bin string) {
	r := newReader(t, bin)
	blocks := blocksOf(t, "../README.md", map[string]int{"sh": 2, "yaml": 3, "console": 2, "go": 1})
	start := r.dir
	r.follow(blocks[1:]) // the first has the targets of the Makefile
	output(t, r.sh("enricher validate ../page-content.yaml ../lines.yaml"))
	if want := filepath.Join(start, "words"); !sameFile(r.dir, want) {
		t.Errorf("the README ends in %s, want %s", r.dir, want)
	}

	if got := output(t, r.sh("./words functions word_count")); !strings.Contains(got, "default .words") {
		t.Errorf("functions says %q, want the option's default", got)
	}
	run := r.sh("./words run --log-level=warn --set on_error=drop words.yaml")
	run.Stdin = strings.NewReader("{\"title\":\"three small words\"}\n{\"title\":7}\n{\"name\":\"no title\"}\n")
	var errs bytes.Buffer
	run.Stderr = &errs
	got, err := run.Output()
	if want := "{\"title\":\"three small words\",\"words\":3}\n"; err != nil || string(got) != want {
		t.Errorf("the README's function made %q (%v), want %q", got, err, want)
	}
	for _, want := range []string{"type=not_text", `type=missing_field function=process[0].word_count err=".title is missing"`} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("the README's function leaves out %q of:\n%s", want, &errs)
		}
	}
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// The targets that the README names exist, and the last leaves the program where the PATH is said to be.
func TestTheREADMENamesTargetsOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	first := blocksOf(t, "../README.md", map[string]int{"sh": 2, "yaml": 3, "console": 2, "go": 1})[0]
	targets := 0
	for line := range strings.Lines(first.text) {
		words := strings.Fields(line)
		if words[0] != "make" {
			continue
		}
		targets++
		if !bytes.Contains(makefile, []byte("\n"+words[1]+":")) {
			t.Errorf("%q: the Makefile has no target %q", line, words[1])
		}
	}
	if targets != 3 {
		t.Errorf("the README names %d targets, want 3:\n%s", targets, first.text)
	}
	if !strings.HasSuffix(first.text, "\nexport PATH=$PWD/bin:$PATH\n") || !bytes.Contains(makefile, []byte(" -o bin/enricher ")) {
		t.Errorf("after these commands the program is not on the PATH:\n%s", first.text)
	}
}

// authority returns a certificate that servers may be checked against.
func authority(t *testing.T) string {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func followOperations(t *testing.T, bin string) {
	r := newReader(t, bin, "KAFKA_USER=me")
	write(t, r.dir, "kafka.password", "open sesame\n")
	write(t, r.dir, "ca.pem", authority(t))
	r.follow(blocksOf(t, "../docs/operations.md", map[string]int{"yaml": 8, "console": 2}))
	said := output(t, r.sh("enricher validate secure.yaml feed.yaml job.yaml errors.yaml failing.yaml"))
	if strings.Count(said, ": ok; ") != 5 {
		t.Errorf("validate says\n%s", said)
	}
}

func followFunctions(t *testing.T, bin string) {
	api := newRatings()
	defer api.Close()
	r := newReader(t, bin, "API="+api.URL, "API_KEY=open sesame")
	blocks := blocksOf(t, "../docs/functions.md", map[string]int{"sh": 1, "go": 5, "yaml": 4, "console": 4})
	r.follow(blocks)
	output(t, r.sh("for f in clip share rating; do ./mine validate $f.yaml; done")) // each reads standard input

	var said bytes.Buffer
	bad := r.sh("./mine validate --set process[0].clip.most=2 clip.yaml")
	bad.Stderr = &said
	if err := bad.Run(); err == nil || !strings.Contains(said.String(), "process[0].clip.most: leaves no room beside the mark") {
		t.Errorf("validate ends with %v and says\n%s", err, &said)
	}
	if got := api.Config.Handler.(*ratings).busy.Load(); got != 1 {
		t.Errorf("the API was busy %d times, want once, so that a try was made again", got)
	}
}

// ratings is an API that has rated one title, and is busy when it is first asked.
type ratings struct{ busy atomic.Int32 }

func newRatings() *httptest.Server { return httptest.NewServer(&ratings{}) }

func (a *ratings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer open sesame":
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Query().Get("of") != "Cats & Dogs":
		w.WriteHeader(http.StatusNotFound)
	case a.busy.CompareAndSwap(0, 1):
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		_, _ = io.WriteString(w, `{"stars":4}`)
	}
}

var placed = regexp.MustCompile("`([a-z][a-z.]*(?:/[a-z]+)+(?:\\.[a-z]+)*)`")

// The places where ARCHITECTURE.md says that changes go are there.
func TestTheArchitectureNamesPlacesThatAreThere(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	places := placed.FindAllSubmatch(text, -1)
	if len(places) < 15 {
		t.Errorf("found %d places in ARCHITECTURE.md, want those of all changes", len(places))
	}
	for _, m := range places {
		if _, err := os.Stat(filepath.Join("..", string(m[1]))); err != nil {
			t.Errorf("ARCHITECTURE.md names a place that is not there: %v", err)
		}
	}
}
