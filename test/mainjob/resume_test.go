//go:build unix

package mainjob_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/a0c75104/enricher/test/internal/job"
)

// One event of each partition gets no answer. What is finished behind it stands uncommitted when the worker is
// killed, and is called again only where nothing is kept beside the offsets.
func TestWhatWasFinishedBehindAStuckEventIsNotCalledAgain(t *testing.T) {
	size := scenarioSize()
	again := map[bool]int{}
	for _, kept := range []bool{true, false} {
		b := startBroker(t, topics())
		a := job.StartAPI(t, 5*time.Millisecond)
		events := load(t, b, size.events, size.keys)
		stuck := map[int]bool{}
		seen := map[int32]bool{}
		for _, e := range events {
			if !seen[e.Partition] {
				seen[e.Partition], stuck[e.Key] = true, true
				a.Hang(e.Key)
			}
		}
		free := 0
		for _, e := range events {
			if !stuck[e.Key] {
				free++
			}
		}
		killed := startWorker(t, b, a, "limits.in_flight_events=10000", "commit_interval=100ms")
		waitFor(t, "all is answered but for what is stuck", func() bool { return a.Answers() == free })
		commits := killed.Metrics().Value("enricher_commits_total", "outcome=ok")
		waitFor(t, "that is committed", func() bool {
			m := killed.Metrics()
			return m.Value("enricher_commits_total", "outcome=ok") >= commits+2 || m.Value("enricher_events_total", "outcome=emitted") == float64(free)
		})
		tick := time.NewTimer(time.Second) // two intervals in which nothing is new
		<-tick.C
		killed.Kill()
		killed.Wait()
		behind := int64(size.events) - job.Sum(committed(t, b, group, inputTopic))
		if !kept {
			forget(t, b)
		}
		for key := range stuck {
			a.Release(key)
		}
		startWorker(t, b, a)
		waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
		d, _ := checkDelivered(t, b, events)
		again[kept] = a.RepeatedCalls() - len(stuck)
		t.Logf("killed with %d partitions stuck: events=%d behind_commit=%d finished_of_them=%d ranges_kept=%v calls_repeated=%d outputs_repeated=%d",
			len(seen), size.events, behind, free, kept, again[kept], d.Repeated)
		if kept && d.Repeated > 0 {
			t.Errorf("%d outputs are repeated, want none", d.Repeated)
		}
	}
	if again[true] > 0 || again[false] < size.events/2 {
		t.Errorf("%d calls are repeated with what commits say beside the offset, and %d without", again[true], again[false])
	}
}

// forget commits the offsets once more, with nothing beside them.
func forget(t *testing.T, b *broker) {
	t.Helper()
	adm := kadm.NewClient(b.client)
	found, err := adm.FetchOffsets(t.Context(), group)
	must(t, err)
	var bare kadm.Offsets
	found.Offsets().Each(func(o kadm.Offset) { bare.AddOffset(o.Topic, o.Partition, o.At, -1) })
	waitFor(t, "the group is empty and takes offsets", func() bool { return adm.CommitAllOffsets(t.Context(), group, bare) == nil })
}
