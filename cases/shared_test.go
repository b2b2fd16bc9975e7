package cases_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/cases"
)

func TestEventsThatShareARequestAreAnsweredOnceAndACaseBeginsWithNothingKept(t *testing.T) {
	for _, cache := range []string{"", ", cache: {ttl: 10m, negative_ttl: 1m}"} {
		file := filepath.Join(t.TempDir(), "p.yaml")
		text := "name: p\nsource: {file: {path: in}}\nsink: {file: {path: out}}\nworkers: 2\nprocess:\n" +
			"  - {name: ask, http: {url: 'https://api.example/n/\\(.n)', into: .m" + cache + "}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := load(t, file)
		const one, none = "https://api.example/n/1", "https://api.example/n/2"
		for range 2 { // the second finds nothing of the first
			got := run(t, p, cases.Case{
				Events:  in{{Value: `{"n":1}`}, {Value: `{"n":1}`}, {Value: `{"n":2}`}, {Value: `{"n":1}`}, {Value: `{"n":2}`}},
				HTTP:    net{{Request: one, Body: `"yes"`, Takes: 1e9, Times: 1}, {Request: none, Status: 404, Times: 1}},
				Outputs: out{{Value: `{"n":1,"m":"yes"}`}, {Value: `{"n":1,"m":"yes"}`}, {Value: `{"n":1,"m":"yes"}`}},
				Errors:  []cases.Failure{{Type: "not_found", Event: 3}, {Type: "not_found", Event: 5}},
			})
			twice := slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "has no answer any more") })
			if cache != "" && len(got) > 0 || cache == "" && !twice {
				t.Errorf("with %q: %q", cache, got)
			}
		}
	}
}
