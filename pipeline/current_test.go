package pipeline_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
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

// Who reads an error topic finds each type and each header in the docs.
func TestErrorEventsAreDocumented(t *testing.T) {
	docs, err := pipeline.Docs(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []struct {
		file, pattern, shown string
		least                int
	}{
		{"../event/errors.go", `(?m)^\t\w+ +Type = "(\w+)"$`, "| `%s` |", 16},
		{"../streammanager/errorevent.go", `(?:add\(|errorHeaders \+ )"(\w+)"`, "`enricher.error.%s`", 12},
		{"platform.go", `encodingHeader = "enricher\.error\.(\w+)"`, "`enricher.error.%s`", 1},
	} {
		text, err := os.ReadFile(in.file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(in.pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) < in.least {
			t.Errorf("%s: found %d names, want %d or more", in.file, len(found), in.least)
		}
		for _, m := range found {
			if want := fmt.Sprintf(in.shown, m[1]); !strings.Contains(docs, want) {
				t.Errorf("the docs do not have %s", want)
			}
		}
	}
}
