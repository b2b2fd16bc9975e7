//go:build unix

package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Origin is what an event of the input was.
type Origin struct {
	Key       int
	Seq       int // of its key, from 0
	Partition int32
	Offset    int64
}

// Loaded is what the input topic got: event i has the id i.
type Loaded []Origin

// Maker makes events of about 1.5 kB that say their id, their key and its sequence, each from a real one.
// It is for one goroutine.
type Maker struct {
	// Repetitive has padding that is easily compressed.
	Repetitive bool

	real   []map[string]any
	random *rand.Rand
	seqs   map[int]int
	next   int
	key    int
}

// NewMaker returns a maker whose first event has the id first. The same seed makes the same events.
func NewMaker(t testing.TB, seed uint64, first int) *Maker {
	t.Helper()
	return &Maker{real: realEvents(t), random: rand.New(rand.NewPCG(1, seed)), seqs: map[int]int{}, next: first}
}

// AnyOf returns one of so many keys, at random; one in ten times the one before.
func (m *Maker) AnyOf(keys int) int {
	if m.random.IntN(10) > 0 {
		m.key = m.random.IntN(keys)
	}
	return m.key
}

// Make makes the next event of a key, for topic, with so many bytes more.
func (m *Maker) Make(topic string, key, pad int) (id int, o Origin, r *kgo.Record) {
	id, o = m.next, Origin{Key: key, Seq: m.seqs[key]}
	m.next++
	m.seqs[key]++
	ev := m.real[m.random.IntN(len(m.real))]
	delete(ev, "padding")
	if pad > 0 {
		ev["padding"] = m.padding(pad)
	}
	ev["wiki_id"] = [...]string{"commonswiki", "testwikidatawiki", "wikidatawiki"}[key%3]
	ev["page"].(map[string]any)["page_id"] = key
	ev["comment"] = strings.Repeat("varied ", m.random.IntN(20)) + fmt.Sprint(m.random.Uint64())
	ev["load"] = map[string]int{"id": id, "key": key, "seq": o.Seq}
	text, err := json.Marshal(ev)
	if err != nil {
		panic(err) // what was decoded can be encoded
	}
	return id, o, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "page-%d", key), Value: text}
}

func (m *Maker) padding(n int) string {
	if m.Repetitive {
		line := fmt.Sprintf("a line of text that is like the others, save for the number %d. ", m.random.IntN(1000))
		return strings.Repeat(line, n/len(line)+1)
	}
	text := make([]byte, n)
	for i := range text {
		text[i] = 'a' + byte(m.random.IntN(26))
	}
	return string(text)
}

// Load makes n events and writes them to topic. keyOf says the key of each, pad as Make does.
func (m *Maker) Load(t testing.TB, client *kgo.Client, topic string, n int, keyOf func(i int) int, pad int) Loaded {
	t.Helper()
	events := make(Loaded, n)
	for i := range events {
		id, o, r := m.Make(topic, keyOf(i), pad)
		events[i] = o
		client.Produce(t.Context(), r, func(r *kgo.Record, err error) {
			if err != nil {
				t.Errorf("loading event %d: %v", id, err)
				return
			}
			events[i].Partition, events[i].Offset = r.Partition, r.Offset
		})
	}
	Must(t, client.Flush(t.Context()))
	if t.Failed() {
		t.FailNow()
	}
	return events
}

// realEvents returns real events of mediawiki.page_change.v1 that are about 1.5 kB long.
func realEvents(t testing.TB) []map[string]any {
	t.Helper()
	files, err := filepath.Glob("../../cli/demo/data/*.json")
	Must(t, err)
	var events []map[string]any
	for _, f := range files {
		text, err := os.ReadFile(f)
		Must(t, err)
		var short bytes.Buffer
		Must(t, json.Compact(&short, text))
		if short.Len() > 1700 {
			continue
		}
		var ev map[string]any
		decoder := json.NewDecoder(&short)
		decoder.UseNumber()
		Must(t, decoder.Decode(&ev))
		events = append(events, ev)
	}
	if len(events) < 5 {
		t.Fatalf("found %d real events in ../../cli/demo/data, want at least 5: suites lie in test/NAME", len(events))
	}
	return events
}
