package demo

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/a0c75104/enricher/event"
)

// data holds real events of mediawiki.page_change.v1.
//
//go:embed data/*.json
var data embed.FS

const (
	firstRevision = 1_000_000
	pages         = 1_000
)

// Paths that differ from event to event.
var (
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

// writeEvents writes n events made from the real ones, a line each: edits and the like of a thousand
// pages, with a canary in a hundred and, here and there, a page without its id.
func writeEvents(w io.Writer, n int) error {
	real, err := templates()
	if err != nil {
		return err
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		ev := event.New(event.Position{}, nil, real[i%len(real)], nil, start)
		sets := []struct {
			path event.Path
			raw  string
		}{
			{pageID, fmt.Sprint(1 + i*7919%pages)},
			{revID, fmt.Sprint(firstRevision + i)},
			{visible, fmt.Sprint(i%40 != 9)},
			{at, start.Add(time.Duration(i) * time.Second).Format(`"` + time.RFC3339 + `"`)},
			{metaID, fmt.Sprintf(`"00000000-0000-4000-8000-%012d"`, i)},
		}
		if i%100 == 50 {
			sets = append(sets, struct {
				path event.Path
				raw  string
			}{domain, `"canary"`})
		}
		for _, s := range sets {
			if err := ev.Set(s.path, []byte(s.raw)); err != nil {
				return fmt.Errorf("making event %d of the demo: %w", i, err)
			}
		}
		if i%1000 == 333 {
			if err := ev.Delete(pageID); err != nil {
				return fmt.Errorf("making event %d of the demo: %w", i, err)
			}
		}
		if _, err := w.Write(append(ev.Value(), '\n')); err != nil {
			return fmt.Errorf("writing event %d of the demo: %w", i, err)
		}
	}
	return nil
}
