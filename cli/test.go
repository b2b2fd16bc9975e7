package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/cases"
	"github.com/a0c75104/enricher/pipeline"
)

// testFlags choose what is tested, and how it is told.
type testFlags struct {
	load    loadFlags
	run     string
	verbose bool
}

func (a *app) testCommand() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run the cases in NAME_test.yaml beside each pipeline file, with canned answers and in virtual time",
		Args:  files,
		RunE: func(cmd *cobra.Command, paths []string) error {
			log, err := a.log.logger(a.stderr, slog.LevelError)
			if err != nil {
				return err
			}
			choice, err := regexp.Compile(f.run)
			if err != nil {
				return fmt.Errorf("--run: %w", err)
			}
			suites, err := a.suites(paths, f.load)
			if err != nil {
				return err
			}
			t := &tests{w: a.stdout, log: log, choice: choice, verbose: f.verbose}
			return t.run(cmd.Context(), suites)
		},
	}
	f.load.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.run, "run", "", "only the cases whose name this `REGEXP` matches")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "name the cases that hold too")
	return cmd
}

// suite is a pipeline file with its test file.
type suite struct {
	pipeline *pipeline.Pipeline
	file     *cases.File
}

// suites reads all files and writes every problem of all of them. A pipeline file and its test file are one suite,
// whichever of them is named.
func (a *app) suites(paths []string, f loadFlags) ([]suite, error) {
	var out []suite
	seen := map[string]bool{}
	invalid := false
	for _, path := range paths {
		of, in := cases.Names(path)
		if seen[of] {
			continue
		}
		seen[of] = true
		file, err := cases.Read(in)
		bad, err := a.problems(err)
		if err != nil {
			return nil, err
		}
		o := pipeline.Options{Specs: a.specs, Set: f.set, Overlay: f.overlay}
		if file != nil {
			o.Getenv = file.Getenv(os.LookupEnv)
		}
		p, err := pipeline.Load(of, o)
		worse, err := a.problems(err)
		if err != nil {
			return nil, err
		}
		invalid = invalid || bad || worse
		out = append(out, suite{p, file})
	}
	if invalid {
		return nil, &exitError{status: exitInvalid}
	}
	return out, nil
}

// problems writes the problems of a file, if that is what err is. Any other error is returned.
func (a *app) problems(err error) (bool, error) {
	var problems pipeline.Problems
	switch {
	case err == nil:
		return false, nil
	case !errors.As(err, &problems):
		return false, &exitError{status: exitInvalid, err: err}
	}
	for _, problem := range problems {
		fmt.Fprintln(a.stderr, problem)
	}
	return true, nil
}

// tests runs suites and tells how they went.
type tests struct {
	w       io.Writer
	log     *slog.Logger
	choice  *regexp.Regexp
	verbose bool
}

func (t *tests) run(ctx context.Context, suites []suite) error {
	ran, failing := 0, 0
	for _, s := range suites {
		n, bad, err := t.suite(ctx, s)
		if err != nil {
			return err
		}
		ran, failing = ran+n, failing+bad
	}
	switch {
	case ran == 0:
		return fmt.Errorf("--run %q: no case has such a name", t.choice)
	case failing > 0:
		return &exitError{status: exitFailed}
	}
	return nil
}

// suite runs the cases of one file and returns how many it ran, and how many of them failed.
func (t *tests) suite(ctx context.Context, s suite) (ran, failing int, err error) {
	var open []string
	for name := range s.file.Env {
		open = append(open, name)
	}
	o := cases.Options{Dir: filepath.Dir(s.file.Path), Log: t.log}
	for i := range s.file.Cases {
		c := &s.file.Cases[i]
		if !t.choice.MatchString(c.Name) {
			continue
		}
		if ctx.Err() != nil {
			return ran, failing, failed(errors.New("stopped before all cases were run"))
		}
		ran++
		findings, err := c.Run(new(testing.T), s.pipeline, o)
		if err != nil {
			findings = []cases.Finding{{Text: err.Error()}}
		}
		if len(findings) > 0 {
			failing++
		} else if t.verbose {
			fmt.Fprintf(t.w, "ok    %s: %s\n", s.file.At(i, ""), c.Name)
		}
		for _, f := range findings {
			fmt.Fprintf(t.w, "%s: case %q: %s\n", s.file.At(i, f.Path), c.Name, s.pipeline.Hide(f.Text, open...))
		}
	}
	return ran, failing, t.sum(s, ran, failing)
}

// sum writes the line about a file.
func (t *tests) sum(s suite, ran, failing int) error {
	noun := "cases"
	if ran == 1 {
		noun = "case"
	}
	var err error
	switch {
	case failing > 0:
		_, err = fmt.Fprintf(t.w, "FAIL  %s: %d of %d %s failed\n", s.pipeline.File(), failing, ran, noun)
	case ran > 0:
		_, err = fmt.Fprintf(t.w, "ok    %s: %d %s\n", s.pipeline.File(), ran, noun)
	}
	return written(err)
}
