//go:build unix

package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"github.com/a0c75104/enricher/test/internal/process"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// replayed is a job that has written error events, and what is sent from them.
type replayed struct {
	t     *testing.T
	c     *cluster.Cluster
	p     places
	extra string // lines of the pipeline file
	want  []cluster.Record
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
	if _, log, err := r.enricher(r.file(`process: [{jq: 'error("down")'}]`, "until: latest"), "run").output(); err != nil {
		t.Fatalf("the run whose events fail: %v\n%s", err, log)
	}
	return r
}

// file writes a pipeline file.
func (r *replayed) file(process, source string) string {
	r.t.Helper()
	if source != "" {
		source = ", " + source
	}
	file := filepath.Join(r.t.TempDir(), "p.yaml")
	must(r.t, os.WriteFile(file, fmt.Appendf(nil, `
name: %s
kafka: %s
commit_interval: 100ms
gateway: {listen: "127.0.0.1:0"}
workers: 4
source: {kafka: {topics: [%s]%s}}
%s
sink: {kafka: {topic: %s}}
error_sink: {kafka: {topic: %s}}
%s`, r.p.group, connection(r.c, "options: {session.timeout.ms: 6000, heartbeat.interval.ms: 500}"), r.p.in, source, process, r.p.out, r.p.errors, r.extra), 0o600))
	return file
}

// invocation is the binary with arguments.
type invocation struct {
	cmd      *exec.Cmd
	out, log bytes.Buffer
}

func (r *replayed) enricher(file string, args ...string) *invocation {
	return r.enricherUntil(within(r.t, patience), file, args...)
}

func (r *replayed) enricherUntil(ctx context.Context, file string, args ...string) *invocation {
	in := &invocation{cmd: exec.CommandContext(ctx, enricherBinary, append(args, file)...)}
	in.cmd.Stdout, in.cmd.Stderr = &in.out, &in.log
	return in
}

func (in *invocation) output() (out, log string, err error) {
	err = in.cmd.Run()
	return in.out.String(), in.log.String(), err
}

// replay replays to the end and returns the summary.
func (r *replayed) replay(file string, args ...string) string {
	r.t.Helper()
	out, log, err := r.enricher(file, append([]string{"replay"}, args...)...).output()
	if err != nil {
		r.t.Fatalf("enricher replay %q: %v\n%s%s", args, err, out, log)
	}
	return out
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

// count returns a row of a summary.
func count(t *testing.T, summary, what string) int {
	t.Helper()
	for _, m := range counted.FindAllStringSubmatch(summary, -1) {
		if m[1] == what {
			n, err := strconv.Atoi(strings.ReplaceAll(m[2], ",", ""))
			must(t, err)
			return n
		}
	}
	t.Fatalf("the summary has no %q:\n%s", what, summary)
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

// A replay that is killed goes on: nothing is lost, and in transactions nothing is sent twice.
func TestAReplayThatIsKilledGoesOnWhereItWas(t *testing.T) {
	for _, c := range []struct{ name, extra string }{
		{"at least once", ""},
		{"exactly once", "delivery: exactly_once\ninstance: a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReplayed(t, c.extra)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				pause(t, 10*time.Millisecond)
				_, _ = w.Write([]byte("{}"))
			}))
			defer api.Close()
			slow := r.file(fmt.Sprintf("process:\n  - http: {url: %s/x, allow_hosts: [127.0.0.1], into: .content}\n  - jq: del(.content)", api.URL), "")
			// The job itself, under the same instance, for as long as all the replays take.
			beside := r.enricherUntil(t.Context(), r.file("", ""), "run", "--log-level", "warn")
			worker, err := process.Start(beside.cmd)
			must(t, err)
			works := func() {
				t.Helper()
				before := sum(r.c, t, r.p.out)
				put(t, r.c, r.p.in, 0, "{}")
				waitFor(t, "the job beside the replays works", func() bool { return sum(r.c, t, r.p.out) > before })
			}
			works()
			kills, first := rounds(1, 10), sum(r.c, t, r.p.out)
			for range kills {
				before := sum(r.c, t, r.p.out)
				in := r.enricher(slow, "replay", "--type", "expression")
				p, err := process.Start(in.cmd)
				must(t, err)
				waitFor(t, "some events are replayed", func() bool {
					select {
					case <-p.Ended():
						return true
					default:
						return sum(r.c, t, r.p.out) >= before+5
					}
				})
				p.Kill()
				<-p.Ended()
			}
			killed := sum(r.c, t, r.p.out) - first // what runs had sent that were killed
			r.replay(slow, "--type", "expression")
			if got := count(t, r.replay(slow, "--type", "expression"), "events replayed"); got != 0 {
				t.Errorf("a run after all was replayed replays %d", got)
			}
			works()
			worker.Terminate()
			<-worker.Ended()
			if status, _ := worker.Status(); status != 0 || beside.log.Len() > 0 {
				t.Errorf("the job beside the replays ended with status %d and says\n%s", status, beside.log.String())
			}
			got := map[int]int{}
			records, err := r.c.ReadBack(t.Context(), r.p.out, cluster.ReadOptions{Committed: true, Headers: true})
			must(t, err)
			for _, rec := range records {
				if len(rec.Headers) > 0 { // of the job beside it otherwise
					n, err := strconv.Atoi(string(rec.Headers[0].Value))
					must(t, err)
					got[n]++
				}
			}
			lost, twice := 0, 0
			for n := range replayEvents {
				switch {
				case n%3 == 0 && got[n] > 0:
					t.Errorf("event %d was not chosen, and sent", n)
				case n%3 != 0 && got[n] == 0:
					lost++
				case got[n] > 1:
					twice += got[n] - 1
				}
			}
			if lost > 0 || c.extra != "" && twice > 0 {
				t.Errorf("%d events are lost, and %d were sent twice, after %d kills", lost, twice, kills)
			}
			if c.extra != "" {
				killed = 0 // was aborted, or is not sent again
			}
			t.Logf("%d sent twice after %d kills, of runs that had sent %d", twice, kills, killed)
			report.add(line{suite: t.Name(), rounds: kills, events: replayEvents, lost: lost, repeated: twice, allowed: killed})
		})
	}
}

func sum(c *cluster.Cluster, t *testing.T, topic string) int {
	t.Helper()
	ends, err := job.Ends(t.Context(), c.Admin, topic)
	must(t, err)
	return int(job.Sum(ends))
}
