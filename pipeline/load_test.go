package pipeline_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/pipeline"
)

func TestExampleLoads(t *testing.T) {
	p, err := pipeline.Load("../examples/page-content.yaml", pipeline.Options{})
	if err != nil {
		t.Fatalf("loading the example:\n%v", err)
	}
	if p.Name() != "page-content-enrich" {
		t.Errorf("name: got %q", p.Name())
	}
}

// write puts text into a file of its own and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFileToFileRuns(t *testing.T) {
	path := write(t, "p.yaml", `name: lines
source: {file: {path: "-"}}
filter: .keep
partition_by: .id
process:
  - jq: .seen = $pipeline
sink: {file: {path: "-"}}
`)
	p, err := pipeline.Load(path, pipeline.Options{})
	if err != nil {
		t.Fatalf("loading:\n%v", err)
	}
	in := `{"id":1,"keep":true,"n":1.0}
{"id":2,"keep":false}
{"id":1,"keep":true,"n":9007199254740993}
`
	var out strings.Builder
	if err := p.Run(context.Background(), pipeline.Deps{Stdin: strings.NewReader(in), Stdout: &out}); err != nil {
		t.Fatalf("running: %v", err)
	}
	want := `{"id":1,"keep":true,"n":1.0,"seen":"lines"}
{"id":1,"keep":true,"n":9007199254740993,"seen":"lines"}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
