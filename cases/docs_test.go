package cases_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/cases"
)

// table lists the keys of a declared type as the docs have them.
func table(t reflect.Type) string {
	var b strings.Builder
	b.WriteString("| key | meaning |\n|---|---|\n")
	for i := range t.NumField() {
		f := t.Field(i)
		doc := f.Tag.Get("doc")
		if f.Tag.Get("required") == "true" {
			doc += "; required"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.Tag.Get("yaml"), doc)
	}
	return b.String()
}

// docs/testing.md has each key of a test file, and says of it what the declaration does.
func TestTheDocsHaveEachKey(t *testing.T) {
	docs, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[cases.Declared](), reflect.TypeFor[cases.Case](), reflect.TypeFor[cases.Event](), reflect.TypeFor[cases.Answer](),
		reflect.TypeFor[cases.Output](), reflect.TypeFor[cases.Failure](),
	} {
		if want := table(of); !strings.Contains(string(docs), want) {
			t.Errorf("docs/testing.md lacks the table of %s:\n%s", of.Name(), want)
		}
	}
}
