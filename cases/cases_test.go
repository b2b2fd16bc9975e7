package cases_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/cases"
	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func getenv(name string) (string, bool) {
	v, ok := map[string]string{"HOST": "api.example", "TOKEN": "open-sesame"}[name]
	return v, ok
}

func load(t *testing.T, path string, specs ...functions.Spec) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Load(path, pipeline.Options{Getenv: getenv, Specs: specs})
	if err != nil {
		t.Fatalf("loading:\n%v", err)
	}
	return p
}

// run runs a case and returns its findings, each as PATH: TEXT.
func run(t *testing.T, p *pipeline.Pipeline, c cases.Case) []string {
	t.Helper()
	if c.Name == "" {
		c.Name = "a case"
	}
	findings, err := c.Run(t, p, cases.Options{Dir: "testdata", Real: 30 * time.Second})
	if err != nil {
		t.Fatalf("running the case: %v", err)
	}
	var said []string
	for _, f := range findings {
		said = append(said, f.Path+": "+f.Text)
	}
	return said
}

type (
	in  = []cases.Event
	out = []cases.Output
	net = []cases.Answer
)

const two = "https://api.example/n/2?v=1&kind=x"

func TestACaseFindsWhatIsNotAsItSays(t *testing.T) {
	ok := net{{Request: two, Body: `"yes"`}}
	tests := []struct {
		name string
		c    cases.Case
		want []string // what each finding begins with; none: the case holds
	}{
		{name: "all is as it says", c: cases.Case{
			Events: in{
				{Value: `{"n":1.0}`},
				{Value: `{"n":0}`},
				{Value: `{"n":2}`, Key: "k", Headers: map[string]string{"h": "1"}, Topic: "more", Timestamp: "2026-01-01T00:00:00Z"},
			},
			HTTP: ok,
			Outputs: out{
				{Value: `{"m":2,  "n":1.0}`, Topic: "out-1.0", Key: "1.0", Timestamp: "2000-01-01T00:00:00Z"},
				{Value: `{"n":2,"a":"yes","m":4}`, Key: "2", Headers: map[string]string{"h": "1"}, Timestamp: "2026-01-01T00:00:00Z", Event: 3},
			},
			Dropped: cases.Dropped{Events: []int{2}},
		}},
		{name: "what is not named is not compared", c: cases.Case{
			Events: in{{Value: `{"n":1}`}, {Value: `{"n":0}`}}, Outputs: out{{}}, Dropped: cases.Dropped{Count: 1},
		}},
		{name: "a value that differs, place by place", c: cases.Case{
			Events: in{{Value: `{"n":1,"o":{"x y":[1,2]},"id":9007199254740993}`}}, Outputs: out{{Value: `{"n":1.0,"o":{"x y":[1]},"p":"","id":9007199254740992}`}},
		}, want: []string{"outputs[0]: output 1, of event 1, differs:\n" +
			"    .id: got 9007199254740993, want 9007199254740992\n    .m: got 2, which is not expected\n    .n: got 1, want 1.0\n" +
			"    .o[\"x y\"][1]: got 2, which is not expected\n    .p: is missing, want \"\""}},
		{name: "key, topic, header, time and event", c: cases.Case{
			Events:  in{{Value: `{"n":1}`, Headers: map[string]string{"h": "1"}}},
			Outputs: out{{Key: "7", Topic: "o", Headers: map[string]string{"h": "2", "i": ""}, Timestamp: "2001-01-01T00:00:00Z", Event: 1}},
		}, want: []string{"outputs[0]: output 1, of event 1, differs:\n    key: got \"1\", want \"7\"\n    topic: got \"out-1\", want \"o\"\n" +
			"    header h: got \"1\", want \"2\"\n    header i: got none, want \"\"\n    timestamp: got \"2000-01-01T00:00:00Z\", want \"2001-01-01T00:00:00Z\""}},
		{name: "an output in the middle that is not expected", c: cases.Case{
			Events: in{{Value: `{"n":1}`}, {Value: `{"n":1.0}`}, {Value: `{"n":1.00}`}}, Outputs: out{{Value: `{"n":1,"m":2}`}, {Value: `{"n":1.00,"m":2}`}},
		}, want: []string{`outputs: event 2 has an output that is not expected: {"n":1.0,"m":2}`}},
		{name: "an output that is missing, and what its event became", c: cases.Case{
			Events: in{{Value: `{"n":0}`}, {Value: `oops`}}, Outputs: out{{Event: 1}, {Event: 2}}, Errors: []cases.Failure{{}}, Dropped: cases.Dropped{Count: 1},
		}, want: []string{
			"outputs[0]: there is no such output\n    event 1 was dropped by filter",
			"outputs[1]: there is no such output\n    event 2 became an error event: invalid_event in source, ",
		}},
		{name: "an error event that is not expected, and one that differs", c: cases.Case{
			Events: in{{Value: `{"n":2}`}, {Value: `oops`}}, HTTP: net{{Request: two, Status: 404}},
			Errors: []cases.Failure{{Type: "timeout", Function: "jq", Message: "Gone", Attempts: 2, Status: 410, Topic: "e", Event: 2}},
		}, want: []string{
			"errors[0]: error event 1, of event 1, differs:\n    type: got \"not_found\", want \"timeout\"\n    function: got \"ask\", want \"jq\"\n" +
				"    message: got \"GET ${HOST}/n/2: status 404 Not Found\", want one with \"Gone\" in it\n    attempts: got \"1\", want \"2\"\n" +
				"    status: got \"404\", want \"410\"\n    topic: got \"errors\", want \"e\"\n    it is of event 1, want one of event 2\n" +
				"    it says: not_found in ask, \"GET ${HOST}/n/2: status 404 Not Found\"",
			"errors: event 2 has an error event that is not expected: invalid_event in source, ",
		}},
		{name: "an error event that is missing", c: cases.Case{
			Events: in{{Value: `{"n":1}`}}, Outputs: out{{}}, Errors: []cases.Failure{{}},
		}, want: []string{"errors[0]: there is no such error event"}},
		{name: "drops", c: cases.Case{Events: in{{Value: `{"n":0}`}}}, want: []string{"dropped: dropped: event 1 by filter; want 0"}},
		{name: "drops of other events", c: cases.Case{
			Events: in{{Value: `{"n":0}`}, {Value: `{"n":1}`}}, Outputs: out{{}}, Dropped: cases.Dropped{Events: []int{2}},
		}, want: []string{"dropped: dropped: event 1 by filter; want event 2"}},
		{name: "a tombstone", c: cases.Case{
			Events:  in{{Tombstone: true, Key: "k", Topic: "in"}},
			Outputs: out{{Value: "{}", Key: "k"}},
		}, want: []string{
			"outputs[0]: there is no such output\n    event 1 became an error event: missing_field in sink",
			"errors: event 1 has an error event that is not expected: missing_field in sink",
		}},
		{name: "a value that is no JSON", c: cases.Case{
			Events: in{{Value: `{"n":1}`}}, Outputs: out{{Value: "one"}},
		}, want: []string{"outputs[0]: output 1, of event 1, differs:\n    got \"{\\\"n\\\":1,\\\"m\\\":2}\", want \"one\""}},
		{name: "an answer that nothing asks for", c: cases.Case{
			Events: in{{Value: `{"n":1}`}}, Outputs: out{{}}, HTTP: ok,
		}, want: []string{"http[0]: nothing asked for this answer: GET https://api.example/n/2?v=1&kind=x"}},
		{name: "a request without an answer, and the nearest", c: cases.Case{
			Events: in{{Value: `{"n":1}`}, {Value: `{"n":3,"kind":"y"}`}},
			HTTP:   net{{Request: "http://h/n/3"}, {Request: "POST https://api.example/n/3?kind=z", RequestHeaders: map[string]string{"authorization": "Basic x"}}},
		}, want: []string{
			"http[1]: a request has no answer: GET https://api.example/n/3?kind=y&v=1 (ask, event 2, attempt 1)\n" +
				"    the nearest answer is that of POST https://api.example/n/3?kind=z\n    method: asked for \"GET\", the answer is for \"POST\"\n" +
				"    ?kind: asked for \"y\", the answer is for \"z\"\n    ?v: asked for \"1\", the answer is for a request without it\n" +
				"    header authorization: asked for \"Bearer open-sesame\", the answer is for \"Basic x\"",
		}},
		{name: "a request more than the answers allow", c: cases.Case{
			Events: in{{Value: `{"n":2}`}, {Value: `{"n":2}`}}, HTTP: net{{Request: two, Times: 1}},
		}, want: []string{"http[0]: a request has no answer any more: all that fit it were given: GET https://api.example/n/2?kind=x&v=1 (ask, event "}},
		{name: "an event that never ends", c: cases.Case{
			Events: in{{Value: `{"n":2}`}}, HTTP: net{{Request: two, Status: 429, Headers: map[string]string{"retry-after": "60"}}},
		}, want: []string{"events[0]: event 1 came to no end: after 24h0m0s of virtual time it is still tried\nrequests that were made:\n" +
			"    +0s GET https://api.example/n/2?kind=x&v=1 (ask, event 1, attempt 1): http[0] answers 429\n    +1m0s GET"}},
	}
	p := load(t, "testdata/a.yaml")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, p, tt.c)
			if len(got) != len(tt.want) {
				t.Fatalf("got %d findings:\n%s\nwant %d:\n%s", len(got), strings.Join(got, "\n"), len(tt.want), strings.Join(tt.want, "\n"))
			}
			for i, w := range tt.want {
				if !strings.HasPrefix(got[i], w) {
					t.Errorf("got\n%s\nwant\n%s", got[i], w)
				}
			}
		})
	}
}

// insists asks until it has an answer.
type insists struct{ http *http.Client }

// MaxAttempts implements functions.Attempter.
func (insists) MaxAttempts() int { return -1 }

// Process implements event.Func.
func (f insists) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h/"+string(ev.Value()), nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, event.Retry(err, time.Millisecond)
	}
	return []*event.Event{ev}, resp.Body.Close()
}

// A request without an answer ends the case, however often a function would ask again, and what is asked at the same time
// is told too.
func TestARequestWithoutAnAnswerEndsTheCase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "i.yaml")
	if err := os.WriteFile(file, []byte("name: i\nsource: {file: {path: in}}\nprocess: [{insists: {}}]\nsink: {file: {path: out}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := load(t, file, functions.New("insists", "asks again", func(env functions.Env, _ struct{}) (event.Func, error) { return insists{env.HTTP}, nil }))
	c := cases.Case{Name: "x", Events: in{{Value: "1"}, {Value: "2"}}}
	findings, err := c.Run(new(testing.T), p, cases.Options{Real: 20 * time.Second})
	if err != nil || len(findings) != 2 {
		t.Fatalf("got %v and %v, want a finding for each event", findings, err)
	}
	for _, f := range findings {
		if !strings.HasPrefix(f.Text, "a request has no answer: GET http://h/") || !strings.HasSuffix(f.Text, ", attempt 1)\n    the case has no answers: write them under http") {
			t.Errorf("got %s", f.Text)
		}
	}
}

// Answers that fit a request are given in their turn, and the last again and again; they may be slow, or no answer.
func TestAnswersAreGivenInTheirTurn(t *testing.T) {
	p := load(t, "testdata/a.yaml")
	got := run(t, p, cases.Case{
		Events: in{{Value: `{"n":2}`}, {Value: `{"n":3}`}},
		HTTP: net{
			{Request: two, Error: "connection refused"},
			{Request: two, Status: 500, Times: 2},
			{Request: two, Takes: functions.Duration(11 * time.Second)}, // longer than an attempt may take
			{Request: two, Body: `{"said":1}`},
			{Request: "https://api.example/n/3?kind=x&v=1", BodyFile: "a.yaml", Status: 200},
		},
		Outputs: out{{Value: `{"n":2,"a":{"said":1},"m":4}`}},
		Errors:  []cases.Failure{{Type: "invalid_response", Event: 2}},
	})
	if len(got) > 0 {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// A test file is held as strictly as a pipeline file: each testdata/bad/*.yaml has exactly the problems of its first lines.
func TestBadTestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d bad files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(string(raw)) {
				w, ok := strings.CutPrefix(line, "# want: ")
				if !ok {
					break
				}
				want = append(want, path+":"+strings.TrimSpace(w))
			}
			_, err = cases.Read(path)
			problems, ok := errors.AsType[pipeline.Problems](err)
			if got := problems.Error(); !ok || got != strings.Join(want, "\n") {
				t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
			}
		})
	}
}

// What waits for something outside of the case holds virtual time up, and is told after a real time.
func TestACaseThatDoesNotEndIsTold(t *testing.T) {
	outside := make(chan struct{})
	ended := make(chan struct{})
	waits := functions.New("waits", "waits", func(functions.Env, struct{}) (event.Func, error) {
		return event.FuncOf(func(context.Context, *event.Event) ([]*event.Event, error) {
			<-outside
			close(ended)
			return nil, nil
		}), nil
	})
	file := filepath.Join(t.TempDir(), "w.yaml")
	if err := os.WriteFile(file, []byte("name: w\nsource: {file: {path: in}}\nprocess: [{waits: {}}]\nsink: {file: {path: out}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := cases.Case{Name: "x", Events: in{{Value: "1"}}}
	got, err := c.Run(new(testing.T), load(t, file, waits), cases.Options{Real: time.Millisecond})
	if want := "it does not end in real time"; err != nil || len(got) != 1 || !strings.HasPrefix(got[0].Text, want) {
		t.Errorf("got %v and %v, want %q", got, err, want)
	}
	close(outside)
	<-ended
}

// A case that a program made is checked like one of a file.
func TestACaseInGoIsChecked(t *testing.T) {
	p := load(t, "testdata/a.yaml")
	for want, c := range map[string]cases.Case{
		"events: names no event":                 {},
		"events[0]: want one of value":           {Events: in{{}}},
		"want a time such as":                    {Events: in{{Value: "1", Timestamp: "noon"}}},
		"http[0]: request: want method and URL":  {Events: in{{Value: "1"}}, HTTP: net{{Request: "x"}}},
		"outputs[0]: want one of value":          {Events: in{{Value: "1"}}, Outputs: out{{Value: "1", Tombstone: true}}},
		"events[0].file: open testdata/nope":     {Events: in{{File: "nope"}}},
		"http[0]: open testdata/nope":            {Events: in{{Value: "1"}}, HTTP: net{{Request: two, BodyFile: "nope"}}},
		"now: the clock of a case runs from 200": {Events: in{{Value: "1"}}, Now: "1999-12-31T23:59:59Z"},
	} {
		c.Name = "a case"
		if got, err := c.Run(t, p, cases.Options{Dir: "testdata"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v and %v, want %q", got, err, want)
		}
	}
}

// Either of the two files stands for both.
func TestATestFileStandsBesideItsPipeline(t *testing.T) {
	for _, named := range []string{"d/p.yaml", "d/p_test.yaml"} {
		if of, in := cases.Names(named); of != "d/p.yaml" || in != "d/p_test.yaml" {
			t.Errorf("%s: got %s and %s", named, of, in)
		}
	}
}
