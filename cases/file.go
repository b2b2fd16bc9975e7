package cases

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/a0c75104/enricher/pipeline"
)

// File is a test file that was read and checked.
type File struct {
	Path  string
	Env   map[string]string
	Cases []Case

	places pipeline.Places
}

// declared is a test file as it is written.
type declared struct {
	Env   map[string]string `yaml:"env" doc:"values of the variables that the pipeline file names by ${NAME}; they go before those of the environment"`
	Cases []Case            `yaml:"cases" required:"true" doc:"the cases"`
}

// suffix is what the name of a test file ends with.
const suffix = "_test"

// Names returns the pipeline file and the test file beside it; either may be named.
func Names(path string) (pipelineFile, testFile string) {
	ext := filepath.Ext(path)
	stem := strings.TrimSuffix(path, ext)
	if base, ok := strings.CutSuffix(stem, suffix); ok {
		return base + ext, path
	}
	return path, stem + suffix + ext
}

// Read reads and checks a test file. The error is pipeline.Problems, all at once.
func Read(path string) (*File, error) {
	var d declared
	places, err := pipeline.ReadDeclared(path, &d)
	if problems, ok := errors.AsType[pipeline.Problems](err); ok && missing(path) {
		of, _ := Names(path)
		problems[0].Message += "; the cases of " + of + " stand there"
	}
	if err != nil {
		return nil, err
	}
	f := &File{Path: path, Env: d.Env, Cases: d.Cases, places: places}
	var problems pipeline.Problems
	if len(d.Cases) == 0 {
		problems = append(problems, places.Problem("cases", "names no case"))
	}
	seen := map[string]bool{}
	for i := range f.Cases {
		c := &f.Cases[i]
		if seen[c.Name] {
			problems = append(problems, places.Problem(fmt.Sprintf("cases[%d].name", i), "%q is the name of another case too", c.Name))
		}
		seen[c.Name] = true
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return f, nil
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Getenv looks a variable up, first in the file, then by otherwise.
func (f *File) Getenv(otherwise func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if v, ok := f.Env[name]; ok {
			return v, true
		}
		return otherwise(name)
	}
}

// At returns where in the file something of the case with that index stands, such as outputs[1].
func (f *File) At(index int, path string) string {
	at := fmt.Sprintf("cases[%d]", index)
	if path != "" {
		at += "." + path
	}
	return f.places.At(at)
}
