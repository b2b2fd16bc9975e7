//go:build unix

package kafka_test

import (
	"errors"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/a0c75104/enricher/test/internal/job"
)

// A slow API holds a worker up, and what it has not read yet is deleted under it, in turn by an admin and by retention, at last
// to the end of the input. It says which records were gone and counts exactly these, goes on with the first that is left, and of
// what was left nothing is lost.
func TestAWorkerThatRetentionOvertakesPassesOverWhatIsGoneAndNothingElse(t *testing.T) {
	for _, way := range []struct {
		name string
		set  []string
	}{{"at least once", nil}, {"exactly once", once("a")}} {
		t.Run(way.name, func(t *testing.T) {
			u := newSuite(t, shared.one(t), setup{
				partitions: 2, delay: 20 * time.Millisecond, backlog: 1500, limit: 100, configs: map[string]string{"segment.ms": "100"},
				set: []string{"workers=8", steady, `source.kafka.options["fetch.max.bytes"]=65536`, `source.kafka.options["max.partition.fetch.bytes"]=32768`},
			})
			u.begin()
			o := &overtaking{u: u, w: u.start(way.set...), cuts: map[job.Place]bool{}}
			waitFor(t, "something of both partitions is committed", func() bool { return len(o.committed()) == 2 })
			for range rounds(2, 20) {
				u.rounds++
				o.behindBy(1000)
				o.counts([]func(){o.expire, o.cut(3)}[u.rounds%2])
				u.progress(200)
			}
			u.rounds++
			o.behindBy(1000)
			u.endFeed()
			o.counts(o.cut(4))
			o.check()
		})
	}
}

// overtaking is a worker under which records are deleted.
type overtaking struct {
	u     *suite
	w     *worker
	noted int                // lines of its log about that
	cuts  map[job.Place]bool // where an admin had partitions begin
	while bool               // so has retention, step by step
}

// committed returns where the group is in each partition of which it has committed something that it has read.
func (o *overtaking) committed() map[int32]int64 {
	var done map[int32]int64
	waitFor(o.u.t, "the broker tells what is committed", func() bool { // the first who asks has the topic of that made
		var err error
		done, err = job.Committed(o.u.t.Context(), o.u.c.Admin, o.u.group, o.u.input)
		return err == nil
	})
	maps.DeleteFunc(done, func(_ int32, at int64) bool { return at == 0 })
	return done
}

// behindBy waits until so many events are written and have no end yet.
func (o *overtaking) behindBy(events int) {
	o.u.t.Helper()
	waitFor(o.u.t, "events wait", func() bool { return o.u.written()-o.u.answered() >= events })
}

// cut deletes so many quarters of what is not committed of each partition.
func (o *overtaking) cut(quarters int64) func() {
	return func() {
		ends, err := job.Ends(o.u.t.Context(), o.u.c.Admin, o.u.input)
		must(o.u.t, err)
		var to kadm.Offsets
		for p, at := range o.committed() {
			first := at + (ends[p]-at)*quarters/4
			to.AddOffset(o.u.input, p, first, -1)
			o.cuts[job.Place{Partition: p, Offset: first}] = true
		}
		done, err := o.u.c.Admin.DeleteRecords(o.u.t.Context(), to)
		must(o.u.t, errors.Join(err, done.Error()))
	}
}

// expire has retention delete what there is.
func (o *overtaking) expire() {
	o.while = true
	o.u.setInput("retention.ms", "1")
}

// counts waits until the worker has counted records that were gone before it came to them, once they are deleted.
func (o *overtaking) counts(remove func()) {
	o.u.t.Helper()
	before := o.w.watch.Last().Skipped
	remove()
	waitFor(o.u.t, "the worker has counted what is gone", func() bool { return o.w.watch.Last().Skipped > before })
	o.u.setInput("retention.ms", "-1")
	o.note()
}

// note notes which events the worker has said to be gone, and holds that to where the log was cut.
func (o *overtaking) note() {
	u := o.u
	u.t.Helper()
	starts, err := u.c.Admin.ListStartOffsets(u.t.Context(), u.input)
	must(u.t, errors.Join(err, starts.Error()))
	u.mu.Lock()
	defer u.mu.Unlock()
	ids := map[job.Place]int{}
	for id, e := range u.events {
		ids[job.Place{Partition: e.Partition, Offset: e.Offset}] = id
	}
	lines := o.w.logged("kafka: offset out of range, going on elsewhere")
	for _, l := range lines[o.noted:] {
		start, _ := starts.Lookup(u.input, l.Partition)
		begins := o.cuts[job.Place{Partition: l.Partition, Offset: l.First}] || o.while && l.First <= start.Offset
		if !begins || l.Offset >= l.First || l.Resumed != l.First || l.Skipped != l.First-l.Offset {
			u.t.Errorf("the worker was at offset %d of partition %d, and says that this begins at %d, and that it goes on at %d and has passed over %d records: the log begins at %d, and was cut at %v",
				l.Offset, l.Partition, l.First, l.Resumed, l.Skipped, start.Offset, o.cuts)
		}
		for at := l.Offset; at < l.Resumed; at++ {
			id, known := ids[job.Place{Partition: l.Partition, Offset: at}]
			if !known || u.gone[id] {
				u.t.Errorf("the worker has passed over offset %d of partition %d, where no event was, or for the second time", at, l.Partition)
			}
			u.gone[id] = true
		}
	}
	o.noted, u.passed = len(lines), len(u.gone)
}

// check checks the books, and that of what the worker said to be gone it has written nothing.
func (o *overtaking) check() {
	u := o.u
	u.t.Helper()
	u.settle()
	o.note()
	waitFor(u.t, o.w.Name+" is ready", func() bool {
		status, _, err := o.w.Ready(u.t.Context())
		return err == nil && status == http.StatusOK
	})
	b := u.checkSettled(nothing)
	wrote := 0
	for id := range u.gone {
		wrote += b.written[id]
	}
	if wrote > 0 || o.noted < u.rounds {
		u.t.Errorf("%s has said %d times in %d rounds that records were gone, and has written %d of these", o.w.Name, o.noted, u.rounds, wrote)
	}
	u.t.Logf("%d of %d events were gone before they were read", len(u.gone), len(u.events))
}
