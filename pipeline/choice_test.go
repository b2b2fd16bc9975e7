package pipeline_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

const chooser = "name: job\nkafka: {brokers: [\"127.0.0.1:1\"]}\nsource: {kafka: {topics: [in], group: g}}\nsink: {file: {path: out}}\nerror_sink: {kafka: {topic: job.error}}\n"

func TestEqualFiltersHaveOnePosition(t *testing.T) {
	p := mustLoad(t, chooser)
	group := func(o pipeline.ReplayOptions) string {
		t.Helper()
		r, err := p.Replay(o)
		if err != nil {
			t.Fatal(err)
		}
		return r.Group()
	}
	if got := group(pipeline.ReplayOptions{Topics: []string{"elsewhere"}}); got != "g-replay" {
		t.Errorf("without a filter: got %q", got)
	}
	equal := [][]pipeline.ReplayOptions{
		{{Types: []string{"timeout,not_found"}}, {Types: []string{"not_found", "timeout"}}, {Types: []string{" not_found , timeout", "timeout"}}},
		{{Types: []string{"timeout"}}},
		{{Functions: []string{"timeout"}}},
		{{Pipelines: []string{"timeout"}}},
		{{Since: "2026-01-31T08:00:00Z"}, {Since: "2026-01-31T09:00:00+01:00"}, {Since: "1769846400000"}},
		{{Until: "2026-01-31T08:00:00Z"}},
		{{Since: "-24h"}, {Since: "-1440m"}},
		{{Where: ".a == 1 and ($headers|length)>0"}, {Where: ".a==1 and ($headers | length) > 0 # some"}},
		{{Where: ".a == 2"}},
		{{Types: []string{"timeout"}, Where: ".a == 2"}},
	}
	seen := map[string]int{}
	for i, same := range equal {
		first := group(same[0])
		if !strings.HasPrefix(first, "g-replay-") {
			t.Errorf("%+v: group %q", same[0], first)
		}
		if j, taken := seen[first]; taken {
			t.Errorf("%+v has the position of %+v", same[0], equal[j][0])
		}
		seen[first] = i
		for _, o := range same[1:] {
			if got := group(o); got != first {
				t.Errorf("%+v: group %q, and %q for the same in other words %+v", o, got, first, same[0])
			}
		}
	}
}

func TestAReplayChoosesByWhatTheErrorEventSays(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	failure := func(value string) *streammanager.Failure {
		var v []byte
		if value != "null" {
			v = []byte(value)
		}
		in := event.New(event.Position{Topic: "in", Partition: 2, Offset: 7}, []byte("k"), v, []event.Header{{Key: "h", Value: []byte("v")}}, time.UnixMilli(1000))
		return &streammanager.Failure{Input: in, Type: "timeout", Function: "look", Message: "m", Time: at, Pipeline: "job"}
	}
	more := func(name, value string) func(*streammanager.Record) {
		return func(r *streammanager.Record) {
			r.Headers = append(slices.Clone(r.Headers), event.Header{Key: name, Value: []byte(value)})
		}
	}
	for _, c := range []struct {
		name  string
		o     pipeline.ReplayOptions
		value string
		spoil func(*streammanager.Record)
		want  string
	}{
		{name: "all", want: "chosen"},
		{name: "its type", o: pipeline.ReplayOptions{Types: []string{"not_found,timeout"}}, want: "chosen"},
		{name: "another type", o: pipeline.ReplayOptions{Types: []string{"not_found"}}, want: "passed"},
		{name: "its function", o: pipeline.ReplayOptions{Functions: []string{"look"}}, want: "chosen"},
		{name: "another function", o: pipeline.ReplayOptions{Functions: []string{"loo"}}, want: "passed"},
		{name: "since its time", o: pipeline.ReplayOptions{Since: "2026-03-01T12:00:00.000000005Z"}, want: "chosen"},
		{name: "since a later time", o: pipeline.ReplayOptions{Since: "2026-03-01T12:00:00.000000006Z"}, want: "passed"},
		{name: "until its time", o: pipeline.ReplayOptions{Until: "2026-03-01T12:00:00.000000005Z"}, want: "passed"},
		{name: "until a later time", o: pipeline.ReplayOptions{Until: "2026-03-01T12:00:00.000000006Z"}, want: "chosen"},
		{name: "an event that is wanted", o: pipeline.ReplayOptions{Where: `.a == 1 and $headers.h == "v" and $topic == "in" and $partition == 2 and $offset == 7 and $key == "k" and $timestamp == 1000 and $pipeline == "job"`}, want: "chosen"},
		{name: "an event that is not wanted", o: pipeline.ReplayOptions{Where: ".a == 2"}, want: "passed"},
		{name: "an event that is not JSON, and nobody asks", value: "\xff{", want: "chosen"},
		{name: "an event that is not JSON, and is asked for", o: pipeline.ReplayOptions{Where: ".a == 1"}, value: "\xff{", want: "unanswered"},
		{name: "a tombstone", value: "null", want: "chosen"},
		{name: "an empty value", value: "", want: "chosen"},
		{name: "of another pipeline", spoil: more("enricher.error.pipeline", "other"), want: "of others"},
		{name: "of another pipeline that is named", o: pipeline.ReplayOptions{Pipelines: []string{"other"}}, spoil: more("enricher.error.pipeline", "other"), want: "chosen"},
		{name: "of the own pipeline where another is named", o: pipeline.ReplayOptions{Pipelines: []string{"other"}}, want: "of others"},
		{name: "cut", spoil: more("enricher.error.truncated", "1000"), want: "cut"},
		{name: "cut, and not wanted", o: pipeline.ReplayOptions{Types: []string{"not_found"}}, spoil: more("enricher.error.truncated", "1000"), want: "passed"},
		{name: "no error event", spoil: func(r *streammanager.Record) { r.Headers = nil }, want: "foreign"},
		{name: "no number", spoil: more("enricher.error.offset", "x"), want: "foreign"},
	} {
		for _, platform := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, platform %v", c.name, platform), func(t *testing.T) {
				value := c.value
				if value == "" && c.name != "an empty value" {
					value = `{"a": 1, "b": "<é\u0000> "}`
				}
				rec, err := pipeline.ErrorRecord(failure(value), platform)
				if err != nil {
					t.Fatal(err)
				}
				if c.spoil != nil {
					c.spoil(&rec)
				}
				if platform && strings.Contains(c.name, "named") && c.spoil != nil {
					rec.Value = []byte(strings.Replace(string(rec.Value), `"emitter_id":"job"`, `"emitter_id":"other"`, 1))
				}
				r, err := mustLoad(t, chooser).Replay(c.o)
				if err != nil {
					t.Fatal(err)
				}
				got, verdict, err := r.Judge(&rec)
				if verdict != c.want || (err != nil) != slices.Contains([]string{"foreign", "cut", "unanswered"}, verdict) {
					t.Errorf("got %s, %v, want %s", verdict, err, c.want)
				}
				if verdict != "chosen" {
					return
				}
				if (got.Value == nil) != (value == "null") || value != "null" && string(got.Value) != value {
					t.Errorf("value: got %q, want %q", got.Value, value)
				}
				if string(got.Key) != "k" || len(got.Headers) != 1 || got.Topic != "in" || got.Partition != 2 || got.Offset != 7 || got.Timestamp.UnixMilli() != 1000 {
					t.Errorf("got %+v", got)
				}
			})
		}
	}
}

func TestADamagedDocumentIsNotSentAsIfItWereTheEvent(t *testing.T) {
	in := event.New(event.Position{}, nil, []byte("\xff"), nil, time.Now())
	rec, err := pipeline.ErrorRecord(&streammanager.Failure{Input: in, Type: "timeout", Time: time.Now(), Pipeline: "job"}, true)
	if err != nil {
		t.Fatal(err)
	}
	r, err := mustLoad(t, chooser).Replay(pipeline.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, verdict, err := r.Judge(&rec); verdict != "chosen" || string(got.Value) != "\xff" {
		t.Fatalf("got %s %q %v", verdict, got.Value, err)
	}
	for _, change := range []struct{ from, to string }{{`"/w=="`, `"*"`}, {`{"$schema"`, `{"schema"`}} {
		bad := rec
		bad.Value = []byte(strings.Replace(string(rec.Value), change.from, change.to, 1))
		if string(bad.Value) == string(rec.Value) {
			t.Fatalf("%q is not in %s", change.from, rec.Value)
		}
		if _, verdict, err := r.Judge(&bad); verdict != "foreign" || err == nil {
			t.Errorf("%s: got %s, %v", bad.Value, verdict, err)
		}
	}
}

func TestFaultsOfAReplaysFlagsAreSaid(t *testing.T) {
	for _, c := range []struct {
		o    pipeline.ReplayOptions
		want string
	}{
		{pipeline.ReplayOptions{Since: "1700000000"}, "--since: 1700000000 is 1970-01-20: milliseconds are wanted, write 1700000000000"},
		{pipeline.ReplayOptions{Until: "-7d"}, `--until: "-7d" is no age, whose longest unit is the hour: write -168h`},
		{pipeline.ReplayOptions{Since: "latest"}, `--since: "latest" is no time`},
		{pipeline.ReplayOptions{Until: "2200-01-01T00:00:00Z"}, "--until: 2200-01-01T00:00:00Z lies in the future"},
		{pipeline.ReplayOptions{Since: "-1h", Until: "-2h"}, "--since: nothing lies between -1h and -2h"},
		{pipeline.ReplayOptions{Where: ".a ="}, "--where: "},
		{pipeline.ReplayOptions{Where: ".a = 1"}, "did you mean ==?"},
		{pipeline.ReplayOptions{Types: []string{""}}, "--type: "},
		{pipeline.ReplayOptions{Topics: []string{"a b"}}, "--topic: "},
	} {
		_, err := mustLoad(t, chooser).Replay(c.o)
		var flag *pipeline.FlagError
		if !errors.As(err, &flag) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
}

// A job may work on the error events of others, and fail.
func TestAnEventThatIsAnErrorDocumentItselfStaysWhatItWas(t *testing.T) {
	in := event.New(event.Position{}, nil, []byte(`{"a": 1}`), nil, time.Now())
	first, err := pipeline.ErrorRecord(&streammanager.Failure{Input: in, Type: "timeout", Time: time.Now().Add(-time.Hour), Pipeline: "job"}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []bool{false, true} {
		ev := event.New(event.Position{}, nil, first.Value, nil, time.Now())
		rec, err := pipeline.ErrorRecord(&streammanager.Failure{Input: ev, Type: "timeout", Time: time.Now(), Pipeline: "job"}, platform)
		if err != nil {
			t.Fatal(err)
		}
		r, err := mustLoad(t, chooser).Replay(pipeline.ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, verdict, err := r.Judge(&rec); verdict != "chosen" || string(got.Value) != string(first.Value) {
			t.Errorf("platform %v: got %s %q %v, want %q", platform, verdict, got.Value, err, first.Value)
		}
	}
}

func TestARecordThatIsReadAgainCountsOnce(t *testing.T) {
	r, err := mustLoad(t, chooser).Replay(pipeline.ReplayOptions{Types: []string{"timeout"}})
	if err != nil {
		t.Fatal(err)
	}
	in := event.New(event.Position{}, nil, []byte(`{}`), nil, time.Now())
	for range 2 {
		for i, typ := range []event.Type{"timeout", "not_found", "timeout"} {
			rec, err := pipeline.ErrorRecord(&streammanager.Failure{Input: in, Type: typ, Time: time.Now(), Pipeline: "job"}, false)
			if err != nil {
				t.Fatal(err)
			}
			rec.Offset = int64(i)
			if _, keep := r.Open(&rec); keep != (typ == "timeout") {
				t.Errorf("offset %d of type %s: kept %v", i, typ, keep)
			}
		}
		if _, keep := r.Open(&streammanager.Record{Topic: "e", Offset: 3, Marker: true}); keep {
			t.Error("a marker was taken for an event")
		}
	}
	if got := r.Tally(); got.Looked != 3 || got.Chosen["timeout"] != 2 || got.PassedOver["not_found"] != 1 {
		t.Errorf("counted %+v", got)
	}
}

func TestRecordsForWhichWhereFailsAreToldOfOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := mustLoad(t, chooser).Replay(pipeline.ReplayOptions{Where: ".a.b == 1"})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		r.LogTo(slog.New(slog.NewTextHandler(&out, nil)))
		look := func(offset int64) {
			rec, err := pipeline.ErrorRecord(&streammanager.Failure{
				Input: event.New(event.Position{}, nil, []byte(`{"a": 1}`), nil, time.Now()), Type: "timeout", Time: time.Now(), Pipeline: "job",
			}, false)
			if err != nil {
				t.Fatal(err)
			}
			rec.Offset = offset
			r.Open(&rec)
		}
		for i := range 5 {
			look(int64(i))
		}
		time.Sleep(time.Minute)
		look(5)
		look(6)
		if n := strings.Count(out.String(), "level=WARN"); n != 2 || strings.Count(out.String(), "--where failed for it") != 2 || !strings.Contains(out.String(), "more_before=4") {
			t.Errorf("%d warnings:\n%s", n, out.String())
		}
		if got := r.Tally().Unanswered; got != 7 {
			t.Errorf("%d counted, want 7", got)
		}
	})
}
