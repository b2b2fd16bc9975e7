package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

func (a *app) validateCommand() *cobra.Command {
	var load loadFlags
	var allowUnset bool
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check pipeline files and print every problem, opening nothing",
		Args:  files,
		RunE: func(_ *cobra.Command, paths []string) error {
			loaded, err := a.load(a.stderr, paths, load, allowUnset)
			if err != nil {
				return err
			}
			for _, p := range loaded {
				for _, idle := range p.Idle() {
					fmt.Fprintln(a.stderr, idle)
				}
				text := "ok, with variables that are not set" // as the flag allows
				if worst, err := p.WorstCaseBytes(); err == nil {
					text = "ok; its events take at most " + worst.String()
				}
				if _, err := fmt.Fprintf(a.stdout, "%s: %s\n", p.File(), text); err != nil {
					return written(err)
				}
			}
			return nil
		},
	}
	load.register(cmd)
	cmd.Flags().BoolVar(&allowUnset, "allow-unset", false, "accept ${NAME} of a variable that is not set, as of a file checked without its secrets")
	return cmd
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a pipeline file, for editors",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			schema, err := pipeline.Schema(a.specs)
			if err != nil {
				return &exitError{status: exitInvalid, err: err}
			}
			_, err = fmt.Fprintf(a.stdout, "%s\n", strings.TrimSuffix(string(schema), "\n"))
			return written(err)
		},
	}
}

func (a *app) functionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "functions [NAME...]",
		Short: "List the registered functions and their options",
		RunE: func(_ *cobra.Command, names []string) error {
			set, err := functions.NewSet(append(pipeline.Builtins(), a.specs...)...)
			if err != nil {
				return &exitError{status: exitInvalid, err: err}
			}
			if len(names) == 0 {
				names = set.Names()
			}
			for i, name := range names {
				spec, ok := set.Lookup(name)
				if !ok {
					return fmt.Errorf("unknown function %q; known are %s", name, strings.Join(set.Names(), ", "))
				}
				if i > 0 {
					fmt.Fprintln(a.stdout)
				}
				if err := describe(a.stdout, spec); err != nil {
					return written(err)
				}
			}
			return nil
		},
	}
}

// describe writes one function and a line for each of its options.
func describe(w io.Writer, spec functions.Spec) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s: %s\n", spec.Name(), spec.Doc())
	for _, o := range functions.DescribeOptions(spec) {
		if o.Path == "" {
			fmt.Fprintf(table, "  takes one value: %s\n", o.Type)
			continue
		}
		kind, note := o.Type, "default "+o.Default
		if len(o.Enum) > 0 {
			kind = strings.Join(o.Enum, "|")
		}
		switch {
		case o.Required:
			note = "required"
		case o.Default == "":
			note = ""
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", o.Path, kind, note, o.Doc)
	}
	return table.Flush()
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, own := buildOf(), ""
			if b.library != "" {
				own = ", enricher " + b.library
			}
			_, err := fmt.Fprintf(a.stdout, "%s %s, commit %s%s, %s\n", program(), b.version, b.commit, own, b.goVersion)
			return written(err)
		},
	}
}

// written makes an error of writing a command's output a failure of the command.
func written(err error) error {
	if err == nil {
		return nil
	}
	return failed(fmt.Errorf("writing the output: %w", err))
}

// Version and commit as the linker was told, for a build that go does not stamp itself. Empty: what go
// stamped holds.
var version, commit string

// build says what the binary was made from. Of a program with functions of its own version and commit are
// the program's, and library is the version of this module.
type build struct{ version, commit, library, goVersion string }

func buildOf() build {
	b := build{version: version, commit: commit, goVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if ok {
		b.stamped(info)
	}
	b.version, b.commit = cmp.Or(b.version, "devel"), cmp.Or(b.commit, "unknown")
	return b
}

// stamped fills in what go wrote into the binary.
func (b *build) stamped(info *debug.BuildInfo) {
	const module = "github.com/a0c75104/enricher"
	for _, dep := range info.Deps {
		if dep.Path == module {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			b.library = cmp.Or(strings.Trim(dep.Version, "()"), "devel")
		}
	}
	if v := info.Main.Version; b.version == "" && v != "(devel)" {
		b.version = v
	}
	if b.commit != "" {
		return
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			b.commit += "+changes"
		}
	}
}
