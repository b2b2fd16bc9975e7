package event_test

import (
	"fmt"
	"time"

	"github.com/a0c75104/enricher/event"
)

// A pipeline parses its paths once and checks every event for all of them in one pass.
func Example() {
	id, err := event.ParsePath(".page.id")
	if err != nil {
		fmt.Println(err)
		return
	}
	title, err := event.ParsePath(".page.title")
	if err != nil {
		fmt.Println(err)
		return
	}
	paths := event.NewPaths(id, title)

	raw := []byte(`{"page": {"id": 9007199254740993}, "score": 1.0}`)
	ev := event.New(event.Position{Topic: "pages"}, nil, raw, nil, time.Now())
	if err := ev.Check(paths); err != nil {
		fmt.Println(err) // a Reject: the event becomes an error event
		return
	}
	text, _ := ev.Get(id)
	fmt.Printf("%s\n", text)
	if err := ev.Set(title, event.AppendString(nil, "Earth")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", ev.Value())
	// Output:
	// 9007199254740993
	// {"page": {"id": 9007199254740993,"title":"Earth"}, "score": 1.0}
}
