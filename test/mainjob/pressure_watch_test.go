//go:build unix

package mainjob_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// sample is what a worker and the kernel told of it at one moment.
type sample struct {
	at            time.Time
	events, bytes float64 // in flight
	emitted, busy float64
	heap          float64 // allocated, with what is not yet collected
	resident      float64
}

func sampleOf(t *testing.T, w *job.Worker) sample {
	t.Helper()
	m := w.Metrics()
	return sample{
		at: time.Now(), events: m.Value("enricher_in_flight_events"), bytes: m.Value("enricher_in_flight_bytes"),
		emitted: m.Value("enricher_events_total", "outcome=emitted"), busy: m.Value("enricher_workers_busy"),
		heap: m.Value("go_memstats_heap_alloc_bytes"), resident: job.Resident(w.Pid),
	}
}

// watched is a worker and what was seen of it.
type watched struct {
	*job.Worker
	seen []sample
	done func(sample) bool
	at   time.Time // when it was done
}

// rate returns how many events left in a second, from the first that was seen to leave until it was done.
func (w *watched) rate() float64 {
	for _, s := range w.seen {
		if s.emitted > 0 && s.at.Before(w.at) {
			last := w.seen[len(w.seen)-1]
			return (last.emitted - s.emitted) / w.at.Sub(s.at).Seconds()
		}
	}
	return 0
}

// watch samples workers side by side until all are done.
func watch(t *testing.T, what string, workers ...*watched) {
	t.Helper()
	waitFor(t, what, func() bool {
		left := 0
		for _, w := range workers {
			if !w.at.IsZero() {
				continue
			}
			s := sampleOf(t, w.Worker)
			w.seen = append(w.seen, s)
			if w.done(s) {
				w.at = s.at
			} else {
				left++
			}
		}
		return left == 0
	})
}

// most returns the largest value that was seen.
func most(seen []sample, of func(sample) float64) float64 {
	top := 0.0
	for _, s := range seen {
		top = max(top, of(s))
	}
	return top
}

// drift returns the medians of the second and of the last quarter of what was seen.
func drift(seen []sample, of func(sample) float64) (early, late float64) {
	n := len(seen)
	return median(seen[n/4:n/2+1], of), median(seen[n*3/4:], of)
}

func median(seen []sample, of func(sample) float64) float64 {
	values := make([]float64, len(seen))
	for i, s := range seen {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func inFlightEvents(s sample) float64 { return s.events }
func inFlightBytes(s sample) float64  { return s.bytes }
func heapOf(s sample) float64         { return s.heap }
func residence(s sample) float64      { return s.resident }

// liveHeap returns what collections find in use now. It asks for metrics until two more have ended: the
// answers are the garbage that brings them on. The runtime tells when it will collect next, which is at
// what was in use and GOGC percent of it.
func liveHeap(t *testing.T, w *job.Worker) float64 {
	t.Helper()
	const collections = "go_gc_duration_seconds"
	m := w.Metrics()
	first := m[collections].GetMetric()[0].GetSummary().GetSampleCount()
	waitFor(t, "two collections end", func() bool {
		for range 20 {
			m = w.Metrics()
		}
		return m[collections].GetMetric()[0].GetSummary().GetSampleCount() >= first+2
	})
	return m.Value("go_memstats_next_gc_bytes") / (1 + m.Value("go_gc_gogc_percent")/100)
}

// mib writes bytes as figures show them.
func mib(bytes float64) string { return fmt.Sprintf("%.1fMiB", bytes/(1<<20)) }
