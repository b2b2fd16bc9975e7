package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/gateway"
)

const (
	someID = "0123456789abcdef0123456789abcdef"
	other  = "ffffffffffffffffffffffffffffffff"
)

// one is a gateway of one job that runs.
func one(t testing.TB) (*served, *asked) {
	t.Helper()
	j := &asked{id: someID, picture: picture("orders", gateway.Created, gateway.Running)}
	return serve(t, loopback, gateway.Config{}, j), j
}

func TestPathsWorkBareWithTheVersionAndWithDoubledSlashes(t *testing.T) {
	s, _ := one(t)
	for _, path := range []string{"/jobs/J/status", "/v1/jobs/J/status", "//v1//jobs/J///status", "/v1/jobs/J/status/", "/jobs/" + strings.ToUpper(someID) + "/status", "/jobs/J/st%61tus"} {
		s.ask(t, "GET "+strings.ReplaceAll(path, "J", someID), "{}").is(t, 200, `{"status":"RUNNING"}`)
	}
}

func TestErrorsHaveOneForm(t *testing.T) {
	s, _ := one(t)
	for _, tc := range []struct {
		what, body string
		status     int
		text       string
	}{
		{"GET /nothing", "", 404, "File not found."},
		{"GET /v2/overview", "", 404, "File not found."},
		{"GET /", "", 404, "No dashboard is served here"},
		{"POST /nothing", "", 404, "Not found: /nothing"},
		{"DELETE /overview", "", 404, "Not found: /overview"},
		{"GET /login", "", 404, "no token to log in with"},
		{"GET /jobs/xyz", "", 400, `Bad request, could not parse parameters: Cannot resolve path parameter (jobid) from value "xyz".`},
		{"GET /jobs/" + other, "", 404, "Job " + other + " not found"},
		{"GET /jobs/" + other + "/status", "", 404, "Job " + other + " not found"},
		{"GET /jobs/" + other + "/checkpoints", "", 404, "Job " + other + " not found"},
		{"GET /jobs/J/checkpoints", "", 404, "Checkpointing has not been enabled."},
		{"GET /jobs/J/vertices/" + other, "", 404, "JobVertex " + other + " not found"},
		{"GET /jobs/J/vertices/V/flamegraph", "", 404, "File not found."},
		{"GET /jobs/J/exceptions?maxExceptions=x", "", 400, "(maxExceptions)"},
		{"GET /jobs/J/vertices/V/subtasks/metrics?subtasks=5-1", "", 400, "(subtasks)"},
		{"GET /jobs/metrics?agg=median", "", 400, "(agg)"},
		{"GET /taskmanagers/nobody", "", 404, "Could not find TaskExecutor nobody."},
		{"GET /jobmanager/log", "", 404, "File not found."},
		{"PATCH /jobs/" + other, "", 404, "Job could not be found."},
		{"PATCH /jobs/J?mode=stop", "", 308, `The termination mode "stop" has been removed`},
		{"GET /jobs/J/yarn-stop", "", 308, `The termination mode "stop" has been removed`},
		{"PATCH /jobs/J?mode=drop", "", 400, "(mode)"},
		{"POST /jobs", "", 403, "takes no pipelines by request"},
		{"POST /jobs/J/savepoints", "{}", 400, "No savepoint can be taken"},
		{"POST /jobs/J/savepoints", `{"target-directory":"/tmp/x","cancel-job":true}`, 400, "No savepoint can be taken"},
		{"POST /jobs/J/savepoints", "{", 400, "Request did not match expected format SavepointTriggerRequestBody."},
		{"POST /jobs/J/stop", `{"drain":"maybe"}`, 400, "Request did not match expected format StopWithSavepointRequestBody."},
		{"POST /jobs/J/stop", "[]", 400, "Request did not match expected format StopWithSavepointRequestBody."},
		{"POST /jobs/J/stop", `{"drain":true}`, 400, "No savepoint can be taken"},
		{"POST /jobs/J/stop", `{"savepoint":false,"triggerId":"x"}`, 400, "32 hexadecimal digits"},
		{"POST /jobs/J/checkpoints", "{}", 400, "There are no checkpoints"},
		{"GET /jobs/J/checkpoints/" + other, "", 404, "There is no checkpoint operation"},
		{"GET /jobs/J/savepoints/" + other, "", 404, "There is no savepoint operation with triggerId=" + other + " for job J."},
		{"GET /jobs/J/savepoints/x", "", 400, "(triggerid)"},
		{"POST /savepoint-disposal", "{}", 400, "Field savepoint-path must not be omitted or be null."},
		{"POST /savepoint-disposal", `{"savepoint-path":"/x"}`, 400, "no place for savepoints"},
		{"GET /savepoint-disposal/" + other, "", 404, "Operation not found under key: " + other},
		{"PATCH /jobs/J/rescaling", "", 400, "(parallelism)"},
		{"PATCH /jobs/J/rescaling?parallelism=many", "", 400, "(parallelism)"},
		{"GET /jobs/J/rescaling/" + other, "", 404, "Operation not found"},
		{"PUT /jobs/J/resource-requirements", "", 400, "Request body does not specify resource requirements."},
		{"DELETE /cluster", "", 501, "not ended by a request"},
		{"POST /jobs/J/coordinators/x", "{}", 404, "Not found"},
	} {
		path := strings.ReplaceAll(strings.ReplaceAll(tc.what, "/J", "/"+someID), "/V", "/"+vertexIDs(t, s, someID)[1])
		s.ask(t, path, tc.body).refused(t, tc.status, strings.ReplaceAll(tc.text, " J.", " "+someID+"."))
	}
}

func TestAJobIsCancelledByThreeWays(t *testing.T) {
	for _, what := range []string{"PATCH /jobs/J?mode=cancel", "PATCH /jobs/J", "PATCH /jobs/J?mode=CANCEL", "GET /jobs/J/yarn-cancel"} {
		s, j := one(t)
		s.ask(t, strings.ReplaceAll(what, "J", someID), "{}").is(t, 202, "{}")
		same(t, what, j.asked(), "cancel")
	}
	s, j := one(t)
	j.err = &gateway.EndedError{State: gateway.Finished}
	s.ask(t, "PATCH /jobs/"+someID, "").refused(t, 409, "Job cancellation failed because the job has already reached another terminal state (FINISHED).")
	j.err = errTest
	s.ask(t, "PATCH /jobs/"+someID, "").refused(t, 500, "Job cancellation failed: test failure")
}

// begun returns the id of an operation that was taken.
func (r reply) begun(t testing.TB, status int) string {
	t.Helper()
	var body struct {
		ID string `json:"request-id"`
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || r.status != status || !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(body.ID) {
		t.Fatalf("got %d %s, want %d and an id", r.status, r.body, status)
	}
	return body.ID
}

func TestAStopIsPolledUntilTheJobHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := one(t)
		j.stop = make(chan struct{})
		const body = `{"savepoint":false,"drain":true,"formatType":"CANONICAL","triggerId":null,"unknown":[1]}`
		id := s.ask(t, "POST /v1/jobs/"+someID+"/stop", body).begun(t, 202)
		poll := "GET /v1/jobs/" + someID + "/savepoints/" + id
		synctest.Wait()
		s.ask(t, poll, "{}").is(t, 200, `{"status":{"id":"IN_PROGRESS"},"operation":null}`)
		close(j.stop)
		synctest.Wait()
		for range 2 {
			s.ask(t, poll, "{}").is(t, 200, `{"status":{"id":"COMPLETED"},"operation":{"unfinished-events":7}}`)
		}
		same(t, "asked", j.asked(), "drain")
		s.ask(t, "GET /jobs/"+other+"/savepoints/"+id, "").refused(t, 404, "There is no savepoint operation")
		time.Sleep(5 * time.Minute)
		s.ask(t, poll, "{}").refused(t, 404, "There is no savepoint operation")
	})
}

func TestATriggerWithAnIDOfTheClientStopsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := one(t)
		body := fmt.Sprintf(`{"savepoint":false,"triggerId":"%s"}`, strings.ToUpper(other))
		for range 3 {
			same(t, "id", s.ask(t, "POST /jobs/"+someID+"/stop", body).begun(t, 202), other)
			synctest.Wait()
		}
		same(t, "asked", j.asked(), "suspend")
	})
}

// Flink's clients leave with one line for a trigger that is refused, and with another for an operation that failed.
func TestATriggerForAnUnknownJobIsTakenAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := one(t)
		id := s.ask(t, "POST /jobs/"+other+"/stop", `{"savepoint":false}`).begun(t, 202)
		synctest.Wait()
		r := s.ask(t, "GET /jobs/"+other+"/savepoints/"+id, "")
		if r.status != 200 || !strings.Contains(r.body, `"status":{"id":"COMPLETED"},"operation":{"failure-cause":{"class":"org.apache.flink.runtime.messages.FlinkJobNotFoundException"`) ||
			!strings.Contains(r.body, "Could not find Flink job ("+other+")") || !strings.Contains(r.body, `"serialized-throwable":"rO0AB`) {
			t.Errorf("got %d %s", r.status, r.body)
		}
	})
}

func TestWorkersAreRescaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := one(t)
		rescale := func(n int) string {
			id := s.ask(t, fmt.Sprintf("PATCH /jobs/%s/rescaling?parallelism=%d", someID, n), "").begun(t, 200)
			synctest.Wait()
			return s.ask(t, "GET /jobs/"+someID+"/rescaling/"+id, "").body
		}
		same(t, "3", rescale(3), `{"status":{"id":"COMPLETED"},"operation":{}}`)
		if got := rescale(32769); !strings.Contains(got, "maximum parallelism 32768 is smaller than the new parallelism 32769") {
			t.Errorf("too many: %s", got)
		}
		j.err = errTest
		if got := rescale(4); !strings.Contains(got, "test failure") {
			t.Errorf("a failure: %s", got)
		}
		same(t, "asked", j.asked(), "rescale:3 rescale:4")
	})
}

func TestRequirementsMeanWorkersAtTheProcessVertexAlone(t *testing.T) {
	s, j := one(t)
	path := "/jobs/" + someID + "/resource-requirements"
	v := vertexIDs(t, s, someID)
	put := func(source, process, sink string) reply {
		body := ""
		for i, b := range []string{source, process, sink} {
			if b != "" {
				body += fmt.Sprintf(`,"%s":{"parallelism":{"lowerBound":%s}}`, v[i], strings.Replace(b, "-", `,"upperBound":`, 1))
			}
		}
		return s.ask(t, "PUT "+path, "{"+strings.TrimPrefix(body, ",")+"}")
	}
	have := s.ask(t, "GET "+path, "").body
	s.ask(t, "PUT "+path, have).is(t, 200, "{}")
	put("1-2", "1-9", "1-2").is(t, 200, "{}")
	same(t, "asked", j.asked(), "rescale:4 rescale:9")
	for _, tc := range []struct{ source, process, sink, text string }{
		{"1-2", "1-9", "", "missing job vertex " + v[2]},
		{"1-3", "1-9", "1-2", "job vertex " + v[0] + " (Source: in) is the number of processes, 2"},
		{"1-2", "1-9", "1-1", "job vertex " + v[2]},
		{"1-2", "0-9", "1-2", "not 1 <= lower <= upper <= 32768"},
		{"1-2", "10-9", "1-2", "not 1 <= lower"},
		{"1-2", "1-32769", "1-2", "not 1 <= lower"},
	} {
		put(tc.source, tc.process, tc.sink).refused(t, 400, tc.text)
	}
	s.ask(t, "PUT "+path, strings.Replace(have, v[0], other, 1)).refused(t, 400, `Job vertex "`+other)
	if got := s.ask(t, "PUT "+path, `{"`+other+`":{}}`); len(got.errorsOf(t)) != 4 {
		t.Errorf("%s: want a line for each fault", got.body)
	}
	j.err = &gateway.EndedError{State: gateway.Canceled}
	put("1-2", "1-9", "1-2").refused(t, 409, "it is CANCELED")
}

func TestTheProcessIsEndedByARequestWhereItMayBe(t *testing.T) {
	ended := 0
	s := serve(t, loopback, gateway.Config{ShutDown: func() { ended++ }})
	s.ask(t, "DELETE /v1/cluster", "{}").is(t, http.StatusOK, "{}")
	if ended != 1 {
		t.Errorf("ended %d times", ended)
	}
}

func TestHealthAndReadinessAnswerInPlainText(t *testing.T) {
	var err error
	s := serve(t, loopback, gateway.Config{
		Probes:  []gateway.Probe{{Pipeline: "one", Ready: func() error { return err }}, {Pipeline: "two", Ready: func() error { return nil }}},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }),
	})
	want := func(path string, status int, body string) {
		t.Helper()
		if r := s.ask(t, "GET "+path, ""); r.status != status || r.body != body {
			t.Errorf("%s: %d %q, want %d %q", path, r.status, r.body, status, body)
		}
	}
	want("/healthz", 200, "ok\n")
	want("/readyz", 200, "ok\n")
	want("/metrics", 200, "metrics")
	err = errTest
	want("/readyz", 503, "one: test failure\n")
	want("/healthz", 200, "ok\n")
}
