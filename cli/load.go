package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/pipeline"
)

// loadFlags change what a pipeline file says.
type loadFlags struct {
	set     []string
	overlay []string
}

func (f *loadFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.set, "set", nil, `override one key of every file: path=value, as in 'source.kafka.options["linger.ms"]=5'; may be repeated`)
	flags.StringArrayVar(&f.overlay, "overlay", nil, "merge a `FILE` on top of every file: maps by key, the rest replaced; may be repeated")
}

// files is the check of the arguments: at least one file.
func files(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name at least one pipeline file")
	}
	return nil
}

// load reads all files and writes every problem of all of them to w.
func (a *app) load(w io.Writer, paths []string, f loadFlags, allowUnset bool) ([]*pipeline.Pipeline, error) {
	var loaded []*pipeline.Pipeline
	invalid := false
	for _, path := range paths {
		p, err := pipeline.Load(path, pipeline.Options{Specs: a.specs, Set: f.set, Overlay: f.overlay, AllowUnset: allowUnset})
		var problems pipeline.Problems
		switch {
		case err == nil:
			loaded = append(loaded, p)
		case errors.As(err, &problems):
			invalid = true
			for _, problem := range problems {
				fmt.Fprintln(w, problem)
			}
		default:
			return nil, &exitError{status: exitInvalid, err: err}
		}
	}
	for _, problem := range pipeline.Together(loaded...) {
		invalid = true
		fmt.Fprintln(w, problem)
	}
	if invalid {
		return nil, &exitError{status: exitInvalid}
	}
	return loaded, nil
}
