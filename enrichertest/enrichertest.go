// Package enrichertest tests pipelines from Go, with functions of your own in them: what `enricher test` does, as a part
// of go test. Each case has its events, the canned answers of HTTP APIs, and what should become of the events. Time is
// virtual, also for the functions: a wait of ten minutes takes none, and time.Now is what the case says.
//
// Cases runs the test file beside a pipeline file:
//
//	func TestWords(t *testing.T) { enrichertest.Cases(t, "words.yaml", wordCount) }
//
// Run runs one case that is written in Go. Both fail the test with what differs.
//
// Goroutines that a function starts belong to the case, and stand still when it has ended. A function that waits for
// the network, or for a goroutine from outside of the case, holds virtual time up: what is asked goes through Env.HTTP,
// which has the canned answers.
package enrichertest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/a0c75104/enricher/cases"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

// What a case is made of. The fields say what the keys of a test file say: see docs/testing.md.
type (
	// Case is what happens, and what should come of it.
	Case = cases.Case
	// Event is one event that is read.
	Event = cases.Event
	// Answer is a canned answer.
	Answer = cases.Answer
	// Output is what should be written.
	Output = cases.Output
	// Failure is an error event that should be written.
	Failure = cases.Failure
	// Dropped says how many events are dropped, or which.
	Dropped = cases.Dropped
	// Text is a value or a body.
	Text = cases.Text
	// Time is a time as RFC 3339 writes it.
	Time = cases.Time
)

// Run runs one case on a pipeline file and fails t with what is not as the case says. specs are the functions beside
// those that are built in. Variables that the file names are those of the environment.
func Run(t *testing.T, file string, c Case, specs ...functions.Spec) {
	t.Helper()
	p, err := pipeline.Load(file, pipeline.Options{Specs: specs})
	if err != nil {
		t.Fatalf("loading %s:\n%v", file, err)
	}
	if c.Name == "" {
		c.Name = t.Name()
	}
	findings, err := c.Run(t, p, cases.Options{})
	report(t, findings, err, p, nil, func(path string) string { return path })
}

// Cases runs the cases of NAME_test.yaml beside a pipeline file, each as a subtest of t.
func Cases(t *testing.T, file string, specs ...functions.Spec) {
	t.Helper()
	of, in := cases.Names(file)
	f, readErr := cases.Read(in)
	o := pipeline.Options{Specs: specs}
	var open []string
	if f != nil {
		o.Getenv = f.Getenv(os.LookupEnv)
		for name := range f.Env {
			open = append(open, name)
		}
	}
	p, loadErr := pipeline.Load(of, o)
	if err := errors.Join(readErr, loadErr); err != nil {
		t.Fatalf("loading %s and its cases:\n%v", of, err)
	}
	for i := range f.Cases {
		t.Run(f.Cases[i].Name, func(t *testing.T) {
			findings, err := f.Cases[i].Run(t, p, cases.Options{Dir: filepath.Dir(in)})
			report(t, findings, err, p, open, func(path string) string { return f.At(i, path) })
		})
	}
}

// reporter is a test as report uses it.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// report fails t with the findings.
func report(t reporter, findings []cases.Finding, err error, p *pipeline.Pipeline, open []string, at func(path string) string) {
	t.Helper()
	if err != nil {
		t.Errorf("running the case: %v", err)
	}
	for _, f := range findings {
		place := at(f.Path)
		if place != "" {
			place += ": "
		}
		t.Errorf("%s%s", place, p.Hide(f.Text, open...))
	}
}
