package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/file"
)

func TestAFileIsTheSameUnderEverySpelling(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, err := range map[string]error{
		"a directory": os.Mkdir("d", 0o700), "a file": os.WriteFile("x", nil, 0o600), "another": os.WriteFile("other", nil, 0o600),
		"a symlink": os.Symlink("x", "link"), "a hard link": os.Link("x", "hard"), "a symlink of a directory": os.Symlink(".", "here"),
	} {
		if err != nil {
			t.Fatalf("making %s: %v", name, err)
		}
	}
	abs, err := filepath.Abs("x")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		want bool
	}{
		{"x", true},
		{"./x", true},
		{"d/../x", true},
		{abs, true},
		{"link", true},
		{"hard", true},
		{"here/x", true},
		{"other", false},
		{"missing", false},
	} {
		if got := file.Same("x", tt.path); got != tt.want {
			t.Errorf("x and %q: same %v, want %v", tt.path, got, tt.want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"missing", "./missing", true},
		{"missing", "missing too", false},
		{"/dev/null", "/dev/../dev/null", true},
	} {
		if got := file.Same(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: same %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// A file may be put in place of another after the pipeline was checked, and what stands behind standard
// input and output shows only now.
func TestASinkDoesNotOpenWhatItsSourceReads(t *testing.T) {
	const before = `{"a":1}` // without its line feed, which the sink must not add either
	for _, tt := range []struct {
		name    string
		source  string
		sink    string
		refused bool
	}{
		{name: "one file", source: "x", sink: "x", refused: true},
		{name: "a link to it", source: "x", sink: "link", refused: true},
		{name: "from standard input to a file", source: "-", sink: "link", refused: true},
		{name: "from a file to standard output", source: "x", sink: "-", refused: true},
		{name: "from standard input to standard output", source: "-", sink: "-", refused: true},
		{name: "another file", source: "x", sink: "other"},
		{name: "no file as source", source: "", sink: "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("x", []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("x", "link"); err != nil {
				t.Fatal(err)
			}
			in, err := os.Open("x")
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			out, err := os.OpenFile("x", os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			s, err := file.NewSink(file.SinkConfig{Path: tt.sink, Stdout: out, Source: file.SourceConfig{Path: tt.source, Stdin: in}})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Open(t.Context())
			if refused := err != nil && strings.Contains(err.Error(), "the source reads"); refused != tt.refused || err != nil != refused {
				t.Errorf("got %v, want refused %v", err, tt.refused)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			if got, err := os.ReadFile("x"); tt.refused && (err != nil || string(got) != before) {
				t.Errorf("the file holds %q, %v after the refusal, want %q", got, err, before)
			}
		})
	}
}
