package enrichertest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/enrichertest"
	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type patientOptions struct {
	URL functions.Template `yaml:"url" doc:"what to ask" required:"true"`
}

// patient is a function of a user: it asks an API, and asks again after ten minutes where that is busy.
var patient = functions.New("patient", "asks an API and is in no hurry", func(env functions.Env, o patientOptions) (event.Func, error) {
	return event.FuncOf(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		u, err := o.URL.URL(ctx, ev)
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, err
		}
		resp, err := env.HTTP.Do(req)
		if err != nil {
			return nil, event.Retry(event.Reject(event.Connection, err), 10*time.Minute)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, event.Retry(event.Rejectf(event.UnexpectedStatus, "status %d", resp.StatusCode), 10*time.Minute)
		}
		if err := ev.Set(path(".said"), event.AppendString(nil, string(body))); err != nil {
			return nil, err
		}
		return []*event.Event{ev}, ev.Set(path(".at"), event.AppendString(nil, time.Now().UTC().Format(time.RFC3339)))
	}), nil
})

func path(text string) event.Path {
	p, err := event.ParsePath(text)
	if err != nil {
		panic(err) // the texts are above
	}
	return p
}

// The test file beside a pipeline file runs with functions of the user.
func TestTheCasesBesideAPipelineFileHold(t *testing.T) {
	enrichertest.Cases(t, "testdata/patient.yaml", patient)
}

// A wait of half an hour takes no time, and the function sees the clock that the case sets.
func TestACaseInGoRunsInVirtualTime(t *testing.T) {
	enrichertest.Run(t, "testdata/patient.yaml", enrichertest.Case{
		Now:    "2026-11-30T12:00:00Z",
		Events: []enrichertest.Event{{Value: `{"id": 1}`}, {Value: `{"id": 2}`}, {Value: `{}`}},
		HTTP: []enrichertest.Answer{
			{Request: "GET http://api.example/1", Body: "yes"},
			{Request: "GET http://api.example/2", Status: 503},
		},
		Outputs: []enrichertest.Output{{Value: `{"id": 1, "said": "yes", "at": "2026-11-30T12:00:00Z"}`}},
		Errors:  []enrichertest.Failure{{Type: "unexpected_status", Function: "asks", Attempts: 5, Event: 2}, {Type: "missing_field", Event: 3}},
	}, patient)
}

// told is a test that notes how it failed.
type told struct{ text strings.Builder }

func (*told) Helper()                             {}
func (r *told) Errorf(format string, args ...any) { fmt.Fprintf(&r.text, format+"\n", args...) }

// A case that does not hold fails the test with what differs, and shows no value that comes from outside the file.
func TestACaseThatDoesNotHoldSaysWhatDiffers(t *testing.T) {
	t.Setenv("TEST_KEY", "open-sesame")
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := "name: p\nsource: {file: {path: '-'}}\nprocess: [{patient: {url: 'http://api.example/${TEST_KEY}/\\(.id)'}}]\nsink: {file: {path: '-'}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var r told
	enrichertest.Told(t, file, enrichertest.Case{Name: "x", Events: []enrichertest.Event{{Value: `{"id": 1}`}}}, &r, patient)
	want := "http: a request has no answer: GET http://api.example/${TEST_KEY}/1 (process[0].patient, event 1, attempt 1)\n" +
		"    the case has no answers: write them under http\n"
	if r.text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &r.text, want)
	}
	r = told{}
	enrichertest.Told(t, "testdata/patient.yaml", enrichertest.Case{Events: []enrichertest.Event{{}}}, &r, patient)
	if want := "events[0]: want one of value, file and tombstone: true"; !strings.Contains(r.text.String(), want) {
		t.Errorf("got %q, want %q in it", &r.text, want)
	}
}

// Each example has a test file, and its cases hold.
func TestTheExamplesHoldTheirCases(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.yaml") {
			continue
		}
		ran++
		t.Run(filepath.Base(file), func(t *testing.T) { enrichertest.Cases(t, file) })
	}
	if ran == 0 {
		t.Error("found no example")
	}
}
