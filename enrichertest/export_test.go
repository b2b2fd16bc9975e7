package enrichertest

import (
	"testing"

	"github.com/a0c75104/enricher/cases"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

// Told is what Run would have told t.
func Told(t *testing.T, file string, c Case, r reporter, specs ...functions.Spec) {
	p, err := pipeline.Load(file, pipeline.Options{Specs: specs})
	if err != nil {
		t.Fatal(err)
	}
	findings, err := c.Run(t, p, cases.Options{})
	report(r, findings, err, p, nil, func(path string) string { return path })
}
