//go:build unix

package kafka_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// startKept is start for a worker that ends by itself, and whose metrics are to be looked at then: restKept does.
func (u *suite) startKept(set ...string) *worker {
	u.t.Helper()
	set = append(slices.Clone(u.setup.set), set...)
	return u.launch(slices.Contains(set, "delivery=exactly_once"), job.WorkerConfig{File: overridden(u.t, u.file(), set), Keep: true})
}

// restKept waits until the pipeline of a worker that is kept has ended, and holds it to what rest does.
func (u *suite) restKept(w *worker) {
	u.t.Helper()
	u.restedWith(w, keptMetrics(u.t, w.Worker))
}

// keptMetrics waits until the pipeline of a worker that is kept has ended, and returns what its metrics said then. It ends the
// worker.
func keptMetrics(t *testing.T, w *job.Worker) job.Families {
	t.Helper()
	waitFor(t, "the pipeline of "+w.Name+" ends", func() bool { return strings.Contains(w.Log(), `"msg":"ended"`) || !w.Running() })
	m := w.Metrics()
	w.Release()
	if status, _ := w.Wait(); status != 0 {
		t.Errorf("%s ended with status %d:\n%s", w.Name, status, w.Log())
	}
	return m
}

var overridePath = regexp.MustCompile(`[\w-]+|\["[^"]+"\]`)

// overridden returns the text of a pipeline file with overrides as --set takes them.
func overridden(t *testing.T, text string, set []string) string {
	t.Helper()
	var file map[string]any
	must(t, yaml.Unmarshal([]byte(text), &file))
	for _, s := range set {
		path, value, _ := strings.Cut(s, "=")
		if i := strings.LastIndex(s, `"]=`); i >= 0 {
			path, value = s[:i+2], s[i+3:]
		}
		at, steps := file, overridePath.FindAllString(path, -1)
		for i, step := range steps {
			step = strings.Trim(step, `[]"`)
			if i == len(steps)-1 {
				var v any
				must(t, yaml.Unmarshal([]byte(value), &v))
				at[step] = v
				break
			}
			next, _ := at[step].(map[string]any)
			if next == nil {
				next = map[string]any{}
				at[step] = next
			}
			at = next
		}
	}
	made, err := yaml.Marshal(file)
	must(t, err)
	return string(made)
}

// checkAlone holds the metrics of a run that had a group for itself, and met no fault, to what it says at its end, and the
// commits that it has counted to those that the broker took since there were before of them. Where a topic begins is committed
// before it is read, and is not counted.
func checkAlone(t *testing.T, c *cluster.Cluster, group string, m job.Families, e ended, before int) {
	t.Helper()
	counted := figuresOf(m)
	if said := (figures{
		Read: float64(e.Read), Emitted: float64(e.Emitted), Dropped: float64(e.Dropped), Errors: float64(e.Errors),
		Outputs: float64(e.Outputs), Skipped: float64(e.Skipped), Over: float64(e.Over),
	}); counted != said {
		t.Errorf("group %s has counted %+v, and at its end it says %+v", group, counted, said)
	}
	wrong := ""
	for _, name := range []string{"enricher_restarts_total", "enricher_rewinds_total", "enricher_source_skipped_total", "enricher_stalls_total"} {
		if n := m.Value(name); n != 0 {
			wrong += fmt.Sprintf(" %s=%.0f", name, n)
		}
	}
	if wrong != "" {
		t.Errorf("group %s has counted%s, and nothing was wrong with it", group, wrong)
	}
	all := commitsOf(t, c, group)
	requests, anew, _ := countCommits(all[before:])
	begun := starts(all, before)
	ok, tried := int(m.Value("enricher_commits_total", "outcome=ok")), int(m.Value("enricher_commits_total"))
	if ok != tried || ok+begun > requests || ok+begun < anew {
		t.Errorf("group %s has counted %d commits, %d with those that failed, and the broker has %d, %d of them with something new and %d of where it began",
			group, ok, tried, requests, anew, begun)
	}
	t.Logf("agreed: group %s has counted %d commits, and the broker has %d, %d of them of where it began", group, ok, requests, begun)
}
