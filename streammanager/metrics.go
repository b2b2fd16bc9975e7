package streammanager

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/window"
)

// Buckets are those of every duration: 1 ms to 120 s.
var Buckets = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120}

// metrics of one stream. The loop writes them, save commits.
type metrics struct {
	eventsRead                                                     *prometheus.CounterVec
	events, errors, closed, commits, transactions, stalls          *prometheus.CounterVec
	outputs, paused, rebalances, rewinds, abandoned, skipped, over prometheus.Counter
	moved                                                          prometheus.Counter
	batchDuration, batchEvents, eventLatency                       prometheus.Histogram
	windows, lanes, inFlight, inFlightBytes, workers, busy, lagSec prometheus.Gauge
	lag                                                            *prometheus.GaugeVec

	counts Status // what Status tells; the loop's
	topics map[string]prometheus.Counter
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newMetrics(reg prometheus.Registerer, pipeline string, functions []string) (*metrics, error) {
	m := &metrics{
		eventsRead:    counterVec("enricher_events_read_total", "Events read from the source.", "topic"),
		events:        counterVec("enricher_events_total", "Events by outcome.", "outcome"),
		outputs:       counter("enricher_outputs_total", "Records that the sink acknowledged."),
		moved:         counter("enricher_repartitioned_total", "Events written to the repartition topic."),
		errors:        counterVec("enricher_errors_total", "Error events by type and function.", "type", "function"),
		batchDuration: histogram("enricher_batch_duration_seconds", "Dispatch of a batch to the end of its last call.", Buckets),
		batchEvents:   histogram("enricher_batch_events", "Events per batch.", prometheus.ExponentialBuckets(1, 2, 13)),
		closed:        counterVec("enricher_windows_closed_total", "Windows closed, by reason.", "reason"),
		windows:       gauge("enricher_windows_open", "Open windows."),
		lanes:         gauge("enricher_lanes", "Keys with unfinished events."),
		inFlight:      gauge("enricher_in_flight_events", "Events read and not finished."),
		inFlightBytes: gauge("enricher_in_flight_bytes", "Bytes of events read and not finished, and of their outputs."),
		workers:       gauge("enricher_workers", "Calls that may be in progress."),
		busy:          gauge("enricher_workers_busy", "Calls in progress."),
		paused:        counter("enricher_paused_seconds_total", "Time for which a limit stopped the polling."),
		eventLatency:  histogram("enricher_event_latency_seconds", "Reading of an event to its acknowledgement.", Buckets),
		lag:           prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "enricher_source_lag", Help: "Records from the committed offset to the end, once it is known where that is; what is finished among them counts too."}, []string{"topic", "partition"}),
		lagSec:        gauge("enricher_source_lag_seconds", "Age of the oldest unfinished record that was read."),
		commits:       counterVec("enricher_commits_total", "Commits by outcome.", "outcome"),
		transactions:  counterVec("enricher_transactions_total", "Transactions committed, or aborted for a reason.", "outcome"),
		stalls:        counterVec("enricher_stalls_total", "What was found to stand still, by what it was.", "reason"),
		rebalances:    counter("enricher_rebalances_total", "Changes of the assignment."),
		rewinds:       counter("enricher_rewinds_total", "Returns to the committed offsets after a failure of the sink."),
		abandoned:     counter("enricher_calls_abandoned_total", "Calls that did not return after their deadline."),
		skipped:       counter("enricher_source_skipped_total", "Records that were gone before they could be read (out_of_range)."),
		over:          counter("enricher_source_passed_over_total", "Records read again that were finished before the restart or rebalance: not processed again, and not among those read."),
		topics:        map[string]prometheus.Counter{},
	}
	m.counts.ErrorsByType = map[event.Type]int64{}
	if reg != nil {
		reg = prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": pipeline}, reg)
		if err := m.register(reg); err != nil {
			return nil, err
		}
		m.lag.Reset() // of a stream before this one
	}
	m.start(functions)
	return m, nil
}

// register hands the metrics to reg. Those that a stream before this one has registered there go on, so that
// no counter goes back when a stream is made again.
func (m *metrics) register(reg prometheus.Registerer) error {
	return errors.Join(
		goOn(reg, &m.eventsRead), goOn(reg, &m.events), goOn(reg, &m.outputs), goOn(reg, &m.errors), goOn(reg, &m.batchDuration),
		goOn(reg, &m.batchEvents), goOn(reg, &m.closed), goOn(reg, &m.windows), goOn(reg, &m.lanes), goOn(reg, &m.inFlight),
		goOn(reg, &m.inFlightBytes), goOn(reg, &m.workers), goOn(reg, &m.busy), goOn(reg, &m.paused), goOn(reg, &m.eventLatency),
		goOn(reg, &m.lag), goOn(reg, &m.lagSec), goOn(reg, &m.commits), goOn(reg, &m.rebalances), goOn(reg, &m.rewinds),
		goOn(reg, &m.abandoned), goOn(reg, &m.skipped), goOn(reg, &m.over), goOn(reg, &m.transactions), goOn(reg, &m.stalls),
		goOn(reg, &m.moved),
	)
}

// goOn registers *c, or puts its equal in its place that reg already has.
func goOn[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if old, ok := already.ExistingCollector.(C); ok {
			*c = old
			return nil
		}
	}
	return err
}

// idle sets what is of the moment to nothing when a stream has ended.
func (m *metrics) idle() {
	for _, g := range []prometheus.Gauge{m.windows, m.lanes, m.inFlight, m.inFlightBytes, m.busy, m.lagSec} {
		g.Set(0)
	}
	m.lag.Reset()
}

// start lets every series whose labels are known begin at 0.
func (m *metrics) start(functions []string) {
	for _, o := range []string{outcomeEmitted, outcomeDropped, outcomeError} {
		m.events.WithLabelValues(o)
	}
	for _, r := range []window.Reason{window.ByCount, window.ByBytes, window.ByTimeout, window.ByEager, window.ByLimits, window.ByDrain, window.ByTransaction, window.ByBarrier} {
		m.closed.WithLabelValues(string(r))
	}
	for _, o := range []string{"ok", "failed", "lost"} {
		m.commits.WithLabelValues(o)
	}
	for _, o := range []string{txCommitted, txRebalanced, txLate, txSink, txRecord, txRefused, txStopped} {
		m.transactions.WithLabelValues(o)
	}
	for _, t := range []event.Type{event.InvalidEvent, event.MissingKey, event.Expression} {
		for _, f := range []string{"source", "filter", "partition_by", "window"} {
			m.errors.WithLabelValues(string(t), f)
		}
	}
	for _, t := range []event.Type{event.MissingField, event.Expression, event.TooLarge, event.Rejected} {
		m.errors.WithLabelValues(string(t), "sink")
	}
	for _, r := range Stalls() {
		m.stalls.WithLabelValues(string(r))
	}
	types := []event.Type{
		event.InvalidEvent, event.MissingField, event.Expression, event.NotFound, event.NoContent, event.EmptyResponse, event.InvalidResponse,
		event.UnexpectedStatus, event.Timeout, event.Connection, event.RateLimited, event.TooLarge, event.Rejected, event.Function, event.Panic,
	}
	for _, f := range functions {
		for _, t := range types {
			m.errors.WithLabelValues(string(t), f)
		}
	}
}

// repartitions lets the series of what may fail on the way through the repartition topic begin at 0.
func (m *metrics) repartitions() {
	for _, t := range []event.Type{event.InvalidEvent, event.TooLarge, event.Rejected} {
		m.errors.WithLabelValues(string(t), "repartition")
	}
}

func (m *metrics) read(topic string) {
	m.topic(topic).Inc()
	m.counts.Read++
}

func (m *metrics) passOver() {
	m.over.Inc()
	m.counts.PassedOver++
}

func (m *metrics) topic(name string) prometheus.Counter {
	c := m.topics[name]
	if c == nil {
		c = m.eventsRead.WithLabelValues(name)
		m.topics[name] = c
	}
	return c
}

// assigned lets the series of a partition begin at 0, also where nothing comes. Its lag has one once it is known.
func (m *metrics) assigned(p *partition) {
	if p.hop != secondHop {
		m.topic(p.tp.Topic)
	}
}

func (m *metrics) written(records int) {
	m.outputs.Add(float64(records))
	m.counts.Outputs += int64(records)
}

func (m *metrics) dropped() {
	m.events.WithLabelValues(outcomeDropped).Inc()
	m.counts.Dropped++
}

func (m *metrics) failed(f *Failure) {
	m.errors.WithLabelValues(string(f.Type), f.Function).Inc()
	m.counts.ErrorsByType[f.Type]++
}

func (m *metrics) finished(outcome string, took time.Duration) {
	if outcome == outcomeMoved { // it is told when it has come out
		m.moved.Inc()
		return
	}
	m.events.WithLabelValues(outcome).Inc()
	m.eventLatency.Observe(took.Seconds())
	switch outcome {
	case outcomeEmitted:
		m.counts.Emitted++
	case outcomeDropped:
		m.counts.Dropped++
	case outcomeError:
		m.counts.Errors++
	}
}

// forget removes the series of a partition that was taken away.
func (m *metrics) forget(tp TopicPartition) {
	m.lag.DeleteLabelValues(tp.Topic, itoa(tp.Partition))
}

// tell counts one outcome.
func (m *metrics) tell(t told) {
	if t.failure != nil {
		m.failed(t.failure)
	}
	if t.outputs > 0 {
		m.written(t.outputs)
	}
	m.finished(t.outcome, t.took)
}
