//go:build unix

package kafka_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// ended is what the last line of a run's log says that it has counted.
type ended struct {
	Read, Emitted, Dropped, Errors, Outputs, Unfinished, Returned, Skipped int64

	Over int64 `json:"passed_over"`
}

// endedBy returns what a log in JSON says at its end, which has to add up.
func endedBy(t *testing.T, log string) (e ended) {
	t.Helper()
	lines := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"msg":"ended"`) && !strings.Contains(line, `"pipeline":"`+job.Kept+`"`) {
			must(t, json.Unmarshal([]byte(line), &e))
			lines++
		}
	}
	if lines != 1 {
		t.Fatalf("the log has %d lines that say how a run ended, want one:\n%s", lines, log)
	}
	if e.Read != e.Emitted+e.Dropped+e.Errors+e.Unfinished+e.Returned {
		t.Errorf("a run has ended with counts that do not add up: %+v", e)
	}
	return e
}

// stretch is where a group has come from and to in a topic.
type stretch struct{ from, to map[int32]int64 }

// stretchOf calls run, and returns how far the group has come by it. Where it had not begun, that is from the first offset
// that it committed.
func stretchOf(t *testing.T, c *cluster.Cluster, group, topic string, run func()) stretch {
	t.Helper()
	var s stretch
	committed := func() (offsets map[int32]int64) {
		waitFor(t, "the broker tells what "+group+" has committed", func() bool { // the first who asks has the topic of that made
			var err, missing error
			if offsets, err = job.Committed(t.Context(), c.Admin, group, topic); err == nil {
				_, missing = job.Ends(t.Context(), c.Admin, offsetsTopic)
			}
			return err == nil && missing == nil
		})
		return offsets
	}
	s.from = committed()
	before := len(commitsOf(t, c, group))
	run()
	s.to = committed()
	for _, k := range commitsOf(t, c, group)[before:] {
		if _, begun := s.from[k.partition]; k.topic == topic && !begun {
			s.from[k.partition] = k.offset
		}
	}
	return s
}

// of returns how many of the records of a topic are in s.
func (s stretch) of(records map[job.Place]bool) (n int64) {
	for at := range records {
		if at.Offset >= s.from[at.Partition] && at.Offset < s.to[at.Partition] {
			n++
		}
	}
	return n
}

// recordsOf returns where a topic has records now for a reader of the isolation.
func recordsOf(t *testing.T, c *cluster.Cluster, topic, isolation string) map[job.Place]bool {
	t.Helper()
	level := kgo.ReadCommitted()
	if isolation == "read_uncommitted" {
		level = kgo.ReadUncommitted()
	}
	found := map[job.Place]bool{}
	job.EachRecord(t, c.Admin, c.Direct(), topic, func(r *kgo.Record) { found[job.Place{Partition: r.Partition, Offset: r.Offset}] = true },
		kgo.FetchIsolationLevel(level))
	return found
}
