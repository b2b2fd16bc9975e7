package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/a0c75104/enricher/cli/progress"
	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// writeReport writes the table and one enriched event.
func writeReport(w io.Writer, s streammanager.Status, took time.Duration, metrics prometheus.Gatherer, sample []byte) error {
	latency, err := histogramOf(metrics, "enricher_batch_duration_seconds")
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name, value string) { fmt.Fprintf(t, "%s\t%s\t\n", name, value) }
	row("events in", progress.Grouped(s.Read))
	row("emitted", progress.Grouped(s.Emitted))
	row("dropped", progress.Grouped(s.Dropped))
	row("error events", progress.Grouped(s.Errors))
	for _, typ := range slices.Sorted(maps.Keys(s.ErrorsByType)) {
		row("of type "+string(typ), progress.Grouped(s.ErrorsByType[event.Type(typ)]))
	}
	row("events per second", progress.Grouped(int64(float64(s.Read)/took.Seconds())))
	row("batch latency p50", quantile(latency, 0.50))
	row("batch latency p99", quantile(latency, 0.99))
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, sample, "", "  "); err != nil {
		return fmt.Errorf("reading back an enriched event: %w", err)
	}
	if _, err := fmt.Fprintf(w, "\nOne enriched event, read back from the output topic:\n%s\n", pretty.Bytes()); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

func histogramOf(metrics prometheus.Gatherer, name string) (*dto.Histogram, error) {
	families, err := metrics.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering metrics: %w", err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetHistogram(), nil
		}
	}
	return nil, fmt.Errorf("gathering metrics: %s is missing", name)
}

// quantile estimates a quantile from the buckets, by straight lines within them, as Prometheus does.
func quantile(h *dto.Histogram, q float64) string {
	rank := q * float64(h.GetSampleCount())
	from, below := 0.0, 0.0
	for _, b := range h.GetBucket() {
		count := float64(b.GetCumulativeCount())
		if count >= rank && count > below && !math.IsInf(b.GetUpperBound(), 1) {
			seconds := from + (b.GetUpperBound()-from)*(rank-below)/(count-below)
			return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
		}
		from, below = b.GetUpperBound(), count
	}
	if h.GetSampleCount() == 0 {
		return "none"
	}
	return "over " + time.Duration(from*float64(time.Second)).String()
}
