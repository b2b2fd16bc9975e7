//go:build unix

package mainjob_test

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

// origin is what a loaded event was.
type origin struct {
	key       int
	seq       int // of its key, from 0
	partition int32
	offset    int64
}

// loaded is what the input topic got: event i has the id i.
type loaded []origin

// load writes n events of that many keys to the input topic: real events of about 1.5 kB that say their
// id, their key and its sequence. Keys are drawn at random, and one in ten follows itself at once.
func load(t *testing.T, b *broker, n, keys int) loaded {
	t.Helper()
	real := realEvents(t)
	random := rand.New(rand.NewPCG(1, uint64(n)))
	events := make(loaded, n)
	seqs := make([]int, keys)
	key := 0
	for id := range n {
		if id == 0 || random.IntN(10) > 0 {
			key = random.IntN(keys)
		}
		events[id] = origin{key: key, seq: seqs[key]}
		seqs[key]++
		b.client.Produce(t.Context(), &kgo.Record{
			Topic: inputTopic, Key: fmt.Appendf(nil, "page-%d", key),
			Value: madeFrom(real[random.IntN(len(real))], id, events[id], random),
		}, func(r *kgo.Record, err error) {
			if err != nil {
				t.Errorf("loading event %d: %v", id, err)
				return
			}
			events[id].partition, events[id].offset = r.Partition, r.Offset
		})
	}
	must(t, b.client.Flush(t.Context()))
	if t.Failed() {
		t.FailNow()
	}
	return events
}

// realEvents returns real events of mediawiki.page_change.v1 that are about 1.5 kB long.
func realEvents(t *testing.T) []map[string]any {
	t.Helper()
	files, err := filepath.Glob("../../cli/demo/data/*.json")
	must(t, err)
	var events []map[string]any
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		var short bytes.Buffer
		must(t, json.Compact(&short, text))
		if short.Len() > 1700 {
			continue
		}
		var ev map[string]any
		decoder := json.NewDecoder(&short)
		decoder.UseNumber()
		must(t, decoder.Decode(&ev))
		events = append(events, ev)
	}
	if len(events) < 5 {
		t.Fatalf("found %d real events, want at least 5", len(events))
	}
	return events
}

// madeFrom returns the text of a real event with an identity of its own. It changes real.
func madeFrom(real map[string]any, id int, o origin, random *rand.Rand) []byte {
	real["wiki_id"] = [...]string{"commonswiki", "testwikidatawiki", "wikidatawiki"}[o.key%3]
	real["page"].(map[string]any)["page_id"] = o.key
	real["comment"] = strings.Repeat("varied ", random.IntN(20)) + fmt.Sprint(random.Uint64())
	real["load"] = map[string]int{"id": id, "key": o.key, "seq": o.seq}
	text, err := json.Marshal(real)
	if err != nil {
		panic(err) // what was decoded can be encoded
	}
	return text
}
