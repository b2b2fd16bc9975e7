package pipeline

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// encodingHeader says that raw_event of the document is base64 because the value was no UTF-8.
const encodingHeader = "enricher.error.raw_event"

// platformError is the document error/2.1.0 of Wikimedia's event platform.
type platformError struct {
	Schema            string       `json:"$schema"`
	Meta              platformMeta `json:"meta"`
	Dt                string       `json:"dt"`
	EmitterID         string       `json:"emitter_id"`
	ErrorType         string       `json:"error_type"`
	Message           string       `json:"message"`
	ErroredSchemaURI  string       `json:"errored_schema_uri,omitempty"`
	ErroredStreamName string       `json:"errored_stream_name,omitempty"`
	RawEvent          *string      `json:"raw_event,omitempty"`
}

type platformMeta struct {
	Stream    string `json:"stream"`
	Dt        string `json:"dt"`
	Domain    string `json:"domain,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	URI       string `json:"uri,omitempty"`
}

// Paths of an event that the document repeats.
var (
	schemaPath    = mustPath(`.["$schema"]`)
	streamPath    = mustPath(".meta.stream")
	domainPath    = mustPath(".meta.domain")
	requestIDPath = mustPath(".meta.request_id")
	uriPath       = mustPath(".meta.uri")
)

func mustPath(text string) event.Path {
	p, err := event.ParsePath(text)
	if err != nil {
		panic(err) // the texts are above
	}
	return p
}

// platformFormat makes the error event of format: event_platform: the headers of the usual form, and
// the document as its value.
func platformFormat(stream string) streammanager.ErrorFormat {
	return func(f *streammanager.Failure) (*event.Event, error) {
		ev, err := streammanager.RecordFormat(f)
		if err != nil {
			return nil, err
		}
		at := f.Time.UTC().Format(time.RFC3339Nano)
		in := f.Input.Share()
		doc := platformError{
			Schema: "/error/2.1.0", Dt: at, EmitterID: f.Pipeline, ErrorType: string(f.Type), Message: f.Message,
			Meta: platformMeta{
				Stream: stream, Dt: at, Domain: textAt(in, domainPath), RequestID: textAt(in, requestIDPath), URI: textAt(in, uriPath),
			},
			ErroredSchemaURI: textAt(in, schemaPath), ErroredStreamName: textAt(in, streamPath),
		}
		if v := in.Value(); v != nil {
			raw := string(v)
			if !utf8.Valid(v) {
				raw = base64.StdEncoding.EncodeToString(v)
				ev.SetHeaders(append(ev.Headers(), event.Header{Key: encodingHeader, Value: []byte("base64")}))
			}
			doc.RawEvent = &raw
		}
		value, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("encoding the error document: %w", err)
		}
		ev.SetValue(value)
		return ev, nil
	}
}

// textAt returns the string at p, "" where there is none or the value is not JSON: an error event is
// often made of just such a value.
func textAt(ev *event.Event, p event.Path) string {
	if ev.Tombstone() {
		return ""
	}
	raw, err := ev.Get(p)
	if err != nil || len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	text, err := event.Unquote(raw)
	if err != nil {
		return ""
	}
	return text
}
