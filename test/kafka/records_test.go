//go:build unix

package kafka_test

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// recordsFile changes every value that is not null, and nothing else.
const recordsFile = `
name: %GROUP%
kafka: %KAFKA%
source:
  kafka:
    topics: [%INPUT%]
    options: {session.timeout.ms: 1500, heartbeat.interval.ms: 250}
process:
  - jq: .seen = true
commit_interval: 200ms
sink:
  kafka: {topic: %OUTPUT%}
error_sink:
  kafka: {topic: %ERRORS%}
gateway: {listen: "127.0.0.1:0"}
`

// shapes are what records may look like beside their values. The header "n" is added to tell them apart.
var shapes = []struct {
	key     []byte
	null    bool // value
	headers []kgo.RecordHeader
}{
	{key: nil},
	{key: []byte{}},
	{key: []byte("a")},
	{key: []byte{0, 0xff, '\n'}},
	{key: []byte("a"), null: true},
	{key: nil, null: true},
	{key: []byte{}, null: true},
	{key: []byte("b"), headers: []kgo.RecordHeader{{Key: "same", Value: []byte("1")}, {Key: "other", Value: nil}, {Key: "same", Value: []byte("2")}, {Key: "same", Value: []byte("1")}}},
	{key: []byte("b"), null: true, headers: []kgo.RecordHeader{{Key: "", Value: []byte{}}, {Key: "", Value: nil}, {Key: "bytes", Value: []byte{0, '\n', 0xff}}}},
	{key: nil, headers: []kgo.RecordHeader{{Key: "same", Value: nil}, {Key: "same", Value: nil}}},
}

// Keys that are null or empty, values that are null, headers of one name and without a value: another client reads what
// was written, and no null has become an empty text.
func TestNullKeysTombstonesAndEqualHeadersPassAsTheyCame(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{file: recordsFile})
	n := rounds(2_000, 50_000)
	want := make([]cluster.Record, n)
	write := func(i int) {
		s := shapes[i%len(shapes)]
		r := &kgo.Record{Topic: u.input, Key: s.key, Headers: append([]kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(i))}}, s.headers...)}
		want[i] = cluster.Record{Key: s.key}
		if !s.null {
			r.Value = fmt.Appendf(nil, `{"n": %d, "price": 1.0}`, i)
			want[i].Value = fmt.Appendf(nil, `{"n": %d, "price": 1.0,"seen":true}`, i)
		}
		for _, h := range r.Headers {
			want[i].Headers = append(want[i].Headers, cluster.Header{Key: h.Key, Value: h.Value})
		}
		u.c.Client.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("writing record %d: %v", i, err)
			}
		})
	}
	for i := range n / 2 {
		write(i)
	}
	must(t, u.c.Client.Flush(t.Context()))
	w := u.start()
	u.rounds++
	u.working(w)
	u.stop(w)
	for i := n / 2; i < n; i++ {
		write(i)
	}
	must(t, u.c.Client.Flush(t.Context()))
	before := len(u.commits())
	last := u.start()
	u.settle()
	u.checkPassed(w, last, n, before)
	got, err := u.c.ReadBack(t.Context(), u.output, cluster.ReadOptions{Headers: true})
	must(t, err)
	lost, repeated := u.checkRecords(got, want)
	failed, err := job.Ends(t.Context(), u.c.Admin, u.errors)
	must(t, err)
	if job.Sum(failed) != 0 {
		t.Errorf("%d records became error events", job.Sum(failed))
	}
	report.add(line{suite: t.Name(), rounds: u.rounds, events: n, lost: lost, repeated: repeated})
}

// checkPassed holds what two workers, one after the other, have counted of n records to what the broker has. before is how
// many offsets it had when the second one began.
func (u *suite) checkPassed(first, last *worker, n, before int) {
	u.t.Helper()
	first.checked, last.checked = true, true
	e, wrote := endedBy(u.t, first.Log()), len(recordsOf(u.t, u.c, u.output, ""))
	u.checkCounters(last, float64(wrote)-float64(e.Outputs), false)
	m := last.Metrics()
	rest := float64(int64(n) - e.Read)
	for name, want := range map[string]float64{
		"enricher_events_read_total": rest, "enricher_errors_total": 0, "enricher_rewinds_total": 0, "enricher_restarts_total": 0,
		"enricher_source_skipped_total": 0, "enricher_source_passed_over_total": 0,
	} {
		if got := m.Value(name); got != want {
			u.t.Errorf("the second worker has counted %s=%.0f, want %.0f: the first has ended with %+v, and the input has %d records", name, got, want, e, n)
		}
	}
	if events := m.ByLabel("enricher_events_total", "outcome"); events["emitted"] != rest || events["dropped"]+events["error"] != 0 {
		u.t.Errorf("the second worker has counted the events %v, want %.0f emitted: the first has ended with %+v, and the input has %d records", events, rest, e, n)
	}
	if want := (ended{Read: e.Read, Emitted: e.Read, Outputs: e.Read}); e != want || e.Read == 0 || wrote != n {
		u.t.Errorf("the first worker has ended with %+v, want %+v: the broker has %d outputs of %d records", e, want, wrote, n)
	}
	kept := u.commits()
	offsets, commits, _ := countCommits(kept[before:])
	if ok, tried := m.Value("enricher_commits_total", "outcome=ok"), m.Value("enricher_commits_total"); ok != float64(commits) || tried != ok {
		u.t.Errorf("the second worker has counted %.0f commits, %.0f with those that failed, and the broker has %d of %d offsets of it", ok, tried, commits, offsets)
	}
	if seen := first.watch.Last().Commits; seen > float64(before) {
		u.t.Errorf("the first worker has counted %.0f commits, and the broker has %d offsets of it", seen, before)
	}
	u.t.Logf("agreed: the first worker has ended with %+v, the second has counted %.0f, and the broker has %d outputs and %d offsets that were committed", e, rest, wrote, len(kept))
}

// checkRecords compares what was read to what must be there, each once, and the order of those that have a key.
func (u *suite) checkRecords(got, want []cluster.Record) (lost, repeated int) {
	u.t.Helper()
	last, read := map[string]int{}, map[int]int{}
	for _, r := range got {
		if len(r.Headers) == 0 || r.Headers[0].Key != "n" {
			u.t.Fatalf("the first header of %+v is not its number", r)
		}
		n, err := strconv.Atoi(string(r.Headers[0].Value))
		must(u.t, err)
		read[n]++
		if r.Partition, r.Offset = 0, 0; !reflect.DeepEqual(r, want[n]) {
			u.t.Fatalf("record %d is %#v, want %#v", n, r, want[n])
		}
		if r.Key == nil {
			continue // has no order
		}
		if before, ok := last[string(r.Key)]; ok && before > n {
			u.t.Fatalf("record %d comes behind %d, and both have the key %q", n, before, r.Key)
		}
		last[string(r.Key)] = n
	}
	lost, repeated = len(want)-len(read), len(got)-len(read)
	if lost != 0 || repeated != 0 {
		u.t.Errorf("%d of %d records are lost, and %d repeated", lost, len(want), repeated)
	}
	return lost, repeated
}
