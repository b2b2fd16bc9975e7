package event_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

func BenchmarkCheck(b *testing.B) {
	for _, bench := range []struct {
		name string
		raw  []byte
	}{
		{"real event", sample(b, "schema-1.3.0-example.json")},
		{"long text", []byte(`{"wiki_id":"x","text":"` + strings.Repeat("plain words and \\n escapes, ", 4000) + `"}`)},
		{"Cyrillic text", []byte(`{"wiki_id":"x","text":"` + strings.Repeat("обычные слова ", 4000) + `"}`)},
		{"numbers", []byte(`{"wiki_id":[` + strings.Repeat("123456.789,", 400) + `0]}`)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			ps := paths(b, ".wiki_id", ".page.page_id", ".meta.domain")
			e := event.New(event.Position{}, nil, bench.raw, nil, time.Time{})
			b.SetBytes(int64(len(bench.raw)))
			b.ReportAllocs()
			for b.Loop() {
				e.SetValue(bench.raw)
				if err := e.Check(ps); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	ps := paths(b, ".wiki_id", ".page.page_id", ".meta.domain")
	e := event.New(event.Position{}, nil, sample(b, "schema-1.3.0-example.json"), nil, time.Time{})
	if err := e.Check(ps); err != nil {
		b.Fatal(err)
	}
	for _, text := range []string{".page.page_id", ".page.page_title"} {
		b.Run(text, func(b *testing.B) {
			p := path(b, text)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Get(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSet(b *testing.B) {
	raw := sample(b, "schema-1.3.0-example.json")
	p := path(b, ".revision.content_slots.main.content_body")
	ps := paths(b, ".wiki_id", ".page.page_id", p.String())
	for _, size := range []int{100, 10000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			content := event.AppendString(nil, strings.Repeat("x", size))
			checked := event.New(event.Position{}, nil, raw, nil, time.Time{})
			if err := checked.Check(ps); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(raw) + size))
			b.ReportAllocs()
			for b.Loop() {
				if err := checked.Share().Set(p, content); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendCanonical(b *testing.B) {
	for name, raw := range map[string]string{"string": `"enwiki"`, "number": "123456", "list": `["a",1,"b\u0041"]`} {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = event.AppendCanonical(dst[:0], []byte(raw)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
