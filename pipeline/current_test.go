package pipeline_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/a0c75104/enricher/pipeline"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

// current compares a generated file with the one in the repository.
func current(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, got) {
		t.Errorf("%s is not current: run go test ./pipeline -run 'TestDocsAreCurrent|TestSchemaIsCurrent' -update", path)
	}
}

func TestDocsAreCurrent(t *testing.T) {
	got, err := pipeline.Docs(nil)
	if err != nil {
		t.Fatal(err)
	}
	current(t, "../docs/pipeline.md", []byte(got))
}

func TestSchemaIsCurrent(t *testing.T) {
	got, err := pipeline.Schema(nil)
	if err != nil {
		t.Fatal(err)
	}
	current(t, "../docs/pipeline.schema.json", got)
}
