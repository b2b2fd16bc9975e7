package gateway

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
)

var documented = regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\| (read|act) \\|")

func TestTheDocsNameEveryRequestWithItsRight(t *testing.T) {
	text, err := os.ReadFile("../docs/control.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, m := range documented.FindAllStringSubmatch(string(text), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	for _, r := range routes() {
		want = append(want, fmt.Sprintf("%s %s %s", r.method, r.path, map[right]string{read: "read", act: "act"}[r.right]))
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("docs/control.md does not have %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("docs/control.md has %s, which is not served", g)
		}
	}
}
