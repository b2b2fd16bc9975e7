package pipeline

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// maxFile bounds a pipeline file.
const maxFile = 4 << 20

// Options says how a file is loaded.
type Options struct {
	// Specs are the functions of the user, beside those of Builtins.
	Specs []functions.Spec
	// Set holds path=value, each laid over the file, after the overlays.
	Set []string
	// Overlay names files that are laid over the file in order: maps by key, the rest replaced, a key
	// without a value taken out.
	Overlay []string
	// AllowUnset takes a ${NAME} that is not set for a value that will be right. The pipeline can then
	// be checked and not built.
	AllowUnset bool
	// Getenv looks a variable up; nil: os.LookupEnv.
	Getenv func(string) (string, bool)
}

// Builtins returns the functions that every pipeline file knows.
func Builtins() []functions.Spec { return []functions.Spec{asynchttp.Spec(), functions.JQ()} }

func allSpecs(specs []functions.Spec) ([]functions.Spec, error) {
	all := append(Builtins(), specs...)
	if _, err := functions.NewSet(all...); err != nil {
		return nil, fmt.Errorf("registering functions: %w", err)
	}
	return all, nil
}

// Load reads and checks the file at path. The error is Problems where the file is at fault, all at
// once; any other error is that of a bad spec.
func Load(path string, o Options) (*Pipeline, error) {
	specs, err := allSpecs(o.Specs)
	if err != nil {
		return nil, err
	}
	if o.Getenv == nil {
		o.Getenv = os.LookupEnv
	}
	root, problems := tree(path, o)
	if root == nil {
		return nil, problems.sorted()
	}
	d := newDecoder(resolver{getenv: o.Getenv, allowUnset: o.AllowUnset}, specs)
	p := &Pipeline{path: path, read: d}
	d.values[""] = root
	d.structure(root, reflect.ValueOf(&p.cfg).Elem(), "", func(key, _ *node, _ string) bool {
		return strings.HasPrefix(key.text, "x-")
	})
	p.unset = d.unset
	d.quicken(&p.cfg)
	(&checker{decoder: d, cfg: &p.cfg}).check()
	if problems = append(problems, d.problems...); len(problems) > 0 {
		return nil, problems.sorted()
	}
	return p, nil
}

// tree reads the file, its overlays and single values into one tree, nil where the file cannot be read.
func tree(path string, o Options) (*node, Problems) {
	root, problems := readFile(&source{name: path})
	for i, name := range o.Overlay {
		over, more := readFile(&source{name: name, order: i + 1})
		problems = append(problems, more...)
		if root != nil && over != nil {
			overlay(root, over)
		}
	}
	for i, arg := range o.Set {
		if root != nil {
			problems = append(problems, setValue(root, arg, len(o.Overlay)+1+i)...)
		}
	}
	return root, problems
}

// readFile reads the file that src names.
func readFile(src *source) (*node, Problems) {
	bad := func(format string, args ...any) (*node, Problems) {
		return nil, Problems{{File: src.name, Message: fmt.Sprintf(format, args...), order: src.order}}
	}
	info, err := os.Stat(src.name)
	if err != nil {
		return bad("reading the file: %v", pathless(err))
	}
	if info.Size() > maxFile {
		return bad("reading the file: it is larger than %d bytes", maxFile)
	}
	raw, err := os.ReadFile(src.name)
	if err != nil {
		return bad("reading the file: %v", pathless(err))
	}
	src.text = string(raw)
	return parse(src)
}
