//go:build unix

package kafka_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/internal/process"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// A replay that is killed goes on: nothing is lost, and in transactions nothing is sent twice.
func TestAReplayThatIsKilledGoesOnWhereItWas(t *testing.T) {
	for _, c := range []struct{ name, extra string }{
		{"at least once", ""},
		{"exactly once", "delivery: exactly_once\ninstance: a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReplayed(t, c.extra)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				pause(t, 60*time.Millisecond) // all of the events take some seconds, in which all the kills are
				_, _ = w.Write([]byte("{}"))
			}))
			defer api.Close()
			slow := r.file(fmt.Sprintf("process:\n  - http: {url: %s/x, allow_hosts: [127.0.0.1], into: .content}\n  - jq: del(.content)", api.URL), "")
			// The job itself, under the same instance, for as long as all the replays take.
			began := len(commitsOf(t, r.c, r.p.group))
			beside := job.StartWorker(t, job.WorkerConfig{Binary: enricherBinary, File: r.text("", ""), Patience: patience})
			works := func() {
				t.Helper()
				before := sum(r.c, t, r.p.out)
				put(t, r.c, r.p.in, 0, "{}")
				waitFor(t, "the job beside the replays works", func() bool { return sum(r.c, t, r.p.out) > before })
			}
			works()
			group := r.groupOf(slow, "expression")
			committed := func() int64 {
				done, err := job.Committed(t.Context(), r.c.Admin, group, r.p.errors)
				must(t, err)
				return job.Sum(done)
			}
			kills := 0
			behind := map[int]int{} // how often each was sent by runs that were killed before it was committed
			for range rounds(1, 10) {
				done := committed() // at first nothing, and the error topic begins at 0
				before, from := sum(r.c, t, r.p.out), recordsOf(t, r.c, r.p.out, "read_uncommitted")
				in := r.enricher(slow, "replay", "--type", "expression")
				p, err := process.Start(in.cmd)
				must(t, err)
				waitFor(t, "some events are replayed, and some of those are committed", func() bool {
					return !p.Running() || sum(r.c, t, r.p.out) >= before+5 && committed() > done
				})
				ended := !p.Running()
				p.Kill()
				r.notCommitted(behind, from, in)
				if ended { // all are replayed
					break
				}
				kills++
			}
			at := committed()
			if kills == 0 || at == 0 {
				t.Errorf("%d runs were killed, and then the group had come to %d in the error topic, want one at least and beyond its beginning", kills, at)
			}
			killed := 0
			for _, n := range behind {
				killed += n
			}
			r.replayBehind(killed, slow, "--type", "expression")
			if got := job.Sum(r.from); got != at { // where its log says that it was assigned the partitions
				t.Errorf("the run after the last kill has begun at %v, %d in all, and the broker had %d committed", r.from, got, at)
			}
			if got := count(t, r.replay(slow, "--type", "expression"), "events replayed"); got != 0 {
				t.Errorf("a run after all was replayed replays %d", got)
			}
			works()
			waitFor(t, "the job beside the replays has all committed", func() bool {
				idle, err := job.Idle(t.Context(), r.c.Admin, r.p.group, r.p.in)
				return err == nil && idle && beside.Metrics().Value("enricher_source_lag") == 0
			})
			m := beside.Metrics()
			beside.Terminate()
			status, _ := beside.Wait()
			if log := beside.Log(); status != 0 || strings.Contains(log, `"level":"WARN"`) || strings.Contains(log, `"level":"ERROR"`) {
				t.Errorf("the job beside the replays ended with status %d and says\n%s", status, log)
			}
			got, own := map[int]int{}, int64(0)
			records, err := r.c.ReadBack(t.Context(), r.p.out, cluster.ReadOptions{Committed: true, Headers: true})
			must(t, err)
			for _, rec := range records {
				if len(rec.Headers) == 0 {
					own++
					continue
				}
				n, err := strconv.Atoi(string(rec.Headers[0].Value))
				must(t, err)
				got[n]++
			}
			e := endedBy(t, beside.Log())
			checkAlone(t, r.c, r.p.group, m, e, began)
			if e != (ended{Read: 2, Emitted: 2, Outputs: 2}) || own != 2 {
				t.Errorf("the job beside the replays has ended with %+v, and the broker has %d outputs of it, of 2 events", e, own)
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
				if got[n] > 1+behind[n] {
					t.Errorf("event %d was sent %d times, and %d runs were killed that had sent and not committed it", n, got[n], behind[n])
				}
			}
			if lost > 0 || c.extra != "" && twice > 0 {
				t.Errorf("%d events are lost, and %d were sent twice, after %d kills", lost, twice, kills)
			}
			if c.extra != "" {
				killed = 0 // it was aborted
			}
			t.Logf("%d sent twice after %d kills, of runs that had sent %d beyond what was committed", twice, kills, killed)
			report.add(line{suite: t.Name(), rounds: kills, events: replayEvents, lost: lost, repeated: twice, allowed: killed})
		})
	}
}

// notCommitted counts the events that a run of a replay has sent, and that were not committed when it was killed.
func (r *replayed) notCommitted(behind map[int]int, before map[job.Place]bool, in *invocation) {
	r.t.Helper()
	in.checked = true // it has told nothing; the runs after it are held to what it left
	log := in.log.String()
	at := map[string]job.Place{} // the error event of each, by the number in its header
	job.EachRecord(r.t, r.c.Admin, r.c.Direct(), r.p.errors, func(rec *kgo.Record) {
		at[string(rec.Headers[0].Value)] = job.Place{Partition: rec.Partition, Offset: rec.Offset}
	}, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	_, group, _ := strings.Cut(log, " as group ")
	group, _, _ = strings.Cut(group, " ...")
	if group == "" {
		r.t.Fatalf("the log of a replay does not say its group:\n%s", log)
	}
	done, err := job.Committed(r.t.Context(), r.c.Admin, group, r.p.errors)
	must(r.t, err)
	job.EachRecord(r.t, r.c.Admin, r.c.Direct(), r.p.out, func(rec *kgo.Record) {
		if before[job.Place{Partition: rec.Partition, Offset: rec.Offset}] || len(rec.Headers) == 0 {
			return
		}
		n, err := strconv.Atoi(string(rec.Headers[0].Value))
		must(r.t, err)
		if from := at[strconv.Itoa(n)]; from.Offset >= done[from.Partition] {
			behind[n]++
		}
	})
}

// groupOf returns the group of a replay of one type.
func (r *replayed) groupOf(file, of string) string {
	r.t.Helper()
	loaded, err := pipeline.Load(file, pipeline.Options{})
	must(r.t, err)
	replay, err := loaded.Replay(pipeline.ReplayOptions{Types: []string{of}})
	must(r.t, err)
	return replay.Group()
}

// The summary of a replay has no commits, and nobody can ask it for its metrics: one that runs inside the test can be.
func TestAReplayCountsItsCommitsAsTheBrokerDoes(t *testing.T) {
	for _, c := range []struct{ name, extra string }{
		{"at least once", ""},
		{"exactly once", "delivery: exactly_once\ninstance: a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReplayed(t, c.extra)
			loaded, err := pipeline.Load(r.file("", ""), pipeline.Options{})
			must(t, err)
			replay, err := loaded.Replay(pipeline.ReplayOptions{Types: []string{"expression"}})
			must(t, err)
			reg := prometheus.NewRegistry()
			runs, err := replay.Supervise(pipeline.Deps{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: reg})
			must(t, err)
			must(t, runs.Run(within(t, patience)))
			found, err := reg.Gather()
			must(t, err)
			m, s := job.Gathered(found), runs.Status()
			const chosen = replayEvents - replayEvents/3
			e := ended{s.Read, s.Emitted, s.Dropped, s.Errors, s.Outputs, s.Unfinished, s.Returned, s.Skipped, s.PassedOver}
			if want := (ended{Read: chosen, Emitted: chosen, Outputs: chosen}); e != want {
				t.Errorf("a replay has counted %+v, want %+v", e, want)
			}
			checkAlone(t, r.c, replay.Group(), m, e, 0)
			r.times(0, 1)
		})
	}
}

func sum(c *cluster.Cluster, t *testing.T, topic string) int {
	t.Helper()
	ends, err := job.Ends(t.Context(), c.Admin, topic)
	must(t, err)
	return int(job.Sum(ends))
}
