package demo

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/a0c75104/enricher/event"
)

// data holds real events of mediawiki.page_change.v1.
//
//go:embed data/*.json
var data embed.FS

const (
	firstRevision = 1_000_000
	pages         = 500
)

// Paths that differ from event to event.
var (
	wikiID  = mustPath(".wiki_id")
	pageID  = mustPath(".page.page_id")
	revID   = mustPath(".revision.rev_id")
	visible = mustPath(".revision.is_content_visible")
	at      = mustPath(".dt")
	domain  = mustPath(".meta.domain")
	metaID  = mustPath(".meta.id")
)

func mustPath(text string) event.Path {
	p, err := event.ParsePath(text)
	if err != nil {
		panic(err)
	}
	return p
}

// templates returns the real events, each on one line.
func templates() ([][]byte, error) {
	entries, err := data.ReadDir("data")
	if err != nil {
		return nil, fmt.Errorf("reading the demo's events: %w", err)
	}
	var out [][]byte
	for _, e := range entries {
		text, err := data.ReadFile("data/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the demo's events: %w", err)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, text); err != nil {
			return nil, fmt.Errorf("reading the demo's event %q: %w", e.Name(), err)
		}
		out = append(out, line.Bytes())
	}
	return out, nil
}

// writeEvents writes n events made from the real ones, a line each: edits and the like of some hundred
// pages, with a canary in a hundred and, here and there, a page without its id.
func writeEvents(w io.Writer, n int) error {
	real, err := templates()
	if err != nil {
		return err
	}
	for i := range n {
		ev, err := madeFrom(real[i%len(real)], i)
		if err != nil {
			return fmt.Errorf("making event %d of the demo: %w", i, err)
		}
		if _, err := w.Write(append(ev.Value(), '\n')); err != nil {
			return fmt.Errorf("writing event %d of the demo: %w", i, err)
		}
	}
	return nil
}

// madeFrom returns the event of number i.
func madeFrom(real []byte, i int) (*event.Event, error) {
	when := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Second)
	page := 1 + i*7919%pages
	wiki, host := "commonswiki", "commons.wikimedia.org"
	if page%2 == 0 {
		wiki, host = "testwikidatawiki", "test.wikidata.org"
	}
	if i%100 == 50 {
		host = "canary"
	}
	ev := event.New(event.Position{}, nil, real, nil, when)
	for _, set := range []struct {
		path event.Path
		raw  string
	}{
		{wikiID, strconv.Quote(wiki)},
		{domain, strconv.Quote(host)},
		{pageID, strconv.Itoa(page)},
		{revID, strconv.Itoa(firstRevision + i)},
		{visible, strconv.FormatBool(i%40 != 9)},
		{at, strconv.Quote(when.Format(time.RFC3339))},
		{metaID, fmt.Sprintf(`"00000000-0000-4000-8000-%012d"`, i)},
	} {
		if err := ev.Set(set.path, []byte(set.raw)); err != nil {
			return nil, err
		}
	}
	if i%1000 == 333 {
		return ev, ev.Delete(pageID)
	}
	return ev, nil
}
