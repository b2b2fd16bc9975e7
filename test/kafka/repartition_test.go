//go:build unix

package kafka_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/test/internal/job"
)

// repartitionFile leads the events of suiteFile through a topic.
var repartitionFile = strings.Replace(suiteFile, "workers: 16", "repartition: {topic: %GROUP%-between, partitions: 12}\nworkers: 16", 1)

func (u *suite) between() string { return u.group + "-between" }

// through reports whether the events of a suite go through a topic.
func (u *suite) through() bool { return strings.Contains(u.setup.file, "\nrepartition:") }

// The rate of calls behind an input of one partition, whose API takes 50 ms: three workers against one. Without the
// way through a topic two of the three would have nothing to do.
func TestThreeWorkersDoThreeTimesTheWorkOfAOnePartitionInput(t *testing.T) {
	while := time.Duration(rounds(5, 20)) * time.Second
	one := setup{partitions: 1, delay: 50 * time.Millisecond, set: []string{"workers=2", steady}, backlog: 100}
	through := one
	through.file, through.backlog, one.as = repartitionFile, 600, "one worker without the topic"

	// Both at the same time, so that whatever else the machine does slows both.
	alone := newSuite(t, shared.one(t), one)
	u := newSuite(t, shared.one(t), through)
	alone.begin()
	u.begin()
	alone.working(alone.start())
	workers := []*worker{u.start(), u.start(), u.start()}
	way := u.follow()
	for _, w := range workers {
		u.working(w)
	}
	waitFor(t, "three workers have partitions", func() bool { return u.owners() == 3 })
	before := alone.api.Answers()
	began := time.Now()
	triple := u.api.Rate(t, while)
	single := float64(alone.api.Answers()-before) / time.Since(began).Seconds()
	t.Logf("one worker: %.0f calls/s; three with repartition: %.0f calls/s; ratio %.2f", single, triple, triple/single)
	if triple < 2.7*single {
		t.Errorf("three workers make %.2f times the calls of one, want at least 2.7 times", triple/single)
	}
	u.rounds, alone.rounds = 1, 1
	u.settle()
	u.checkSettled(func(b books, kept []commit) int { return way.explained(u, b, kept) })
	alone.check(0)
}

// Workers are killed while events are on both ways. What was written to the topic in between and not committed
// is written and worked on once more; nothing is deleted that is not committed, and all that is.
func TestEventsOnTheirWayThroughATopicSurviveWorkersThatAreKilled(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{partitions: 2, file: repartitionFile})
	u.begin()
	workers := []*worker{u.start()}
	way := u.follow()
	workers = append(workers, u.start(), u.start())
	for range rounds(2, 15) {
		u.rounds++
		for _, w := range workers {
			u.working(w)
		}
		u.progress(200)
		u.crash(workers[0])
		workers = append(workers[1:], u.start())
		u.checkBetween()
	}
	u.progress(200)
	u.settle()
	waitFor(t, "the topic in between is empty", func() bool {
		ends, err := job.Ends(t.Context(), u.c.Admin, u.between())
		must(t, err)
		return job.Sum(u.checkBetween()) == job.Sum(ends)
	})
	u.checkSettled(func(b books, kept []commit) int { return way.explained(u, b, kept) })
}

// checkBetween holds the first offsets of the topic in between to the commits, and returns them.
func (u *suite) checkBetween() map[int32]int64 {
	u.t.Helper()
	starts, err := u.c.Admin.ListStartOffsets(u.t.Context(), u.between())
	must(u.t, err)
	done, err := job.Committed(u.t.Context(), u.c.Admin, u.group, u.between())
	must(u.t, err)
	first := map[int32]int64{}
	for p, o := range starts[u.between()] {
		first[p] = o.Offset
		if o.Offset > done[p] {
			u.t.Errorf("partition %d of the topic in between begins at %d, and is committed to %d only", p, o.Offset, done[p])
		}
	}
	return first
}

func TestErrorEventsNameTheInputOfAWayThroughATopic(t *testing.T) {
	file := strings.Replace(repartitionFile, "process:\n", "process:\n  - jq: if .load.id % 2 == 1 then error(\"odd\") else . end\n", 1)
	odd := &fate{name: "an odd number", says: saying{string(event.Expression), "process[0].jq", "1", ""}}
	u := newSuite(t, shared.one(t), setup{partitions: 3, file: file, fated: func(id int) *fate { return []*fate{nil, odd}[id%2] }})
	u.begin()
	u.start()
	u.rounds++
	u.progress(100)
	u.settle()
	times := map[string]time.Time{}
	job.EachRecord(t, u.c.Admin, u.c.Direct(), u.input, func(r *kgo.Record) {
		times[fmt.Sprint(r.Partition, "/", r.Offset)] = r.Timestamp
	})
	var failed []*kgo.Record
	job.EachRecord(t, u.c.Admin, u.c.Direct(), u.errors, func(r *kgo.Record) { failed = append(failed, r) })
	if len(failed) == 0 {
		t.Fatal("no event failed")
	}
	u.checkSettled(nothing)
	for _, r := range failed {
		var value struct{ Load struct{ ID int } }
		must(t, json.Unmarshal(r.Value, &value))
		has := map[string]string{}
		for _, h := range r.Headers {
			has[h.Key] = string(h.Value)
		}
		from := u.events[value.Load.ID]
		at := fmt.Sprint(from.Partition, "/", from.Offset)
		if has["enricher.error.topic"] != u.input || has["enricher.error.partition"]+"/"+has["enricher.error.offset"] != at ||
			has["enricher.error.timestamp"] != strconv.FormatInt(times[at].UnixMilli(), 10) {
			t.Errorf("event %d of %s %s at %v became an error event that says %v", value.Load.ID, u.input, at, times[at], has)
		}
		for name := range has {
			if strings.HasPrefix(name, "enricher.repartition.") {
				t.Errorf("an error event has the header %q", name)
			}
		}
	}
}
