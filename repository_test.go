// Package enricher_test checks promises that hold for the repository as a whole.
package enricher_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// parsed is one Go file of the repository.
type parsed struct {
	path string
	file *ast.File
	set  *token.FileSet
}

func goFiles(t *testing.T) []parsed {
	t.Helper()
	var files []parsed
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || strings.HasPrefix(name, "zz_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "zz_") {
			return nil
		}
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, parsed{path: path, file: f, set: set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found %d Go files, want the whole repository", len(files))
	}
	return files
}

func TestEveryPackageHasOnePackageComment(t *testing.T) {
	comments := map[string][]string{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		dir := filepath.Dir(f.path)
		if _, ok := comments[dir]; !ok {
			comments[dir] = nil
		}
		if f.file.Doc != nil {
			comments[dir] = append(comments[dir], f.path)
		}
	}
	for dir, in := range comments {
		if len(in) != 1 {
			t.Errorf("package %s has %d package comments %v, want 1", dir, len(in), in)
		}
	}
}

// A file or function that grows beyond these is one that a newcomer cannot take in at once: split it. Tables
// of tests may be longer than a function that does something.
func TestFilesAndFunctionsStayShort(t *testing.T) {
	const fileLines, functionLines = 400, 60
	for _, f := range goFiles(t) {
		if n := f.set.File(f.file.Pos()).LineCount() - 1; n > fileLines {
			t.Errorf("%s has %d lines, want at most %d", f.path, n, fileLines)
		}
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, d := range f.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1; n > functionLines {
				t.Errorf("%s: function %s has %d lines, want at most %d", f.path, fn.Name.Name, n, functionLines)
			}
		}
	}
}
