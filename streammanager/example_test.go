package streammanager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/file"
	"github.com/a0c75104/enricher/streammanager"
	"github.com/a0c75104/enricher/window"
)

// A stream without YAML: page changes from JSON lines, keyed by page, gathered for up to 50 ms, each given
// the length of its title, and written as JSON lines. With the source and sink of package kafka in place of
// those of package file, it carries the same functions from topic to topic.
func Example() {
	const lines = `
		{"page": 7, "title": "Dog", "kind": "edit", "rev": 9007199254740993}
		{"page": 8, "title": "Cat", "kind": "delete", "rev": 2}
		{"page": 7, "title": "Dogs", "kind": "edit", "rev": 9007199254740995}`
	source, err := file.NewSource(file.SourceConfig{Path: "-", Stdin: strings.NewReader(strings.ReplaceAll(lines[1:], "\t", ""))})
	if err != nil {
		fmt.Println(err)
		return
	}
	sink, err := file.NewSink(file.SinkConfig{Path: "-", Stdout: os.Stdout})
	if err != nil {
		fmt.Println(err)
		return
	}
	page, kind, title, length := path(".page"), path(".kind"), path(".title"), path(".length")

	notDelete := func(_ context.Context, ev *event.Event) (bool, error) {
		raw, err := ev.Get(kind)
		return string(raw) != `"delete"`, err
	}
	byPage := func(_ context.Context, ev *event.Event) (streammanager.Key, error) {
		raw, err := ev.Get(page)
		return streammanager.Key{Value: string(raw)}, err
	}
	measure := event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		var text string
		raw, err := ev.Get(title)
		if err == nil {
			err = json.Unmarshal(raw, &text)
		}
		if err != nil {
			return nil, event.Reject("no_title", err) // an error event of that type
		}
		return []*event.Event{ev}, ev.Set(length, strconv.AppendInt(nil, int64(len(text)), 10))
	})

	s, err := streammanager.New(streammanager.Config{Name: "titles", Workers: 8, OnError: streammanager.OnErrorDrop, Logger: slog.New(slog.DiscardHandler)}).
		From(source).
		Reads(event.NewPaths(page, kind, title)). // found in one pass over each value
		Filter(notDelete).
		PartitionBy(byPage).
		Window(window.Config{Count: 100, Timeout: 50 * time.Millisecond}).
		Process(streammanager.Step{Name: "measure", Func: measure, Timeout: time.Second}).
		To(sink).
		Build() // checks everything
	if err == nil {
		err = s.Run(context.Background()) // until the source has ended
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"page": 7, "title": "Dog", "kind": "edit", "rev": 9007199254740993,"length":3}
	// {"page": 7, "title": "Dogs", "kind": "edit", "rev": 9007199254740995,"length":4}
}

// path is for paths that are known to be right.
func path(text string) event.Path {
	p, err := event.ParsePath(text)
	if err != nil {
		panic(err)
	}
	return p
}
