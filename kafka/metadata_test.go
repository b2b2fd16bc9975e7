package kafka

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"pgregory.net/rapid"

	"github.com/a0c75104/enricher/streammanager"
)

func drawMetadata(t *rapid.T) metadata {
	m := metadata{topic: kadm.TopicID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic")), at: rapid.Int64Range(0, 1<<60).Draw(t, "at")}
	if rapid.Bool().Draw(t, "bounded") {
		from := rapid.Int64Range(0, 1<<60).Draw(t, "from")
		m.span = span{of: rapid.StringN(1, 40, -1).Draw(t, "read"), from: from, until: from + rapid.Int64Range(0, 1<<60).Draw(t, "length")}
	}
	if rapid.Bool().Draw(t, "restored") {
		m.savepoint = rapid.StringN(1, 40, -1).Draw(t, "savepoint")
	}
	if rapid.Bool().Draw(t, "newer fields") {
		m.others = []string{"later=1", "flag"}
	}
	at := m.at + rapid.Int64Range(0, 1).Draw(t, "touches the offset")
	for range rapid.IntRange(0, 3000).Draw(t, "ranges") {
		r := streammanager.Range{From: at, To: at + rapid.Int64Range(1, 300).Draw(t, "length")}
		m.finished, at = append(m.finished, r), r.To+rapid.Int64Range(1, 300).Draw(t, "gap")
	}
	return m
}

func TestMetadataIsReadAsItWasWrittenSaveForRangesThatDoNotFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMetadata(t)
		text := m.text(maxMetadata)
		if len(text) > maxMetadata {
			t.Fatalf("it takes %d bytes", len(text))
		}
		got, ok := parseMetadata(text)
		if !ok {
			t.Fatalf("%q is not read", text)
		}
		n := len(got.finished)
		if n > len(m.finished) || !slices.Equal(got.finished, m.finished[:n]) {
			t.Fatalf("finished %v, want the first of %v", got.finished, m.finished)
		}
		if n < len(m.finished) && len(text) < maxMetadata-16 {
			t.Fatalf("%d of %d ranges in %d bytes", n, len(m.finished), len(text))
		}
		if got.topic != m.topic || got.at != m.at || got.span != m.span || got.savepoint != m.savepoint || !slices.Equal(got.others, m.others) {
			t.Fatalf("got %+v, want %+v", got, m)
		}
	})
}

func TestMetadataOfOthersIsNoMetadata(t *testing.T) {
	good := (&metadata{at: 5, finished: []streammanager.Range{{From: 7, To: 9}}}).text(maxMetadata)
	for name, text := range map[string]string{
		"empty":              "",
		"of another program": "consumer-1",
		"a later version":    strings.Replace(good, "enricher/1 ", "enricher/2 ", 1),
		"no topic":           "enricher/1 at=5",
		"a short topic":      "enricher/1 topic=AAAA at=5",
		"no number":          strings.Replace(good, "at=5", "at=x", 1),
		"before the start":   strings.Replace(good, "at=5", "at=-5", 1),
		"an end before":      good + " read=x from=9 until=3",
		"damaged ranges":     good + "_",
		"ranges that touch":  good[:strings.Index(good, "finished=")] + "finished=" + base64Text.EncodeToString([]byte{1, 1, 0, 1}),
		"an empty range":     good[:strings.Index(good, "finished=")] + "finished=" + base64Text.EncodeToString([]byte{1, 0}),
		"half a range":       good[:strings.Index(good, "finished=")] + "finished=" + base64Text.EncodeToString([]byte{1}),
	} {
		if m, ok := parseMetadata(text); ok {
			t.Errorf("%s: %q is read as %+v", name, text, m)
		}
	}
	if _, ok := parseMetadata(good); !ok {
		t.Errorf("%q is not read", good)
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add((&metadata{at: 5, span: span{"a..b", 1, 9}, savepoint: "s", others: []string{"x=1"}, finished: []streammanager.Range{{From: 7, To: 9}, {From: 12, To: 13}}}).text(maxMetadata))
	f.Add("enricher/1 topic=AAAAAAAAAAAAAAAAAAAAAA at=1 finished=AQ")
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := parseMetadata(text)
		if !ok {
			return
		}
		at := m.at
		for i, r := range m.finished {
			if r.From < at || r.From >= r.To || i > 0 && r.From == at {
				t.Fatalf("%q gives %v", text, m.finished)
			}
			at = r.To
		}
		again, ok := parseMetadata(m.text(1 << 20))
		if !ok || !slices.Equal(again.finished, m.finished) || again.at != m.at || again.savepoint != m.savepoint {
			t.Fatalf("%q: %+v was written and read as %+v", text, m, again)
		}
	})
}
