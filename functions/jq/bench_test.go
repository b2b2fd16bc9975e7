package jq_test

import (
	"context"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
)

// benchValue is as large as a page change event.
var benchValue = `{"$schema":"/mediawiki/page/change/1.2.0","meta":{"domain":"de.wikipedia.org","id":"` + strings.Repeat("x", 36) + `"},` +
	`"pad":[` + strings.Repeat(`{"name":"some text","n":12345678901,"ok":true},`, 24) + `0],` +
	`"page":{"page_id":9007199254740993,"page_title":"Main Page"},"revision":{"rev_id":123,"is_content_visible":true},"page_change_kind":"edit"}`

func benchEvent() *event.Event { return newEvent(benchValue) }

func BenchmarkFilterFromBytes(b *testing.B) {
	benchBool(b, `.meta.domain != "canary" and .revision.is_content_visible`)
}

func BenchmarkFilterInGojq(b *testing.B) {
	benchBool(b, `[.meta.domain != "canary" and .revision.is_content_visible][0]`)
}

func benchBool(b *testing.B, src string) {
	e := compile(b, src)
	ev := benchEvent()
	if err := ev.Check(event.NewPaths(e.Paths()...)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := e.Bool(context.Background(), ev); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkURL(b *testing.B) {
	tpl := template(b, `https://\(.meta.domain)/w/api.php?action=query&titles=\(.page.page_title)&revids=\(.revision.rev_id)`)
	ev := benchEvent()
	if err := ev.Check(event.NewPaths(tpl.Paths()...)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tpl.URL(context.Background(), ev); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFuncOnBytes(b *testing.B) {
	f := newFunc(b, `.meta.stream = "x" | .page.id = .page.page_id`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Process(context.Background(), benchEvent()); err != nil {
			b.Fatal(err)
		}
	}
}
