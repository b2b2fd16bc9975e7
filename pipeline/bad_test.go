package pipeline_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/pipeline"
)

const secret = "hunter2 is secret"

// testEnv is the environment of the test files.
func testEnv(name string) (string, bool) {
	v, ok := map[string]string{"SECRET": secret, "WORKERS": "7", "TOPICS": "a, b", "EMPTY": "", "NAME": "from-env"}[name]
	return v, ok
}

// TestBadFiles holds each testdata/*.bad.yaml to exactly the problems that its first lines want.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(files) < 50 {
		t.Fatalf("found %d bad files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".bad.yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(string(raw)) {
				w, ok := strings.CutPrefix(line, "# want: ")
				if !ok {
					break
				}
				want = append(want, strings.TrimSpace(w))
			}
			_, err = pipeline.Load(path, pipeline.Options{Getenv: testEnv})
			problems, ok := errors.AsType[pipeline.Problems](err)
			if !ok {
				t.Fatalf("got %v, want problems %q", err, want)
			}
			if len(problems) != len(want) {
				t.Fatalf("got %d problems:\n%v\nwant %q", len(problems), problems, want)
			}
			for i, p := range problems {
				if !strings.Contains(p.Error(), want[i]) {
					t.Errorf("got  %s\nwant %s", p.Error(), want[i])
				}
				if p.Line < 1 || p.Col < 1 || p.File != path {
					t.Errorf("problem without a place: %+v", p)
				}
				if strings.Contains(p.Error(), "hunter2") {
					t.Errorf("a value is in the message: %s", p.Error())
				}
			}
			if !slices.IsSortedFunc(problems, func(a, b pipeline.Problem) int { return a.Line - b.Line }) {
				t.Errorf("not sorted by line:\n%v", problems)
			}
		})
	}
}
