//go:build unix

package mainjob_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

func TestEachEventIsEnrichedOnceAndInOrderOfItsKey(t *testing.T) {
	size := scenarioSize()
	b := startBroker(t, topics())
	a := job.StartAPI(t, 20*time.Millisecond)
	events := load(t, b, size.events, size.keys)
	start := time.Now()
	startWorker(t, b, a)
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
	took := time.Since(start)

	d, _ := checkDelivered(t, b, events)
	if d.Repeated > 0 {
		t.Errorf("%d outputs are repeated, want none without a failure", d.Repeated)
	}
	for id, n := range a.CallsByID() {
		if n != 1 {
			t.Errorf("event %d was asked for %d times, want once", id, n)
		}
	}
	if n := a.MostAtOnce(); n > 64 {
		t.Errorf("%d calls were in progress at once, want at most the 64 workers", n)
	}
	t.Logf("enriched once: events=%d keys=%d %v committed=%d log_end=%d calls_at_once=%d took=%v events_per_second=%.0f",
		size.events, size.keys, d, job.Sum(committed(t, b, group, inputTopic)), job.Sum(ends(t, b, inputTopic)),
		a.MostAtOnce(), took.Round(time.Millisecond), float64(size.events)/took.Seconds())
}

func TestNothingIsLostOrRepeatedAcrossAStopInTheMiddle(t *testing.T) {
	const shutdownTimeout = 30 * time.Second
	size := scenarioSize()
	b := startBroker(t, topics())
	a := job.StartAPI(t, 20*time.Millisecond)
	events := load(t, b, size.events, size.keys)
	stopped := startWorker(t, b, a, "shutdown_timeout="+shutdownTimeout.String(), size.limit())
	waitFor(t, "a third is done", func() bool { return a.Answers() >= size.events/3 })
	stopped.Terminate()
	status, took := stopped.Wait()
	if status != 0 || took > shutdownTimeout {
		t.Errorf("the stop ended with status %d after %v, want 0 within %v", status, took, shutdownTimeout)
	}
	atStop := job.Sum(committed(t, b, group, inputTopic))
	if atStop == 0 || atStop >= int64(size.events) {
		t.Errorf("%d of %d events were committed at the stop, want it in the middle", atStop, size.events)
	}
	if n := count(t, b, outputTopic); int64(n) != atStop {
		t.Errorf("there were %d outputs at the stop and %d committed events, want all that is finished to be committed", n, atStop)
	}
	startWorker(t, b, a)
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })

	d, _ := checkDelivered(t, b, events)
	if d.Repeated > 0 {
		t.Errorf("%d outputs are repeated, want none after a stop that had time to finish", d.Repeated)
	}
	t.Logf("stopped in the middle: events=%d %v status=%d took=%v committed_at_stop=%d calls_repeated=%d",
		size.events, d, status, took.Round(time.Millisecond), atStop, a.RepeatedCalls())
}

func TestAKilledWorkerRepeatsNoMoreThanWhatItHadNotCommitted(t *testing.T) {
	size := scenarioSize()
	limits := []int{size.events / 2}
	if *full {
		limits = []int{10_000, 500} // the default, and one that bounds more closely
	}
	for _, limit := range limits {
		t.Run(fmt.Sprintf("at most %d in flight", limit), func(t *testing.T) {
			b := startBroker(t, topics())
			a := job.StartAPI(t, 20*time.Millisecond)
			events := load(t, b, size.events, size.keys)
			killed := startWorker(t, b, a, fmt.Sprintf("limits.in_flight_events=%d", limit), size.commitInterval())
			watch := job.NewWatch(killed, 10*time.Millisecond)
			waitFor(t, "a third is done, and something committed", func() bool {
				return a.Answers() >= size.events/3 && job.Sum(committed(t, b, group, inputTopic)) > 0
			})
			killed.Kill()
			killed.Wait()
			last, atCommit := watch.Ended()
			offsets := committed(t, b, group, inputTopic)
			startWorker(t, b, a)
			waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })

			d, outputs := checkDelivered(t, b, events)
			made := job.ByOwner(outputs)[killed.Name]
			uncommitted := 0
			for _, o := range made {
				if from := events[o.ID]; from.Offset >= offsets[from.Partition] {
					uncommitted++
				}
			}
			since := len(made) - int(atCommit.Emitted)
			if d.Repeated > uncommitted {
				t.Errorf("%d outputs are repeated, want at most the %d that stood behind the committed offsets", d.Repeated, uncommitted)
			}
			if d.Repeated > limit+since {
				t.Errorf("%d outputs are repeated, want at most %d in flight and %d finished since the last commit", d.Repeated, limit, since)
			}
			if calls := a.RepeatedCalls(); calls > uncommitted+limit {
				t.Errorf("%d calls are repeated, want at most the %d whose outputs stood there and %d in flight", calls, uncommitted, limit)
			}
			t.Logf("killed in the middle: events=%d %v limit=%d in_flight_at_kill=%.0f finished_since_commit=%d "+
				"outputs_behind_commit=%d committed_at_kill=%d calls_repeated=%d",
				size.events, d, limit, last.InFlight, since, uncommitted, job.Sum(offsets), a.RepeatedCalls())
		})
	}
}

func TestThreeWorkersLoseNothingWhileOneIsKilledAndOneAdded(t *testing.T) {
	size := scenarioSize()
	workers := "workers=64"
	if !*full {
		workers = "workers=8" // slow enough that the group changes during the work
	}
	b := startBroker(t, topics())
	a := job.StartAPI(t, 20*time.Millisecond)
	events := load(t, b, size.events, size.keys)
	start := time.Now()
	killed := startWorker(t, b, a, workers)
	startWorker(t, b, a, workers)
	startWorker(t, b, a, workers)
	waitFor(t, "three workers share the partitions, and a quarter is done", func() bool {
		return a.Answers() >= size.events/4 && owners(t, b) == 3
	})
	killed.Kill()
	killed.Wait()
	waitFor(t, "half is done", func() bool { return a.Answers() >= size.events/2 })
	startWorker(t, b, a, workers)
	waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })
	took := time.Since(start)

	d, outputs := checkDelivered(t, b, events)
	of := job.ByOwner(outputs)
	shares := ""
	for name, made := range of {
		if own := job.DeliveryOf(events, made, nil); own.Disordered > 0 {
			t.Errorf("%s made %v, want its own outputs in the order of each key", name, own)
		}
		shares += fmt.Sprintf(" %s=%d", name, len(made))
	}
	if len(of) != 4 {
		t.Errorf("outputs are of%s, want all four workers to have had a part", shares)
	}
	t.Logf("one of three killed, one added: events=%d %v repeated_after_kill=%d repeated_after_handover=%d took=%v outputs by owner:%s killed=%s",
		size.events, d, repeatsAfter(outputs, killed.Name, true), repeatsAfter(outputs, killed.Name, false),
		took.Round(time.Millisecond), shares, killed.Name)
}

// repeatsAfter counts the outputs of events whose first output was of owner, or was not.
func repeatsAfter(outputs []job.Output, owner string, was bool) int {
	first := map[int]string{}
	n := 0
	for _, o := range outputs {
		if by, ok := first[o.ID]; !ok {
			first[o.ID] = o.Owner
		} else if (by == owner) == was {
			n++
		}
	}
	return n
}
