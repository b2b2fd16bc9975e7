package enricher_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	filesRow = regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+\\.go`(?:, )?)+) \\|")
	goFile   = regexp.MustCompile("`([a-z_]+\\.go)`")
)

// ARCHITECTURE.md names each file of the large packages once and no other.
func TestTheArchitectureNamesTheFilesThatAreThere(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []string{"streammanager", "kafka"} {
		_, inside, found := strings.Cut(string(text), "\n## Inside "+room+"\n")
		if !found {
			t.Fatalf("ARCHITECTURE.md has no section of what is inside %s", room)
		}
		inside, _, _ = strings.Cut(inside, "\n## ")
		var named, there []string
		for _, row := range filesRow.FindAllStringSubmatch(inside, -1) {
			for _, m := range goFile.FindAllStringSubmatch(row[1], -1) {
				named = append(named, m[1])
			}
		}
		files, err := filepath.Glob(room + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if name := filepath.Base(f); name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
				there = append(there, name)
			}
		}
		slices.Sort(named)
		if !slices.Equal(named, there) {
			t.Errorf("ARCHITECTURE.md, under \"Inside %s\", names\n%v, in %s are\n%v: give each file one row there", room, named, room, there)
		}
	}
}
