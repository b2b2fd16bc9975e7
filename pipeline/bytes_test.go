package pipeline_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

// A value from outside the file may be any bytes; those that are no text are refused where they are named,
// and shown nowhere.
func TestAValueThatIsNoTextIsAProblemOfItsPlace(t *testing.T) {
	const bytes = "hunter2\xff\xfe"
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) (string, bool) { return bytes, name == "BYTES" }
	for _, ref := range []string{"${BYTES}", "${file:" + path + "}"} {
		for _, tt := range []struct{ name, text, want string }{
			{"the name", "name: " + ref + "\n" + ends, ":1:7: name: " + ref + " holds bytes that are not UTF-8"},
			{"the name beside an API", "name: " + ref + "\n" + ends + "process:\n  - http: {url: 'http://h/', into: .r}\n", ":1:7: name: " + ref + " holds bytes"},
			{"an expression", "name: p\n" + ends + "filter: .a == \"" + ref + "\"\n", ":4:9: filter: " + ref + " holds bytes"},
			{"the name of an item", "name: p\n" + ends + "process:\n  - {name: '" + ref + "', jq: .a = 1}\n", ":5:12: process[0].name: " + ref + " holds bytes"},
			{"an option", "name: p\n" + ends + "process:\n  - http: {url: 'http://h/" + ref + "', into: .r}\n", ":5:17: process[0].http.url: " + ref + " holds bytes"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				_, err := pipeline.Load(write(t, "p.yaml", tt.text), pipeline.Options{Getenv: getenv})
				problems, ok := errors.AsType[pipeline.Problems](err)
				if !ok || len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) {
					t.Errorf("got %v\nwant %s", err, tt.want)
				}
				if err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the value is in the message: %v", err)
				}
			})
		}
	}
	t.Run("a flag", func(t *testing.T) {
		_, err := pipeline.Load(write(t, "p.yaml", "name: p\n"+ends), pipeline.Options{Set: []string{"name=" + bytes}})
		if want := "--set name: holds bytes that are not UTF-8"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

const ends = "source: {file: {path: in}}\nsink: {file: {path: out}}\n"

// The size of a device says nothing of how much comes out of it.
func TestWhatAFileValueReadsIsBounded(t *testing.T) {
	endless := "/dev/zero"
	if _, err := os.Stat(endless); err != nil {
		endless = filepath.Join(t.TempDir(), "large")
		if err := os.WriteFile(endless, make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := write(t, "p.yaml", "name: p\n"+ends+"filter: .a == \"${file:"+endless+"}\"\n")
	_, err := pipeline.Load(path, pipeline.Options{})
	if want := ":4:9: filter: ${file:" + endless + "} is larger than 1048576 bytes"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A file that is at fault is looked at to its end: each part that can be made is made, whatever the name.
func TestAFileWithoutANameIsCheckedToItsEnd(t *testing.T) {
	refusing := functions.New("refusing", "refuses", func(functions.Env, nothing) (event.Func, error) {
		return nil, errors.New("not today")
	})
	path := write(t, "p.yaml", "name: a b\n"+ends+"process:\n  - http: {url: 'http://h/', into: .r}\n  - refusing: {}\n")
	_, err := pipeline.Load(path, pipeline.Options{Specs: []functions.Spec{refusing}})
	problems, ok := errors.AsType[pipeline.Problems](err)
	if !ok || len(problems) != 2 || !strings.Contains(problems[1].Error(), ":6:5: process[1].refusing: not today") {
		t.Errorf("got %v, want the name and the item", err)
	}
}
