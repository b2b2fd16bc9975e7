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
	for i := range want {
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
	must(t, u.c.Client.Flush(t.Context()))
	w := u.start()
	u.rounds++
	u.working(w)
	u.stop(w)
	u.start()
	u.settle()
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
