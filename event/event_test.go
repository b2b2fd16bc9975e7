package event_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

func TestEventGivesBackItsParts(t *testing.T) {
	pos := event.Position{Topic: "t", Partition: 3, Offset: 1 << 40, Epoch: 7}
	at := time.UnixMilli(1700000000123)
	headers := []event.Header{{Key: "h", Value: []byte("1")}, {Key: "x", Value: nil}, {Key: "h", Value: []byte("2")}}
	e := event.New(pos, []byte("key"), []byte("value"), headers, at)
	if string(e.Key()) != "key" || string(e.Value()) != "value" || e.Position() != pos || !e.Timestamp().Equal(at) ||
		!reflect.DeepEqual(e.Headers(), headers) {
		t.Errorf("parts differ from those given: %+v", e)
	}
	if got := e.Size(); got != 3+5+3+2 {
		t.Errorf("Size() = %d, want 13", got)
	}
	if v, ok := e.Header("h"); string(v) != "2" || !ok {
		t.Errorf("Header(h) = %q, %v; want the last", v, ok)
	}
	if v, ok := e.Header("x"); v != nil || !ok {
		t.Errorf("Header(x) = %q, %v; want a null value that is there", v, ok)
	}
	if _, ok := e.Header("H"); ok {
		t.Error("header names differ by case, but H was found")
	}
	e.SetKey(nil)
	e.SetHeaders(nil)
	e.SetTimestamp(at.Add(time.Hour))
	if e.Key() != nil || e.Headers() != nil || !e.Timestamp().Equal(at.Add(time.Hour)) || e.Position() != pos {
		t.Errorf("parts differ from those set: %+v", e)
	}
}

func TestOnlyANullValueIsATombstone(t *testing.T) {
	e := event.New(event.Position{}, nil, []byte{}, nil, time.Time{})
	if e.Tombstone() {
		t.Error("an empty value is no tombstone")
	}
	if c := e.Clone(); c.Tombstone() || c.Key() != nil {
		t.Error("a clone confuses null and empty")
	}
	if e.SetValue(nil); !e.Tombstone() || !e.Clone().Tombstone() {
		t.Error("a null value is a tombstone")
	}
	if err := e.Set(path(t, "."), []byte("1")); err != nil || string(e.Value()) != "1" {
		t.Errorf("setting the root of a tombstone: %s, %v", e.Value(), err)
	}
}

func TestCloneSharesNoBytes(t *testing.T) {
	e := event.New(event.Position{Offset: 5}, []byte("key"), []byte(`{"a":1}`), []event.Header{{Key: "h", Value: []byte("1")}}, time.Time{})
	if err := e.Check(paths(t, ".a")); err != nil {
		t.Fatal(err)
	}
	c := e.Clone()
	for _, b := range [][]byte{c.Key(), c.Value(), c.Headers()[0].Value} {
		for i := range b {
			b[i] = '9'
		}
	}
	c.Headers()[0].Key = "other"
	if string(e.Key()) != "key" || string(e.Value()) != `{"a":1}` || e.Headers()[0].Key != "h" || string(e.Headers()[0].Value) != "1" {
		t.Errorf("writing to a clone changed %+v", e)
	}
	if c.Position() != e.Position() {
		t.Error("a clone lost its position")
	}
}

func TestWhatIsKnownOfAValueEndsWithIt(t *testing.T) {
	e := value(`{"a":1}`)
	ps := paths(t, ".a")
	if err := e.Check(ps); err != nil {
		t.Fatal(err)
	}
	e.SetValue([]byte(`{"bcd":0,"a":22}`))
	if got, err := e.Get(path(t, ".a")); string(got) != "22" || err != nil {
		t.Errorf("Get after SetValue = %s, %v", got, err)
	}
	e.SetValue([]byte(`{`))
	wantType(t, "Check after SetValue", e.Check(ps), event.InvalidEvent)
}

func TestReadingDoesNotLetCallersGrowIntoTheValue(t *testing.T) {
	e := value(`{"a":1,"b":2}`)
	got, err := e.Get(path(t, ".a"))
	if err != nil {
		t.Fatal(err)
	}
	_ = append(got, "xxx"...)
	if string(e.Value()) != `{"a":1,"b":2}` {
		t.Errorf("appending to what Get returned wrote into the value: %s", e.Value())
	}
}

func TestRealEventsAreReadAndKept(t *testing.T) {
	files, err := filepath.Glob("testdata/page_change/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no real events: %v", err)
	}
	const content = ".revision.content_slots.main.content_body"
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e := event.New(event.Position{}, nil, bytes.Clone(raw), nil, time.Time{})
		if err := e.Check(paths(t, ".wiki_id", ".page.page_id", ".meta.domain", ".revision.rev_id", content)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		model := decode(t, raw)
		for _, r := range [][]any{{"wiki_id"}, {"page", "page_id"}, {"meta", "domain"}, {"revision", "rev_id"}, {"page_change_kind"}, {"prior_state", "page"}} {
			wantGet(t, e, model, r)
		}
		if err := e.Set(path(t, content), []byte(`"text \u0026 more"`)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		wantKept(t, raw, e.Value(), 0, len(e.Value())-len(raw))
		if err := e.Delete(path(t, content)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		wantKept(t, raw, e.Value(), 0, len(`,"main":{}`))
	}
}

func TestKindsOfErrorsDecideTheOutcome(t *testing.T) {
	cause := errors.New("cause")
	reject := event.Reject(event.NotFound, cause, event.Status(404))
	tests := []struct {
		name   string
		err    error
		want   event.Type
		status int
	}{
		{"reject", reject, event.NotFound, 404},
		{"reject inside a retry", event.Retry(reject, time.Second), event.NotFound, 404},
		{"reject inside a hold", event.Hold(reject, time.Unix(0, 0)), event.NotFound, 404},
		{"wrapped reject", errors.Join(errors.New("x"), reject), event.NotFound, 404},
		{"formatted reject", event.Rejectf(event.Expression, "x: %w", cause), event.Expression, 0},
		{"retry", event.Retry(cause, time.Second), event.Function, 0},
		{"hold", event.Hold(cause, time.Unix(0, 0)), event.Function, 0},
		{"hold inside a retry", event.Retry(event.Hold(cause, time.Unix(0, 0)), 0), event.Function, 0},
		{"anything else", cause, event.Function, 0},
		{"fatal", event.Fatal(cause), event.Function, 0},
	}
	for _, tt := range tests {
		got := event.AsReject(tt.err)
		if got.Type != tt.want || got.Status != tt.status || !errors.Is(got, cause) {
			t.Errorf("%s: AsReject = %v (status %d), want %s (%d)", tt.name, got, got.Status, tt.want, tt.status)
		}
		if !errors.Is(tt.err, cause) || tt.err.Error() == "" {
			t.Errorf("%s: %q hides its cause", tt.name, tt.err)
		}
	}
	var retry *event.RetryError
	if !errors.As(event.Retry(cause, time.Minute), &retry) || retry.After != time.Minute {
		t.Errorf("Retry lost its wait: %+v", retry)
	}
	var hold *event.HoldError
	if !errors.As(event.Hold(cause, time.Unix(9, 0)), &hold) || !hold.Until.Equal(time.Unix(9, 0)) {
		t.Errorf("Hold lost its end: %+v", hold)
	}
	var fatal *event.FatalError
	if !errors.As(event.Fatal(cause), &fatal) || fatal.Error() != "cause" {
		t.Errorf("Fatal is %v", fatal)
	}
}
