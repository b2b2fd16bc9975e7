package enricher_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tests returns the names of the test functions by directory.
func tests(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, f := range goFiles(t) {
		if !strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		dir := filepath.ToSlash(filepath.Dir(f.path))
		if found[dir] == nil {
			found[dir] = map[string]bool{}
		}
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest.MatchString(fn.Name.Name) {
				found[dir][fn.Name.Name] = true
			}
		}
	}
	return found
}

var (
	isTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`)
	cited  = regexp.MustCompile("`([^`]+)`( \\(`([^`]+)`\\))?")
	// files is where the files lie that some tests run one by one.
	files = map[string]string{"TestScripts": "cli/testdata/script", "TestBadFiles": "pipeline/testdata"}
)

// A table of tests that nobody holds to the code promises what no test keeps any more.
func TestTheTestsThatTheDocsCiteAreThere(t *testing.T) {
	text, err := os.ReadFile("docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	known := tests(t)
	_, table, ok := strings.Cut(string(text), "## What went wrong elsewhere")
	if !ok {
		t.Fatal("docs/reliability.md has no table of what went wrong elsewhere")
	}
	_, delivery, _ := strings.Cut(string(text), "## Delivery")
	delivery, _, _ = strings.Cut(delivery, "## ")
	const page = "docs/reliability.md"
	if citations(t, known, page, "", delivery) == 0 {
		t.Error("no test is named for what each delivery promises")
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "seen in" {
			continue
		}
		rows++
		if len(cells) != 3 {
			t.Errorf("a row has %d cells, want 3: %s", len(cells), line)
			continue
		}
		if n := citations(t, known, page, "", cells[2]); n == 0 && !strings.HasPrefix(cells[2], "Not here: ") {
			t.Errorf("%s: want a test, or why it is not here", cells[0])
		}
	}
	if rows < 100 {
		t.Errorf("the table has %d rows", rows)
	}
}

// What the page about http says that it does is shown by a test.
func TestEachRuleOfHTTPNamesATestThatShowsIt(t *testing.T) {
	const page = "docs/http.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	known := tests(t)
	_, table, _ := strings.Cut(string(text), "## Every rule")
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| rule ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "|\n"), " | ")
		if len(cells) != 3 || citations(t, known, page, "functions/asynchttp", cells[2]) == 0 {
			t.Errorf("want a rule, its default, and a test: %s", line)
		}
	}
	if rows < 15 {
		t.Errorf("the table has %d rows", rows)
	}
}

// citations checks the tests that a cell of a page names, `package`: `TestThis` (`file`), `TestThat`; and counts them.
// They are in dir where no package is named.
func citations(t *testing.T, known map[string]map[string]bool, page, dir, cell string) (n int) {
	t.Helper()
	for _, m := range cited.FindAllStringSubmatch(cell, -1) {
		name, file := m[1], m[3]
		if !isTest.MatchString(name) {
			dir = name
			continue
		}
		n++
		if !known[dir][name] {
			t.Errorf("%s cites %s of %q, which is not there", page, name, dir)
		}
		if file == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(files[name], file)); err != nil {
			t.Errorf("%s cites %s: %v", page, file, err)
		}
	}
	return n
}

// wallClock has what may use the time of day, since it is no wait: a clock that is set must not change one. All of
// time.Time's methods that leave the monotonic reading out are looked for.
var wallClock = map[string]string{
	"streammanager/repartition.go":  "carries the time of an event over the repartition topic",
	"streammanager/errorevent.go":   "writes the time of an event and of its failure",
	"streammanager/reader.go":       "notes the time of a record",
	"streammanager/unwrap.go":       "reads back the time of an event",
	"streammanager/lag.go":          "tells the age of an event",
	"streammanager/supervisor.go":   "writes when the next start is",
	"kafka/moment.go":               "tells the times of records that start and until name",
	"functions/asynchttp/hosts.go":  "reads dates of servers, whose difference to the server's own clock is what counts",
	"functions/asynchttp/recent.go": "tells the age of an event",
}

// A wait that is computed from the time of day takes as long as the clock is set back.
func TestNothingIsTimedByTheWallClock(t *testing.T) {
	drops := map[string]bool{
		"UTC": true, "Local": true, "In": true, "Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true,
		"AddDate": true, "ParseTime": true, "Date": true,
	}
	used := map[string]bool{}
	for _, f := range goFiles(t) {
		path := filepath.ToSlash(f.path)
		timed := false
		for _, dir := range []string{"window/", "streammanager/", "kafka/", "file/", "functions/asynchttp/"} {
			timed = timed || strings.HasPrefix(path, dir)
		}
		if !timed || strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !drops[sel.Sel.Name] {
				return true
			}
			used[path] = true
			if wallClock[path] == "" {
				t.Errorf("%s: %s leaves the monotonic clock out: measure with time.Since, or say in wallClock why it is no wait",
					f.set.Position(call.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
	for path := range wallClock {
		if !used[path] {
			t.Errorf("%s uses the wall clock no more: take it out of wallClock", path)
		}
	}
}
