package jq_test

import (
	"context"
	"fmt"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

func Example() {
	ctx := context.Background()
	ev := event.New(event.Position{Topic: "pages"}, nil, []byte(`{"domain": "de.wikipedia.org", "title": "AC/DC", "id": 9007199254740993}`), nil, time.Time{})

	filter, err := jq.Compile(`.domain != "canary" and $topic == "pages"`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(filter.Bool(ctx, ev))

	address, err := jq.CompileTemplate(`https://\(.domain)/wiki/\(.title)?id=\(.id)`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(address.URL(ctx, ev))

	edit, err := jq.NewFunc(`.lower = (.title | ascii_downcase) | del(.domain)`)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := edit.Process(ctx, ev)
	fmt.Println(string(out[0].Value()), err)
	// Output:
	// true <nil>
	// https://de.wikipedia.org/wiki/AC%2FDC?id=9007199254740993 <nil>
	// {"title": "AC/DC", "id": 9007199254740993,"lower":"ac/dc"} <nil>
}
