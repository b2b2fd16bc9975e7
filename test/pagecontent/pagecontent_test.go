// Package pagecontent_test shows what becomes of real events of mediawiki.page_change.v1 in the example
// pipeline, examples/page-content.yaml: one case each, from the record that is read to the record that is
// written, byte for byte. The broker is the one inside the process; the API is a stub that answers for
// every host over TLS, so that the example's URL and its allow_hosts are those of production.
package pagecontent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// edit replaces one text, which is there once, with another.
type edit struct{ old, new string }

func edited(t *testing.T, text string, edits []edit) string {
	t.Helper()
	for _, e := range edits {
		if n := strings.Count(text, e.old); n != 1 {
			t.Fatalf("%q is %d times in the event, want once:\n%s", e.old, n, text)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text
}

// The real events.
const (
	twoSlots   = "../../cli/demo/data/mediainfo-edit-mediainfo-item.json"
	edits      = "../../cli/demo/data/wikibase-item-edit.json"
	deleted    = "../../cli/demo/data/wikibase-item-delete.json"
	undeleted  = "../../cli/demo/data/wikibase-item-undelete.json"
	visibility = "../../cli/demo/data/wikibase-item-visibility-change.json"
	oldStream  = "testdata/schema-1.3.0-example.json"
)

// content is the text of a revision, spelled as the API spells it.
const content = `"== Iris ==\nfoetidissima \u2014 caf\u00e9, 5 < 6 & \"red\" \/ \ud83c\udf3a"`

func found(rev string) string {
	return `{"batchcomplete":true,"query":{"pages":[{"pageid":114491269,"ns":6,"title":"File:X","revisions":[{"revid":` + rev +
		`,"parentid":1,"slots":{"main":{"contentmodel":"wikitext","contentformat":"text/x-wiki","content":` + content + `}}}]}]}}`
}

func asked(host, rev string) string {
	return "GET https://" + host + "/w/api.php?action=query&format=json&formatversion=2&prop=revisions&rvprop=ids%7Ccontent&rvslots=main&revids=" + rev
}

var (
	// passed is what happens to every event that leaves by the sink.
	passed = edit{`"stream":"mediawiki.page_change.v1"`, `"stream":"mediawiki.page_content_change.v1"`}
	// enrichedEdit is what happens beside it to the event of wikibase-item-edit.json.
	enrichedEdit = edit{`"origin_rev_id":686139}`, `"origin_rev_id":686139,"content_body":` + content + `}`}
)

// failed returns the headers of an error event of the function that fetches the content.
func failed(kind, message, function, attempts, status string) []string {
	out := []string{
		"enricher.error.type: " + kind, "enricher.error.message: " + message, "enricher.error.function: " + function,
		"enricher.error.attempts: " + attempts,
	}
	if status != "" {
		out = append(out, "enricher.error.status: "+status)
	}
	return out
}

type pageCase struct {
	name    string
	event   string // file of a real event
	value   string // in its place
	given   []edit // makes the case of the real event
	headers []kgo.RecordHeader
	answers []answer
	calls   []string
	outcome string
	want    []edit   // what differs in the output
	fails   []string // the headers that say what failed
}

var cases = []pageCase{
	{
		name: "of two slots main gets its content and the other is untouched", event: twoSlots,
		answers: []answer{{body: found("934984984")}},
		calls:   []string{asked("commons.wikimedia.org", "934984984")},
		outcome: "emitted",
		want:    []edit{passed, {`"origin_rev_id":934984984}`, `"origin_rev_id":934984984,"content_body":` + content + `}`}},
	},
	{
		name: "a deleted page passes without a call", event: deleted,
		outcome: "emitted", want: []edit{passed},
	},
	{
		name: "an undeleted page gets its content", event: undeleted,
		answers: []answer{{body: found("686140")}},
		calls:   []string{asked("test.wikidata.org", "686140")},
		outcome: "emitted",
		want:    []edit{passed, {`"origin_rev_id":686140}`, `"origin_rev_id":686140,"content_body":` + content + `}`}},
	},
	{
		name: "a hidden revision passes without a call", event: visibility,
		given:   []edit{{`"is_content_visible":true`, `"is_content_visible":false`}},
		outcome: "emitted", want: []edit{passed},
	},
	{
		name: "a canary event is dropped", event: edits,
		given:   []edit{{`"domain":"test.wikidata.org"`, `"domain":"canary"`}},
		outcome: "dropped",
	},
	{
		name: "a host that is not allowed is rejected without a connection", event: oldStream,
		outcome: "error",
		fails:   failed("rejected", `host "examplewiki" is not allowed: allow_hosts does not name it`, "content", "1", ""),
	},
	{
		name: "a host that ends like an allowed one is rejected", event: edits,
		given:   []edit{{`"domain":"test.wikidata.org"`, `"domain":"evilwikidata.org"`}},
		outcome: "error",
		fails:   failed("rejected", `host "evilwikidata.org" is not allowed: allow_hosts does not name it`, "content", "1", ""),
	},
	{
		name: "a domain that is more than a host is rejected", event: edits,
		given:   []edit{{`"domain":"test.wikidata.org"`, `"domain":"evil.example/?.wikidata.org"`}},
		outcome: "error",
		fails:   failed("rejected", `"evil.example/?.wikidata.org" cannot be part of a host: only a name and a port may stand there`, "content", "1", ""),
	},
	{
		name: "badrevids in a 200 is not found", event: edits,
		answers: []answer{{body: `{"batchcomplete":true,"query":{"badrevids":{"686139":{"revid":686139,"missing":true}}}}`}},
		calls:   []string{asked("test.wikidata.org", "686139")},
		outcome: "error",
		fails:   failed("not_found", `GET test.wikidata.org/w/api.php: the answer has nothing at ".query.pages[0].revisions[0].slots.main.content": "{\"batchcomplete\":true,\"query\":{\"badrevids\":{\"686139\":{\"revid\":686139,\"missing\":true}}}}"`, "content", "1", "200"),
	},
	{
		name: "a 404 is not found", event: edits,
		answers: []answer{{status: 404, body: "no such wiki"}},
		calls:   []string{asked("test.wikidata.org", "686139")},
		outcome: "error",
		fails:   failed("not_found", `GET test.wikidata.org/w/api.php: status 404 Not Found: "no such wiki"`, "content", "1", "404"),
	},
	{
		name: "an event that was refused by 429 gets its content later", event: edits,
		answers: []answer{{status: 429, header: map[string]string{"Retry-After": "1"}}, {body: found("686139")}},
		calls:   []string{asked("test.wikidata.org", "686139"), asked("test.wikidata.org", "686139")},
		outcome: "emitted", want: []edit{passed, enrichedEdit},
	},
	{
		name: "a server that stays broken is asked five times", event: edits,
		answers: []answer{{status: 503, body: "readonly"}},
		calls: []string{
			asked("test.wikidata.org", "686139"), asked("test.wikidata.org", "686139"), asked("test.wikidata.org", "686139"),
			asked("test.wikidata.org", "686139"), asked("test.wikidata.org", "686139"),
		},
		outcome: "error",
		fails:   failed("unexpected_status", `GET test.wikidata.org/w/api.php: status 503 Service Unavailable: "readonly"`, "content", "5", "503"),
	},
	{
		name: "an answer that is not JSON is invalid", event: edits,
		answers: []answer{{body: `<!DOCTYPE html>`}},
		calls:   []string{asked("test.wikidata.org", "686139")},
		outcome: "error",
		fails:   failed("invalid_response", `GET test.wikidata.org/w/api.php: the answer is not JSON: not JSON at byte 0: a value is missing: "<!DOCTYPE html>"`, "content", "1", "200"),
	},
	{
		name: "ids above 2^53 are asked for and written as they came", event: edits,
		given: []edit{
			{`"rev_id":686139,"rev_dt"`, `"rev_id":9007199254740993,"rev_dt"`},
			{`"page_id":330275`, `"page_id":18446744073709551617`},
		},
		answers: []answer{{body: found("9007199254740993")}},
		calls:   []string{asked("test.wikidata.org", "9007199254740993")},
		outcome: "emitted", want: []edit{passed, enrichedEdit},
	},
	{
		name: "unknown fields, spellings and white space are untouched", event: edits,
		given: []edit{
			{`{"changelog_kind":`, " {\t" + `"new":{"z":1.0,"a":1e400,"\u00e9":"\/é","twice":1,"twice":2,"n":-0, "l":[ ]}, "changelog_kind":`},
			{`"wiki_id":"testwikidatawiki"`, `"wiki_id" : "\u0074estwikidatawiki"`},
		},
		answers: []answer{{body: found("686139")}},
		calls:   []string{asked("test.wikidata.org", "686139")},
		outcome: "emitted", want: []edit{passed, enrichedEdit},
	},
	{
		name: "headers leave in their order, those of an earlier failure do not", event: deleted,
		headers: []kgo.RecordHeader{
			{Key: "trace", Value: []byte("1")},
			{Key: "enricher.error.type", Value: []byte("timeout")},
			{Key: "a", Value: []byte{}},
			{Key: "trace", Value: []byte("2")},
		},
		outcome: "emitted", want: []edit{passed},
	},
	{
		name: "a failure replaces the headers of an earlier one", event: oldStream,
		headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("1")}, {Key: "enricher.error.status", Value: []byte("500")}},
		outcome: "error",
		fails:   failed("rejected", `host "examplewiki" is not allowed: allow_hosts does not name it`, "content", "1", ""),
	},
	{
		name: "a page without its id has no key", event: edits,
		given:   []edit{{`"page_id":330275,`, ``}},
		outcome: "error",
		fails:   failed("missing_key", `.page.page_id is missing or null, and partition_by names it`, "partition_by", "0", ""),
	},
	{
		name: "a revision without its id is not asked for", event: edits,
		given:   []edit{{`"rev_id":686139,"rev_dt"`, `"rev_dt"`}},
		outcome: "error",
		fails:   failed("missing_field", `\(.revision.rev_id) is missing or null`, "content", "1", ""),
	},
	{
		name: "what is not JSON is an invalid event", value: `{"meta":{"domain":"test.wikidata.org"`,
		outcome: "error",
		fails:   failed("invalid_event", `reading the value: not JSON at byte 37: a comma or closing brace is missing`, "source", "0", ""),
	},
}

// Each event ends as the reader of the example expects.
func TestPageContent(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, example)
		})
	}
}

// The pipeline that the README explains is the example, with a window.
func TestTheREADMEsPipelineDoesTheSame(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, snippet, found := strings.Cut(string(text), "```yaml page-content.yaml\n")
	if !found {
		t.Fatal("the README has no page-content.yaml")
	}
	snippet, _, _ = strings.Cut(snippet, "```\n")
	file := filepath.Join(t.TempDir(), "readme.yaml")
	if err := os.WriteFile(file, []byte(snippet), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, file)
		})
	}
}

// An example that no test runs is one that rots.
func TestEveryExampleIsRunHere(t *testing.T) {
	files, err := filepath.Glob("../../examples/*")
	if err != nil {
		t.Fatal(err)
	}
	sameList(t, "examples", files, []string{example, strings.TrimSuffix(example, ".yaml") + "_test.yaml"}) // package enrichertest runs the latter
}

func (c *pageCase) run(t *testing.T, file string) {
	value := c.value
	if c.event != "" {
		value = edited(t, real(t, c.event), c.given)
	}
	a := newAPI(t, c.answers)
	in := &kgo.Record{
		Topic: source, Key: []byte(`{"wiki_id":"x","page_id":1}`), Value: []byte(value), Headers: c.headers,
		Timestamp: time.UnixMilli(1728329626123),
	}
	got := enrich(t, file, a, in)
	sameList(t, "what was asked for", a.calls, c.calls)
	if len(c.calls) == 0 {
		sameList(t, "connections", a.dialled, nil)
	}
	if got.outcome != c.outcome {
		t.Fatalf("the event was %q, want %q", got.outcome, c.outcome)
	}
	c.check(t, got.record, in)
}

// check compares the record that was written, if one was.
func (c *pageCase) check(t *testing.T, r, in *kgo.Record) {
	t.Helper()
	if c.outcome == "dropped" {
		if r != nil {
			t.Errorf("topic %q got %s", r.Topic, r.Value)
		}
		return
	}
	if r == nil {
		t.Fatal("no record was written")
	}
	var headers []string
	for _, h := range c.headers {
		if !strings.HasPrefix(h.Key, "enricher.error.") {
			headers = append(headers, h.Key+": "+string(h.Value))
		}
	}
	topic := sink
	if c.outcome == "error" {
		topic = errs
		headers = append(append(headers, c.fails...),
			"enricher.error.topic: "+source, fmt.Sprintf("enricher.error.partition: %d", in.Partition), "enricher.error.offset: 0",
			"enricher.error.timestamp: 1728329626123", "enricher.error.pipeline: page-content-enrich")
	}
	same(t, "topic", r.Topic, topic)
	same(t, "key", string(r.Key), string(in.Key))
	same(t, "value", string(r.Value), edited(t, string(in.Value), c.want))
	sameList(t, "headers", headersOf(t, r), headers)
	if c.outcome == "emitted" && !r.Timestamp.Equal(in.Timestamp) {
		t.Errorf("timestamp %v, want the input's, %v", r.Timestamp, in.Timestamp)
	}
	if c.outcome == "error" && time.Since(r.Timestamp) > patient {
		t.Errorf("timestamp %v, want the present", r.Timestamp)
	}
}

// A tombstone passes through and stays one; a value that is there and empty is no tombstone, and does not
// become one.
func TestATombstoneStaysATombstone(t *testing.T) {
	for _, c := range []struct {
		name           string
		value          []byte
		outcome, topic string
	}{
		{"no value", nil, "emitted", sink},
		{"an empty value", []byte{}, "error", errs},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t, nil)
			got := enrich(t, example, a, &kgo.Record{Topic: source, Key: []byte("k"), Value: c.value})
			if got.outcome != c.outcome || got.record == nil || got.record.Topic != c.topic || string(got.record.Key) != "k" {
				t.Fatalf("got %q, %+v", got.outcome, got.record)
			}
			if v := got.record.Value; (v == nil) != (c.value == nil) || len(v) > 0 {
				t.Errorf("value %#v, want %#v", v, c.value)
			}
			sameList(t, "connections", a.dialled, nil)
		})
	}
}
