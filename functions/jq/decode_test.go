package jq

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Room is kept for the values that an answer becomes: too little, and memory is not bounded; far too much, and
// answers wait for no reason.
func TestDecodedSizeIsNotLessThanTheValuesTake(t *testing.T) {
	list := func(item string) string {
		return "[" + strings.Repeat(item+",", 50_000) + item + "]"
	}
	members := make([]string, 50_000)
	for i := range members {
		members[i] = fmt.Sprintf(`"member%d":%d`, i, i)
	}
	for name, c := range map[string]struct {
		text string
		most float64 // times of what it takes
	}{
		"one long text":         {`{"content":"` + strings.Repeat("some words of it, ", 200_000) + `"}`, 8},
		"short numbers":         {list("1"), 3},
		"long numbers":          {list("123456789.123456789"), 3},
		"short texts":           {list(`"a"`), 3},
		"words":                 {list("true"), 6},
		"empty lists":           {list("[]"), 6},
		"empty objects":         {list("{}"), 10},
		"objects of one member": {list(`{"id":1}`), 3},
		"objects of ten":        {list(`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10}`), 3},
		"objects of revisions":  {list(`{"pageid":5,"title":"A title of a page","revisions":[{"revid":12345678,"slots":{"main":{"content":"text"}}}]}`), 3},
		"one large object":      {"{" + strings.Join(members, ",") + "}", 3},
		"nested":                {strings.Repeat("[", 1000) + strings.Repeat("]", 1000), 10},
	} {
		var before, after runtime.MemStats
		text := []byte(c.text)
		runtime.GC()
		runtime.ReadMemStats(&before)
		v, err := decode(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		takes := float64(after.HeapAlloc) - float64(before.HeapAlloc)
		runtime.KeepAlive(v)
		runtime.KeepAlive(text)
		said := float64(DecodedSize(text))
		t.Logf("%s: %d bytes of text take %.0f (%.1f times), said %.0f", name, len(text), takes, takes/float64(len(text)), said)
		if said < takes || said > c.most*max(takes, 64<<10) {
			t.Errorf("%s: %d bytes of text become values of %.0f bytes, DecodedSize says %.0f, want that to %.0f times of it", name, len(text), takes, said, c.most)
		}
	}
}
