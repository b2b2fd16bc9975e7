package asynchttp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gateMetrics are those of what functions do to the hosts that they call.
type gateMetrics struct {
	open    *prometheus.GaugeVec
	running *prometheus.GaugeVec
	limit   *prometheus.GaugeVec
	delayed *prometheus.CounterVec
	waited  *prometheus.HistogramVec
}

func newGateMetrics(r prometheus.Registerer) *gateMetrics {
	labels := []string{"function"}
	return &gateMetrics{
		open: register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "enricher_http_breakers_open",
			Help: "Hosts whose breaker is open: their events wait, or fail with while_open: error.",
		}, labels)),
		running: register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "enricher_http_in_flight",
			Help: "HTTP attempts on their way.",
		}, labels)),
		limit: register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "enricher_http_concurrency_limit",
			Help: "HTTP attempts that may be on their way at once: what adaptive has found, else workers.",
		}, labels)),
		delayed: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "enricher_http_retries_delayed_total",
			Help: "Retries that had to wait since their host had had its share (retry.share).",
		}, labels)),
		waited: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                            "enricher_http_limiter_wait_seconds",
			Help:                            "Time that an HTTP attempt waited for rate_limit.",
			Buckets:                         durationBuckets,
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, labels)),
	}
}

// gateMeters are the series of one function.
type gateMeters struct {
	open, running, limit prometheus.Gauge
	delayed              prometheus.Counter
	waited               prometheus.Observer
}

func (m *gateMetrics) of(function string) *gateMeters {
	s := &gateMeters{
		open: m.open.WithLabelValues(function), running: m.running.WithLabelValues(function), limit: m.limit.WithLabelValues(function),
		delayed: m.delayed.WithLabelValues(function), waited: m.waited.WithLabelValues(function),
	}
	s.open.Set(0) // a pipeline that starts anew knows nothing of its hosts
	return s
}
