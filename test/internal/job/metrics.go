//go:build unix

package job

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Families are metrics by name.
type Families map[string]*dto.MetricFamily

// Gathered returns what a registry in this process has.
func Gathered(found []*dto.MetricFamily) Families {
	f := Families{}
	for _, m := range found {
		f[m.GetName()] = m
	}
	return f
}

// Value adds up the series of a counter or gauge that have all the labels, each written name=value.
func (f Families) Value(name string, labels ...string) float64 {
	var total float64
	for _, m := range f[name].GetMetric() {
		if hasLabels(m, labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return total
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		name, value, _ := strings.Cut(want, "=")
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == name && l.GetValue() == value
		}
		if !found {
			return false
		}
	}
	return true
}

// ByLabel sums up counters, and the observations of histograms, by the values of labels.
func (f Families) ByLabel(name string, labels ...string) map[string]float64 {
	found := map[string]float64{}
	for _, m := range f[name].GetMetric() {
		values := make([]string, len(labels))
		for _, l := range m.GetLabel() {
			if i := slices.Index(labels, l.GetName()); i >= 0 {
				values[i] = l.GetValue()
			}
		}
		found[strings.Join(values, " ")] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return found
}

// Sample is what a worker told, and the kernel of it, at some time.
type Sample struct {
	At       time.Time // when it was asked
	Told     time.Time // when it had answered
	Commits  float64   // that succeeded
	Tried    float64   // commits, whatever became of them
	Emitted  float64   // events
	Dropped  float64   // events
	InFlight float64   // events
	Resident float64   // bytes in memory, at most so far
	Read     float64   // events
	Outputs  float64   // records
	Errors   float64   // error events
	Over     float64   // events that were passed over
	Moved    float64   // events that were written to the topic in between
	Skipped  float64   // records that were gone
	Restarts float64   // of the pipeline

	Failed map[string]float64 // error events, by type and function
}

// Watch reads the metrics of a worker all the time, until the worker has ended.
type Watch struct {
	done sync.WaitGroup

	mu             sync.Mutex // guards what follows
	last, atCommit Sample
	most           Sample
	samples        int
}

// NewWatch begins to watch w, until w or the test ends. A paused worker is waited for.
func NewWatch(w *Worker, every time.Duration) *Watch {
	f := &Watch{}
	ctx := w.t.Context()
	f.done.Go(func() { f.run(ctx, w, every) })
	w.t.Cleanup(f.done.Wait)
	return f
}

func (f *Watch) run(ctx context.Context, w *Worker, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		asked := time.Now()
		if metrics, err := w.Scrape(ctx); err == nil { // otherwise the worker has ended, or has no time now
			f.add(Sample{
				At:       asked,
				Told:     time.Now(),
				Commits:  metrics.Value("enricher_commits_total", "outcome=ok"),
				Tried:    metrics.Value("enricher_commits_total"),
				Emitted:  metrics.Value("enricher_events_total", "outcome=emitted"),
				Dropped:  metrics.Value("enricher_events_total", "outcome=dropped"),
				InFlight: metrics.Value("enricher_in_flight_events"),
				Resident: PeakResident(w.Pid),
				Read:     metrics.Value("enricher_events_read_total"),
				Outputs:  metrics.Value("enricher_outputs_total"),
				Errors:   metrics.Value("enricher_errors_total"),
				Over:     metrics.Value("enricher_source_passed_over_total"),
				Moved:    metrics.Value("enricher_repartitioned_total"),
				Failed:   metrics.ByLabel("enricher_errors_total", "type", "function"),
				Skipped:  metrics.Value("enricher_source_skipped_total"),
				Restarts: metrics.Value("enricher_restarts_total"),
			})
		}
		select {
		case <-tick.C:
		case <-w.Ended():
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *Watch) add(now Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Commits > f.last.Commits {
		f.atCommit = f.last
	}
	f.last = now
	f.samples++
	f.most = Sample{
		Commits: max(f.most.Commits, now.Commits), Emitted: max(f.most.Emitted, now.Emitted),
		InFlight: max(f.most.InFlight, now.InFlight), Resident: max(f.most.Resident, now.Resident),
	}
}

// Ended waits until the worker has, and returns the newest sample and the one before the newest commit was seen.
func (f *Watch) Ended() (last, atCommit Sample) {
	f.done.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.atCommit
}

// Last returns the newest sample.
func (f *Watch) Last() Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Samples returns how many there are.
func (f *Watch) Samples() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.samples
}

// Most returns the largest value of each kind.
func (f *Watch) Most() Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}
