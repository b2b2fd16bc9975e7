//go:build unix

package kafka_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// replayed is a job that has written error events, and what is sent from them.
type replayed struct {
	t     *testing.T
	c     *cluster.Cluster
	p     places
	extra string // lines of the pipeline file
	want  []cluster.Record
	from  map[int32]int64 // where the last replay to the end began in the error topic
}

// replayEvents is how many events fail: every third is no JSON, the others are too much for the program.
const replayEvents = 300

// newReplayed runs a job all of whose events fail.
func newReplayed(t *testing.T, extra string) *replayed {
	t.Helper()
	r := &replayed{t: t, c: shared.one(t), p: newPlaces(), extra: extra}
	for _, topic := range []string{r.p.in, r.p.out, r.p.errors} {
		makeTopic(t, r.c, topic, 4)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.c.Direct()...), kgo.DefaultProduceTopic(r.p.in))
	must(t, err)
	defer cl.Close()
	var all []*kgo.Record
	for i := range replayEvents {
		n := []byte(strconv.Itoa(i))
		rec := cluster.Record{Key: []byte{0xff, byte(i), byte(i >> 8)}, Value: fmt.Appendf(nil, `{"n": %d, "id": 9007199254740993}`, i)}
		rec.Headers = []cluster.Header{{Key: "n", Value: n}, {Key: "x", Value: nil}, {Key: "x", Value: []byte{0, 0xfe}}}
		if i%3 == 0 {
			rec.Value = append([]byte{0xff, 0}, n...)
		}
		r.want = append(r.want, rec)
		headers := make([]kgo.RecordHeader, len(rec.Headers))
		for j, h := range rec.Headers {
			headers[j] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
		}
		all = append(all, &kgo.Record{Key: rec.Key, Value: rec.Value, Headers: headers})
	}
	must(t, cl.ProduceSync(within(t, patience), all...).FirstErr())
	w := job.StartWorker(t, job.WorkerConfig{Binary: enricherBinary, File: r.text(`process: [{jq: 'error("down")'}]`, "until: latest"), Patience: patience, Keep: true})
	m := keptMetrics(t, w)
	there := len(recordsOf(t, r.c, r.p.errors, ""))
	e := endedBy(t, w.Log())
	if e != (ended{Read: replayEvents, Errors: replayEvents}) || there != replayEvents {
		t.Errorf("the run whose events fail has ended with %+v, and the broker has %d error events of %d", e, there, replayEvents)
	}
	checkAlone(t, r.c, r.p.group, m, e, 0)
	return r
}

// file writes a pipeline file.
func (r *replayed) file(process, source string) string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "p.yaml")
	must(r.t, os.WriteFile(file, []byte(r.text(process, source)), 0o600))
	return file
}

// text is that of a pipeline file.
func (r *replayed) text(process, source string) string {
	if source != "" {
		source = ", " + source
	}
	return fmt.Sprintf(`
name: %s
kafka: %s
commit_interval: 100ms
gateway: {listen: "127.0.0.1:0"}
workers: 4
source: {kafka: {topics: [%s]%s}}
%s
sink: {kafka: {topic: %s}}
error_sink: {kafka: {topic: %s}}
%s`, r.p.group, connection(r.c, "options: {session.timeout.ms: 6000, heartbeat.interval.ms: 500}"), r.p.in, source, process, r.p.out, r.p.errors, r.extra)
}

// invocation is the binary with arguments.
type invocation struct {
	cmd      *exec.Cmd
	out, log bytes.Buffer
	checked  bool // what it has counted was compared to what the broker has
}

func (r *replayed) enricher(file string, args ...string) *invocation {
	in := &invocation{cmd: exec.CommandContext(within(r.t, patience), enricherBinary, append(args, file)...)}
	in.cmd.Stdout, in.cmd.Stderr = &in.out, &in.log
	r.t.Cleanup(func() {
		if !in.checked && !r.t.Failed() {
			r.t.Errorf("what %q has counted was never compared to what the broker has", args)
		}
	})
	return in
}

func (in *invocation) output() (out, log string, err error) {
	err = in.cmd.Run()
	return in.out.String(), in.log.String(), err
}

// replay replays to the end and returns the summary, which has to be what the broker has of that run.
func (r *replayed) replay(file string, args ...string) string {
	r.t.Helper()
	return r.replayBehind(0, file, args...)
}

// replayBehind is replay where runs before that were killed may have finished so many events beyond what is committed.
func (r *replayed) replayBehind(finished int, file string, args ...string) string {
	r.t.Helper()
	ends := func(topic string) stretch { // of what is there: it is read later, once what a killed run has open is aborted
		to, err := job.Ends(r.t.Context(), r.c.Admin, topic)
		must(r.t, err)
		return stretch{to: to}
	}
	old, out, began := ends(r.p.errors), ends(r.p.out), time.Now()
	in := r.enricher(file, append([]string{"replay", "--log-format", "json", "--log-level", "info"}, args...)...)
	summary, log, err := in.output()
	if err != nil {
		r.t.Fatalf("enricher replay %q: %v\n%s%s", args, err, summary, log)
	}
	part := r.looked(summary, began)
	in.checked, r.from = true, part.from
	for _, a := range linesOf(log, "partition assigned") {
		if a.Offset != part.from[a.Partition] {
			r.t.Errorf("a replay began at offset %d of partition %d of the error topic, and the broker had %d committed", a.Offset, a.Partition, part.from[a.Partition])
		}
	}
	errors, outputs := recordsOf(r.t, r.c, r.p.errors, ""), recordsOf(r.t, r.c, r.p.out, "")
	there, had := int(old.of(errors)), int(part.of(errors))
	sent, failed, looked := len(outputs)-int(out.of(outputs)), len(errors)-there, 0
	for _, what := range []string{"events replayed", "would be sent", "passed over by filter", "cut, cannot be replayed", "of other pipelines", "no error events", "--where failed"} {
		looked += row(r.t, summary, what)
	}
	said := func(what string) int { return row(r.t, summary, what) }
	if strings.Contains(summary, "would be sent") {
		if looked != there || sent != 0 || failed != 0 || len(part.to) > 0 && had != 0 {
			r.t.Errorf("a dry run of %d error events sent %d and %d error events, has come from %v to %v, and says\n%s", there, sent, failed, part.from, part.to, summary)
		}
		return summary
	}
	if looked > had || looked < had-finished {
		r.t.Errorf("a replay has looked at %d error events, and the broker has %d from %v to %v, of which %d may be finished before:\n%s", looked, had, part.from, part.to, finished, summary)
	}
	if said("sent") != sent || said("failed again") != failed {
		r.t.Errorf("the broker has %d outputs and %d error events more, and the replay says\n%s", sent, failed, summary)
	}
	if said("events replayed") != said("sent")+said("dropped")+said("failed again") || said("unfinished") != 0 || said("given back") != 0 {
		r.t.Errorf("the events of a replay to the end are not all sent, dropped or failed again:\n%s", summary)
	}
	r.t.Logf("replay %q: looked at %d of %d error events, from %v to %v; the broker has %d outputs and %d error events more", args, looked, had, part.from, part.to, sent, failed)
	return summary
}

// looked returns how far the group of a replay has come in the error topic since it began, by the broker's log of commits.
func (r *replayed) looked(summary string, began time.Time) stretch {
	r.t.Helper()
	_, group, _ := strings.Cut(summary, ", group ")
	group, _, _ = strings.Cut(group, "\n")
	s := stretch{from: map[int32]int64{}, to: map[int32]int64{}}
	for _, k := range commitsOf(r.t, r.c, group) {
		if _, begun := s.from[k.partition]; k.at.Before(began) || !begun {
			s.from[k.partition] = k.offset
		}
		s.to[k.partition] = k.offset
	}
	return s
}

// sent returns how often each event is in the output topic, as it came.
func (r *replayed) sent() map[int]int {
	r.t.Helper()
	records, err := r.c.ReadBack(r.t.Context(), r.p.out, cluster.ReadOptions{Committed: true, Headers: true})
	must(r.t, err)
	got := map[int]int{}
	for _, rec := range records {
		n, err := strconv.Atoi(string(rec.Headers[0].Value))
		must(r.t, err)
		if rec.Partition, rec.Offset = 0, 0; !reflect.DeepEqual(rec, r.want[n]) {
			r.t.Fatalf("event %d is %#v, want %#v", n, rec, r.want[n])
		}
		got[n]++
	}
	return got
}

// times checks how often events were sent: those that are no JSON, and the others.
func (r *replayed) times(noJSON, others int) {
	r.t.Helper()
	r.sentAs(func(n int) int {
		if n%3 == 0 {
			return noJSON
		}
		return others
	})
}

// sentAs checks how often each event was sent, and returns how many sendings are missing and how many are too many.
func (r *replayed) sentAs(want func(n int) int) (lost, repeated int) {
	r.t.Helper()
	got := r.sent()
	for n := range replayEvents {
		if got[n] != want(n) {
			r.t.Errorf("event %d was sent %d times, want %d", n, got[n], want(n))
		}
		lost, repeated = lost+max(want(n)-got[n], 0), repeated+max(got[n]-want(n), 0)
	}
	return lost, repeated
}

var counted = regexp.MustCompile(`(?m)^  (\S.*?) +([\d,]+)(?:  .*)?$`)

// count returns a row of a summary, which must be there.
func count(t *testing.T, summary, what string) int {
	t.Helper()
	if !regexp.MustCompile("(?m)^  " + regexp.QuoteMeta(what) + " ").MatchString(summary) {
		t.Fatalf("the summary has no %q:\n%s", what, summary)
	}
	return row(t, summary, what)
}

// row returns a row of a summary, 0 where it is left out.
func row(t *testing.T, summary, what string) int {
	t.Helper()
	for _, m := range counted.FindAllStringSubmatch(summary, -1) {
		if m[1] == what {
			n, err := strconv.Atoi(strings.ReplaceAll(m[2], ",", ""))
			must(t, err)
			return n
		}
	}
	return 0
}

func TestReplaysWithDifferentFiltersLeaveNoEventUnsentAndChangeNoByte(t *testing.T) {
	r := newReplayed(t, "")
	before, err := job.Committed(t.Context(), r.c.Admin, r.p.group, r.p.in)
	must(t, err)
	plain := r.file("", "")
	noJSON, others := replayEvents/3, replayEvents-replayEvents/3
	dry := r.replay(plain, "--dry-run", "--type", "invalid_event")
	if got := count(t, dry, "would be sent"); got != noJSON {
		t.Errorf("the dry run counts %d, want %d", got, noJSON)
	}
	first := r.replay(plain, "--type", "invalid_event")
	if sent, over := count(t, first, "sent"), count(t, first, "passed over by filter"); sent != noJSON || over != others {
		t.Errorf("sent %d and passed over %d, want %d and %d", sent, over, noJSON, others)
	}
	r.times(1, 0)
	r.replay(plain, "--type", "expression")
	r.times(1, 1)
	for _, args := range [][]string{{"--type", "expression"}, {"--type", "invalid_event"}} {
		if got := count(t, r.replay(plain, args...), "events replayed"); got != 0 {
			t.Errorf("a second run with %q replays %d", args, got)
		}
	}
	r.replay(plain)
	r.times(2, 2)

	// What fails again replaces what the old error event says, and is for the next run.
	failing := r.file(`process: [{jq: 'if .n == 1 then error("still") else . end'}]`, "")
	again := r.replay(failing, "--where", `$headers.n == "1" or $offset < 0`)
	if got := count(t, again, "failed again"); got != 1 {
		t.Errorf("failed again %d, want 1:\n%s", got, again)
	}
	got := r.replay(plain)
	if n := count(t, got, "sent"); n != 1 {
		t.Errorf("the run without a filter sends %d, want the one that failed again:\n%s", n, got)
	}
	after, err := job.Committed(t.Context(), r.c.Admin, r.p.group, r.p.in)
	must(t, err)
	if !maps.Equal(before, after) {
		t.Errorf("the job's own group was at %v and is at %v", before, after)
	}
	lost, repeated := r.sentAs(func(n int) int {
		if n == 1 {
			return 3
		}
		return 2
	})
	report.add(line{suite: t.Name(), rounds: 8, events: replayEvents, lost: lost, repeated: repeated})
}
