package asynchttp

import "github.com/prometheus/client_golang/prometheus"

// The values of the label result: what an event found, counted once for each.
const (
	cacheHit      = "hit"          // a kept answer
	cacheNegative = "negative_hit" // a kept answer that says that there is nothing
	cacheShared   = "shared"       // the answer to a request that another event made meanwhile
	cacheMiss     = "miss"         // nothing: it asked
)

// cacheMetrics are those of what functions with cache keep.
type cacheMetrics struct {
	results   *prometheus.CounterVec
	bytes     *prometheus.GaugeVec
	entries   *prometheus.GaugeVec
	evictions *prometheus.CounterVec
}

func newCacheMetrics(r prometheus.Registerer) *cacheMetrics {
	labels := []string{"function"}
	return &cacheMetrics{
		results: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "enricher_http_cache_total",
			Help: "Events by what they found, of functions with cache; hit: a kept answer, negative_hit: one that says that there is nothing, shared: the answer to a request that another event made meanwhile, miss: nothing, they asked.",
		}, []string{"function", "result"})),
		bytes: register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "enricher_http_cache_bytes",
			Help: "Memory of what is kept, of functions with cache.",
		}, labels)),
		entries: register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "enricher_http_cache_entries",
			Help: "Answers that are kept, of functions with cache; those that are too old are among them until somebody asks or needs the room.",
		}, labels)),
		evictions: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "enricher_http_cache_evictions_total",
			Help: "Answers that had to go before their time, since max_bytes was used up, of functions with cache.",
		}, labels)),
	}
}

// cacheMeters are the series of one function.
type cacheMeters struct {
	results        map[string]prometheus.Counter
	bytes, entries prometheus.Gauge
	evictions      prometheus.Counter
}

func (m *cacheMetrics) of(function string) *cacheMeters {
	s := &cacheMeters{
		results: map[string]prometheus.Counter{}, bytes: m.bytes.WithLabelValues(function),
		entries: m.entries.WithLabelValues(function), evictions: m.evictions.WithLabelValues(function),
	}
	for _, result := range []string{cacheHit, cacheNegative, cacheShared, cacheMiss} {
		s.results[result] = m.results.WithLabelValues(function, result)
	}
	s.bytes.Set(0) // a pipeline that starts anew keeps nothing
	s.entries.Set(0)
	return s
}
