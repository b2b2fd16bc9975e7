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
	for _, problem := range together(loaded) {
		invalid = true
		fmt.Fprintln(w, problem)
	}
	if invalid {
		return nil, &exitError{status: exitInvalid}
	}
	return loaded, nil
}

// together finds what keeps pipelines from sharing a process.
func together(ps []*pipeline.Pipeline) pipeline.Problems {
	var problems pipeline.Problems
	named := map[string]*pipeline.Pipeline{}
	for _, p := range ps {
		if first := named[p.Name()]; first != nil {
			problems = append(problems, pipeline.Problem{
				File: p.File(), Path: "name",
				Message: fmt.Sprintf("%q is also the name in %s; names are labels of metrics and must differ", p.Name(), first.File()),
			})
			continue
		}
		named[p.Name()] = p
	}
	_, by := gatewayOf(ps)
	for _, p := range ps {
		addr, isDefault := p.GatewayListen()
		if first, _ := by.GatewayListen(); !isDefault && addr != first {
			problems = append(problems, pipeline.Problem{
				File: p.File(), Path: "gateway.listen",
				Message: fmt.Sprintf("%q differs from %q in %s; a process has one", addr, first, by.File()),
			})
		}
	}
	return problems
}

// gatewayOf returns the address of the process's HTTP server and the first file that names it, or the
// first file where all leave it to the default.
func gatewayOf(ps []*pipeline.Pipeline) (addr string, by *pipeline.Pipeline) {
	for _, p := range ps {
		a, isDefault := p.GatewayListen()
		if by == nil || !isDefault {
			addr, by = a, p
		}
		if !isDefault {
			break
		}
	}
	return addr, by
}
