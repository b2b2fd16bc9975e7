//go:build unix

package kafka_test

import (
	"encoding/json"
	"strings"

	"github.com/a0c75104/enricher/test/internal/job"
)

// asAssigned lets check accept those repeats that the logs of the workers explain: a partition was assigned again, or the
// sink failed, and what had left of it was not committed.
const asAssigned = -1

// unexplained returns how many outputs there are for which there was no reading: an event leaves once for each time
// that its partition was assigned at or before it, or that a worker went back after a failure of the sink.
func (u *suite) unexplained(outputs []job.Output) int {
	starts := map[int32][]int64{}
	back := 0
	for _, w := range u.workers {
		for line := range strings.Lines(w.Log()) {
			var said struct {
				Msg, Topic string
				Partition  int32
				Offset     int64
			}
			if json.Unmarshal([]byte(line), &said) != nil {
				continue // a line that was cut by a kill
			}
			switch {
			case said.Msg == "partition assigned" && said.Topic == u.input:
				starts[said.Partition] = append(starts[said.Partition], said.Offset)
			case strings.HasPrefix(said.Msg, "sink failed: going back"):
				back++
			}
		}
	}
	copies := map[int]int{}
	for _, o := range outputs {
		copies[o.ID]++
	}
	n := 0
	for id, made := range copies {
		from := u.events[id]
		for _, start := range starts[from.Partition] {
			if start <= from.Offset {
				made--
			}
		}
		n += max(made-back, 0)
	}
	return n
}
