//go:build unix

package kafka_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// report is what all suites found.
var report table

type table struct {
	mu    sync.Mutex // guards lines
	lines []line
}

// line is what a suite found.
type line struct {
	suite                                               string
	rounds, events, lost, repeated, allowed, disordered int
	stall                                               time.Duration // zero: was not measured
	keyless                                             bool          // events have no key that they could be out of the order of
}

const (
	tableHead  = "| suite | rounds | events | lost | duplicated | allowed at most | out of order | longest stall |\n|---|---|---|---|---|---|---|---|\n"
	tableBegin = "<!-- chaos: begin -->\n"
	tableEnd   = "<!-- chaos: end -->"
)

// add adds what a suite found to what it has found before, if it has.
func (r *table) add(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.lines {
		if was := &r.lines[i]; was.suite == l.suite {
			was.rounds, was.events, was.lost, was.repeated = was.rounds+l.rounds, was.events+l.events, was.lost+l.lost, was.repeated+l.repeated
			was.allowed, was.disordered = was.allowed+l.allowed, was.disordered+l.disordered
			was.stall, was.keyless = max(was.stall, l.stall), was.keyless && l.keyless
			return
		}
	}
	r.lines = append(r.lines, l)
}

// String returns the table, by the names of the suites.
func (r *table) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rows []string
	for _, l := range r.lines {
		stall, disordered := "", ""
		if l.stall > 0 {
			stall = l.stall.Round(10 * time.Millisecond).String()
		}
		if !l.keyless {
			disordered = fmt.Sprint(l.disordered)
		}
		rows = append(rows, fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %s | %s |\n", inWords(l.suite), l.rounds, l.events, l.lost, l.repeated,
			l.allowed, disordered, stall))
	}
	slices.Sort(rows)
	return tableHead + strings.Join(rows, "")
}

var word = regexp.MustCompile("[A-Z][a-z]*")

// inWords returns the name of a test as a reader would say it.
func inWords(test string) string {
	name, sub, _ := strings.Cut(strings.TrimPrefix(test, "Test"), "/")
	name = strings.ToLower(strings.Join(word.FindAllString(name, -1), " "))
	if sub != "" {
		name += ": " + strings.ReplaceAll(sub, "_", " ")
	}
	return name
}

// write prints the table, in full runs, and writes it to file, if that is named. Of a file that has the marks of a table
// it replaces what is between them, and only where all suites passed: the documentation promises what stands there.
func (r *table) write(file string, passed bool) error {
	text := r.String()
	if text == tableHead {
		return nil
	}
	if *full {
		fmt.Fprint(os.Stdout, text)
	}
	if file == "" {
		return nil
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if before, rest, ok := strings.Cut(string(old), tableBegin); ok {
		if !passed {
			return fmt.Errorf("%s keeps its table, since a suite failed", file)
		}
		_, after, ok := strings.Cut(rest, tableEnd)
		if !ok {
			return fmt.Errorf("%s has %q and no %q behind it: add it", file, tableBegin, tableEnd)
		}
		text = before + tableBegin + text + tableEnd + after
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func TestTheTableReplacesTheOneThatStandsInTheDocs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "docs.md")
	must(t, os.WriteFile(file, []byte("before\n"+tableBegin+"old\n"+tableEnd+"\nafter\n"), 0o600))
	var r table
	must(t, r.write(file, true)) // nothing was found, and the table stays
	r.add(line{suite: "TestOfAThing/one_way,_and_more", rounds: 2, events: 3, repeated: 1, allowed: 4, stall: 1234 * time.Millisecond})
	r.add(line{suite: "TestAnother", rounds: 1, events: 5, lost: 6, disordered: 7})
	r.add(line{suite: "TestAnother", rounds: 2, events: 10, lost: 1, repeated: 3, allowed: 4, disordered: 1, stall: time.Second, keyless: true})
	r.add(line{suite: "TestOfNoKeys", rounds: 1, events: 1, keyless: true})
	if err := r.write(file, false); err == nil {
		t.Error("a run that failed writes to the docs, want an error")
	}
	was, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(was), "old\n") {
		t.Errorf("the table is gone:\n%s", was)
	}
	must(t, r.write(file, true))
	table := tableHead + "| another | 3 | 15 | 7 | 3 | 4 | 8 | 1s |\n| of a thing: one way, and more | 2 | 3 | 0 | 1 | 4 | 0 | 1.23s |\n" +
		"| of no keys | 1 | 1 | 0 | 0 | 0 |  |  |\n"
	got, err := os.ReadFile(file)
	must(t, err)
	if want := "before\n" + tableBegin + table + tableEnd + "\nafter\n"; string(got) != want {
		t.Errorf("wrote\n%s\nwant\n%s", got, want)
	}
	plain := filepath.Join(t.TempDir(), "report.md")
	must(t, r.write(plain, false))
	if got, err = os.ReadFile(plain); err != nil || string(got) != table {
		t.Errorf("wrote %q, %v; want the table", got, err)
	}
}

// The table in the docs is one that a run has written: it has the same columns, and its rows are suites.
func TestTheTableInTheDocsIsOneThatSuitesWrite(t *testing.T) {
	text, err := os.ReadFile("../../docs/reliability.md")
	must(t, err)
	_, table, _ := strings.Cut(string(text), tableBegin)
	table, _, ok := strings.Cut(table, tableEnd)
	rows, headed := strings.CutPrefix(table, tableHead)
	if !ok || !headed || rows == "" {
		t.Fatalf("docs/reliability.md has no table with the head\n%s", tableHead)
	}
	suites := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, f := range files {
		code, err := os.ReadFile(f)
		must(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(string(code), -1) {
			suites[inWords(m[1])] = true
		}
	}
	for row := range strings.Lines(rows) {
		name, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		if name, _, _ = strings.Cut(name, ": "); !suites[name] || strings.Count(row, "|") != strings.Count(tableHead, "|")/2 {
			t.Errorf("docs/reliability.md has a row that no suite writes: %s", row)
		}
	}
}
