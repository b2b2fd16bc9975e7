package gateway_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/gateway"
)

var update = flag.Bool("update", false, "write the golden files")

// shown is a gateway of three jobs, an hour after they began: one runs, one has failed, one was cancelled.
func shown(t testing.TB) (*served, string) {
	t.Helper()
	running := &asked{id: gateway.JobID("orders-enrich"), picture: picture("orders-enrich", gateway.Created, gateway.Running)}
	failed := &asked{id: gateway.JobID("broken"), picture: picture("broken", gateway.Created, gateway.Running, gateway.Failing, gateway.Failed)}
	cancelled := &asked{id: gateway.JobID("dropped"), picture: picture("dropped", gateway.Created, gateway.Cancelling, gateway.Canceled)}
	for n := range 3 {
		failed.picture.Exceptions = append(failed.picture.Exceptions, gateway.Exception{
			Name: "enricher.Failure.source", Text: fmt.Sprintf("broker gone %d", 3-n), At: time.Now(), Worker: "worker-1", Labels: map[string]string{"reason": "source"},
		})
	}
	running.picture.Exceptions = failed.picture.Exceptions[:1]
	running.picture.Restarts = 1
	time.Sleep(time.Hour)
	settings := []gateway.Setting{{Key: "rest.port", Value: "8081"}, {Key: "api-key", Value: "hidden2"}}
	return serve(t, loopback, gateway.Config{Settings: settings}, running, failed, cancelled), running.id
}

var ids = regexp.MustCompile(`"id":"([0-9a-f]{32})","slotSharingGroupId"`)

// vertexIDs returns those of source, process and sink.
func vertexIDs(t testing.TB, s *served, job string) []string {
	t.Helper()
	var found []string
	for _, m := range ids.FindAllStringSubmatch(s.ask(t, "GET /jobs/"+job, "").body, -1) {
		found = append(found, m[1])
	}
	if len(found) != 3 {
		t.Fatalf("found the vertices %v", found)
	}
	return found
}

// golden are answers that are held word for word. J, V, B are a running job, its process vertex and a job that failed.
var golden = []string{
	"/config", "/overview", "/applications/overview", "/applications/J", "/jobmanager/config", "/jobmanager/logs",
	"/jobmanager/metrics", "/jobmanager/metrics?get=Status.JVM.Memory.Heap.Used,nothing,taskSlotsAvailable",
	"/taskmanagers", "/taskmanagers/worker-1", "/taskmanagers/worker-1/metrics?get=Status.JVM.Memory.Heap.Max", "/taskmanagers/worker-9/metrics",
	"/taskmanagers/metrics?get=Status.JVM.CPU.Cores&taskmanagers=worker-0",
	"/jobs", "/jobs/overview", "/jobs/J", "/jobs/J/plan", "/jobs/J/status", "/jobs/J/config", "/jobs/J/execution-result", "/jobs/B/execution-result",
	"/jobs/J/exceptions?maxExceptions=10", "/jobs/B/exceptions?maxExceptions=2", "/jobs/B/exceptions?failureLabelFilter=reason:sink",
	"/jobs/J/metrics", "/jobs/J/metrics?get=eventsRead,uptime", "/jobs/metrics?get=numRestarts,workers&agg=sum,max", "/jobs/J/accumulators",
	"/jobs/J/resource-requirements", "/jobs/J/vertices/V", "/jobs/J/vertices/V/backpressure", "/jobs/J/vertices/V/watermarks", "/jobs/J/vertices/V/taskmanagers",
	"/jobs/J/vertices/V/subtasktimes", "/jobs/J/vertices/V/accumulators", "/jobs/J/vertices/V/subtasks/accumulators", "/jobs/J/vertices/V/metrics",
	"/jobs/J/vertices/V/metrics?get=0.numRecordsIn,1.busyTimeMsPerSecond", "/jobs/J/vertices/V/subtasks/metrics?get=busyTimeMsPerSecond,numRecordsIn",
	"/jobs/J/vertices/V/subtasks/metrics?get=busyTimeMsPerSecond,nothing", "/jobs/J/vertices/V/subtasks/metrics?get=numRecordsIn&subtasks=1-5&agg=min",
	"/jobs/0123456789abcdef0123456789abcdef/metrics",
}

// One file holds them all, so that a change of bodies is read at one place.
func TestBodiesAreAsClientsKnowThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, job := shown(t)
		fill := strings.NewReplacer("J", job, "V", vertexIDs(t, s, job)[1], "B", gateway.JobID("broken"))
		var got bytes.Buffer
		for _, path := range golden {
			r := s.ask(t, "GET "+fillIn(fill, path), "")
			if r.status != http.StatusOK {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
			fmt.Fprintf(&got, "# %s\n", path)
			if err := json.Indent(&got, []byte(r.body), "", " "); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			got.WriteString("\n")
			if strings.Contains(r.body, "hidden") {
				t.Errorf("%s tells a secret: %s", path, r.body)
			}
		}
		file := filepath.Join("testdata", "golden", "bodies.txt")
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			a, b := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("line %d of %s: got %q, want %q; -update writes it", i+1, file, a[i], b[i])
				}
			}
			t.Fatalf("%d lines, want %d of %s; -update writes it", len(a), len(b), file)
		}
	})
}

// fillIn puts ids in the places of single capitals of a path.
func fillIn(fill *strings.Replacer, path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if len(p) == 1 {
			parts[i] = fill.Replace(p)
		}
	}
	return strings.Join(parts, "/")
}

// Flink's dashboards of three versions rendered every page with these bodies. What is in them is in ours, of the same
// kind; a job here has no checkpoints.
func TestEveryFieldThatTheDashboardsReadIsThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "dashboard-bodies.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bodies map[string]any
	if err := json.Unmarshal(text, &bodies); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, job := shown(t)
		fill := strings.NewReplacer("J", job, "V", vertexIDs(t, s, job)[1])
		held := 0
		for path, want := range bodies {
			if strings.Contains(path, "/checkpoints") {
				s.ask(t, "GET "+fillIn(fill, path), "").errorsOf(t)
				continue
			}
			held++
			r := s.ask(t, "GET "+fillIn(fill, path), "")
			var got any
			if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status/100 != 2 {
				t.Errorf("%s: %d %s", path, r.status, r.body)
				continue
			}
			covers(t, path, got, want)
		}
		if held < 25 {
			t.Errorf("%d bodies were compared, want all of the file", held)
		}
	})
}

// byName are objects whose keys are names, not fields.
var byName = []string{"user-config", "failureLabels", "resource-requirements", "status-counts"}

func covers(t *testing.T, where string, got, want any) {
	t.Helper()
	if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
		t.Errorf("%s is %v, a %T; the dashboards had %v", where, got, got, want)
		return
	}
	switch want := want.(type) {
	case map[string]any:
		if slices.ContainsFunc(byName, func(s string) bool { return strings.HasSuffix(where, s) }) {
			return
		}
		for key, value := range want {
			mine, ok := got.(map[string]any)[key]
			if !ok {
				t.Errorf("%s has no %q", where, key)
			} else if value != nil {
				covers(t, where+"."+key, mine, value)
			}
		}
	case []any:
		// Of watermarks, logs and accumulators a job here has none.
		if mine := got.([]any); len(mine) > 0 && len(want) > 0 {
			covers(t, where+"[]", mine[0], want[0])
		}
	}
}

// A client reads a number that is missing or null as a fault of the whole answer.
func TestNoNumberIsEverNull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := shown(t)
		empty := serve(t, loopback, gateway.Config{})
		for _, of := range []*served{s, empty} {
			for _, path := range []string{"/overview", "/jobs", "/jobs/overview", "/taskmanagers", "/taskmanagers/metrics", "/jobs/metrics", "/jobmanager/config", "/jobmanager/metrics", "/applications/overview"} {
				r := of.ask(t, "GET "+path, "")
				if r.status != http.StatusOK || strings.Contains(r.body, "null") {
					t.Errorf("%s: %d %s", path, r.status, r.body)
				}
			}
		}
	})
}

func TestAThreadDumpShowsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := shown(t)
		for _, path := range []string{"/jobmanager/thread-dump", "/taskmanagers/worker-0/thread-dump"} {
			if r := s.ask(t, "GET "+path, ""); r.status != http.StatusOK || !strings.Contains(r.body, "gateway_test.TestAThreadDumpShowsGoroutines") {
				t.Errorf("%s: %d %.300s", path, r.status, r.body)
			}
		}
	})
}
