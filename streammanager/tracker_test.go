package streammanager

import (
	"testing"

	"pgregory.net/rapid"
)

// TestNoMarkGoesBeyondAnUnfinishedRecord drives a tracker with records that finish in any order, beside a
// model that keeps all of them.
func TestNoMarkGoesBeyondAnUnfinishedRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type record struct {
			offset   int64
			number   uint64
			finished bool
			kept     bool
		}
		start := rapid.Int64Range(0, 1000).Draw(t, "start")
		from := Position{Offset: start}
		for at := start + 1; at < start+30 && rapid.Bool().Draw(t, "range before"); {
			r := Range{at, at + rapid.Int64Range(1, 5).Draw(t, "length")}
			from.Finished = append(from.Finished, r)
			at = r.To + rapid.Int64Range(1, 5).Draw(t, "gap")
		}
		tr := newTracker(from)
		var all []record
		next := start
		last := tr.position()
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				offset := next + rapid.SampledFrom([]int64{0, 0, 0, 1, 7}).Draw(t, "hole")
				all = append(all, record{offset: offset, number: tr.deliver(offset, offset*10)})
				next = offset + 1
			},
			"finish": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("nothing was delivered")
				}
				// Any of them, also what is finished already.
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				tr.finish(all[i].number)
				all[i].finished = true
			},
			"keep": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("nothing was delivered")
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				if !all[i].finished {
					t.Skip("it is not finished")
				}
				tr.keep(all[i].number)
				all[i].kept = true
			},
			"finish the oldest": func(t *rapid.T) {
				for i := range all {
					if !all[i].finished {
						tr.finish(all[i].number)
						all[i].finished = true
						return
					}
				}
				t.Skip("all are finished")
			},
			"": func(t *rapid.T) {
				want, pending := next, 0
				var head *record
				for i := len(all) - 1; i >= 0; i-- {
					if !all[i].finished {
						want, head = all[i].offset, &all[i]
						pending = len(all) - i
					}
				}
				got := tr.position()
				if got != want {
					t.Fatalf("position is %d, want %d: the first unfinished record, else the end of what was delivered", got, want)
				}
				if got < last {
					t.Fatalf("position went back from %d to %d", last, got)
				}
				last = got
				told := map[int64]bool{}
				for _, r := range tr.snapshot().Finished {
					if r.From < got || r.From >= r.To || told[r.From-1] {
						t.Fatalf("the ranges beyond %d are %v", got, tr.snapshot().Finished)
					}
					for o := r.From; o < r.To; o++ {
						told[o] = true
					}
				}
				for i := range all {
					if all[i].offset > got && told[all[i].offset] != all[i].kept {
						t.Fatalf("%v is told as finished: %v", all[i], told[all[i].offset])
					}
				}
				for _, r := range from.Finished {
					for o := max(r.From, next); o < r.To; o++ {
						if !told[o] {
							t.Fatalf("offset %d, finished before and not read yet, is forgotten: %v", o, tr.snapshot())
						}
					}
				}
				if tr.length != pending {
					t.Fatalf("tracker holds %d records, want the %d from the first unfinished one on", tr.length, pending)
				}
				ms, ok := tr.oldest()
				if ok != (head != nil) || ok && ms != head.offset*10 {
					t.Fatalf("oldest is %d, %v; the first unfinished record is %v", ms, ok, head)
				}
				for i := range all {
					if !all[i].finished && tr.isHead(all[i].number) != (&all[i] == head) {
						t.Fatalf("record %d: isHead is %v", all[i].offset, tr.isHead(all[i].number))
					}
				}
			},
		})
	})
}
