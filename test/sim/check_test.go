package sim

import "testing"

// What an output of a key may stand behind: of offsets of one partition, of which 1 was refused.
func TestARefusedOutputMayBeOvertakenByWhatComesAgainBehindIt(t *testing.T) {
	for _, tt := range []struct {
		name    string
		outputs []int64
		broken  int
	}{
		{name: "in order", outputs: []int64{0, 1, 2}},
		{name: "overtaken by what comes again", outputs: []int64{0, 2, 3, 1, 2, 3}},
		{name: "repeated from before it", outputs: []int64{0, 1, 2, 0, 1, 2}},
		{name: "overtaken by one that does not come again", outputs: []int64{0, 2, 3, 1, 2}, broken: 1},
		{name: "another was overtaken", outputs: []int64{1, 2, 0, 1, 2}, broken: 1},
	} {
		w := &world{ledger: NewLedger(&Plan{})}
		w.ledger.refused[ID{0, 1}] = true
		l, seen := &lane{seen: map[ID]bool{}, owed: map[ID]ID{}}, map[int64]bool{}
		for _, offset := range tt.outputs {
			w.checkPlace(l, "k", ID{0, offset}, !seen[offset])
			seen[offset] = true
		}
		w.checkOwed(l, "k")
		if got := len(w.ledger.broken); got != tt.broken {
			t.Errorf("%s: %d breaches %q, want %d", tt.name, got, w.ledger.broken, tt.broken)
		}
	}
}
