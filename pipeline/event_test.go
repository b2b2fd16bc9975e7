package pipeline_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

func valued(value string) *event.Event {
	return event.New(event.Position{Topic: "in", Partition: 3, Offset: 42}, []byte("k"), []byte(value),
		[]event.Header{{Key: "h", Value: []byte("v")}}, time.UnixMilli(1700000000000))
}

func TestKeysAreTheCanonicalValues(t *testing.T) {
	tests := []struct {
		name, value string
		paths       []string
		want        string
	}{
		{"values in order", `{"b":"x","a":1}`, []string{".a", ".b"}, `[1,"x"]`},
		{"strings unescaped", `{"a":"\u0065n"}`, []string{".a"}, `["en"]`},
		{"numbers as spelled", `{"a":1.0}`, []string{".a"}, `[1.0]`},
		{"large numbers", `{"a":9007199254740993}`, []string{".a"}, `[9007199254740993]`},
		{"objects sorted", `{"a": {"y": 1, "x": [ 2 ]}}`, []string{".a"}, `[{"x":[2],"y":1}]`},
		{"a text is not its number", `{"a":"1"}`, []string{".a"}, `["1"]`},
		{"false is a value", `{"a":false}`, []string{".a"}, `[false]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key, err := pipeline.KeyOf(valued(tt.value), "error", tt.paths...)
			if err != nil || key != (streammanager.Key{Value: tt.want}) {
				t.Errorf("%s by %v: got %+v, %v, want %s", tt.value, tt.paths, key, err, tt.want)
			}
		})
	}
}

func TestMissingKeysFollowThePolicy(t *testing.T) {
	for _, value := range []string{`{"a":1}`, `{"a":1,"b":null}`} {
		if key, err := pipeline.KeyOf(valued(value), "keyless", ".a", ".b"); err != nil || !key.Keyless {
			t.Errorf("keyless %s: got %+v, %v", value, key, err)
		}
		if key, err := pipeline.KeyOf(valued(value), "drop", ".a", ".b"); err != nil || !key.Drop {
			t.Errorf("drop %s: got %+v, %v", value, key, err)
		}
		_, err := pipeline.KeyOf(valued(value), "error", ".a", ".b")
		if r, ok := errors.AsType[*event.RejectError](err); !ok || r.Type != event.MissingKey {
			t.Errorf("error %s: got %v", value, err)
		}
	}
}

// platformKeys are the properties that error/2.1.0 knows; it allows no others.
var platformKeys = []string{
	"$schema", "dt", "emitter_id", "error_type", "errored_schema_uri", "errored_stream_name", "message", "meta", "raw_event",
	"stack", "triggered_by",
}

func TestPlatformErrors(t *testing.T) {
	real := `{"$schema":"/mediawiki/page/change/1.3.0","meta":{"stream":"mediawiki.page_change.v1","domain":"en.wikipedia.org","request_id":"r","uri":"https://en.wikipedia.org/wiki/A"}}`
	tests := []struct {
		name, value, raw, schema, stream string
		encoded                          bool
	}{
		{"an event names its schema and stream", real, real, "/mediawiki/page/change/1.3.0", "mediawiki.page_change.v1", false},
		{"not JSON", `{"a":`, `{"a":`, "", "", false},
		{"no object", `[1]`, `[1]`, "", "", false},
		{"invalid UTF-8 goes base64", "{\"a\":\"\xff\"}", base64.StdEncoding.EncodeToString([]byte("{\"a\":\"\xff\"}")), "", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev, err := pipeline.PlatformFormat("errors.stream")(&streammanager.Failure{
				Input: valued(tt.value), Type: event.NotFound, Function: "content", Message: "nothing there", Attempts: 2, Status: 404,
				Time: time.Unix(1700000001, 0), Pipeline: "job",
			})
			if err != nil {
				t.Fatal(err)
			}
			var doc map[string]any
			if err := json.Unmarshal(ev.Value(), &doc); err != nil {
				t.Fatalf("document %q: %v", ev.Value(), err)
			}
			for k := range maps.Keys(doc) {
				if !slices.Contains(platformKeys, k) {
					t.Errorf("the schema knows no %q", k)
				}
			}
			get := func(k string) string { s, _ := doc[k].(string); return s }
			if get("raw_event") != tt.raw || get("errored_schema_uri") != tt.schema || get("errored_stream_name") != tt.stream {
				t.Errorf("document: got %s", ev.Value())
			}
			if get("$schema") != "/error/2.1.0" || get("emitter_id") != "job" || get("message") != "nothing there" ||
				get("error_type") != "not_found" || get("dt") != "2023-11-14T22:13:21Z" || doc["meta"].(map[string]any)["stream"] != "errors.stream" {
				t.Errorf("document: got %s", ev.Value())
			}
			if h, _ := ev.Header("enricher.error.type"); string(h) != "not_found" || string(ev.Key()) != "k" {
				t.Errorf("headers and key of the usual form are missing: %v", ev.Headers())
			}
			if _, ok := ev.Header("enricher.error.raw_event"); ok != tt.encoded {
				t.Errorf("header for base64: got %v, want %v", ok, tt.encoded)
			}
		})
	}
}
