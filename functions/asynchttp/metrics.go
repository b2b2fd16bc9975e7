package asynchttp

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
)

// codes are the values of the label code. They are known at start, so that every series starts at 0;
// any other status counts under its class, such as "5xx".
var codes = []string{
	"none", "1xx", "2xx", "3xx", "4xx", "5xx",
	"200", "204", "400", "401", "403", "404", "408", "410", "425", "429", "500", "502", "503", "504",
}

// The values of the label reason: what made another try necessary. Beside these, of which the tries are no
// attempts, it is the type of the error event that would have come.
const (
	reasonHold   = "hold"   // a Retry-After that held the host, or a failed try of one whose breaker is open
	reasonRecent = "recent" // what was asked for may not be there yet
	reasonRoom   = "room"   // the connection was lost while the answer waited for room
)

var reasons = []string{
	reasonHold, reasonRecent, reasonRoom, string(event.Connection), string(event.Timeout), string(event.RateLimited), string(event.UnexpectedStatus),
	string(event.NotFound), string(event.NoContent), string(event.EmptyResponse), string(event.InvalidResponse), string(event.TooLarge),
}

var durationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

// metrics are those of all functions that share a client.
type metrics struct {
	duration    *prometheus.HistogramVec
	retries     *prometheus.CounterVec
	connections *prometheus.CounterVec
	gates       *gateMetrics
	cache       *cacheMetrics
	bulk        *prometheus.HistogramVec
	bisected    *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{
		gates: newGateMetrics(r),
		cache: newCacheMetrics(r),
		duration: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                            "enricher_http_request_duration_seconds",
			Help:                            "Time of one HTTP attempt, by status code; none: no answer came; 5xx and the like: codes not listed by themselves.",
			Buckets:                         durationBuckets,
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"function", "code"})),
		retries: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "enricher_http_retries_total",
			Help: "HTTP attempts that are made again, by what made it necessary; hold: a Retry-After of the host or a failed try of one whose breaker is open, recent: retry_recent, room: a connection lost while its answer waited for room, all no attempts.",
		}, []string{"function", "reason"})),
		connections: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "enricher_http_connections_total",
			Help: "Connections that HTTP attempts got, by whether they had been used before.",
		}, []string{"function", "reused"})),
		bulk: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "enricher_http_bulk_events",
			Help:    "Events that one attempt asked for together, of functions with bulk.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}, []string{"function"})),
		bisected: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "enricher_http_bulk_bisected_total",
			Help: "Requests for several events that failed as a whole and were asked in halves, of functions with bulk.",
		}, []string{"function"})),
	}
}

// register returns c, or its equal that r already has.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if old, ok := already.ExistingCollector.(C); ok {
			return old
		}
	}
	if err != nil {
		panic("asynchttp: registering metrics: " + err.Error())
	}
	return c
}

// meters are the series of one function.
type meters struct {
	durations map[string]prometheus.Observer
	retries   map[string]prometheus.Counter
	fresh     prometheus.Counter
	reused    prometheus.Counter
	bulk      prometheus.Observer // nil without bulk
	bisected  prometheus.Counter
}

func (m *metrics) of(function string) *meters {
	s := &meters{
		durations: make(map[string]prometheus.Observer, len(codes)),
		retries:   make(map[string]prometheus.Counter, len(reasons)),
		fresh:     m.connections.WithLabelValues(function, "false"),
		reused:    m.connections.WithLabelValues(function, "true"),
	}
	for _, code := range codes {
		s.durations[code] = m.duration.WithLabelValues(function, code)
	}
	for _, reason := range reasons {
		s.retries[reason] = m.retries.WithLabelValues(function, reason)
	}
	return s
}

// request counts an attempt; status 0 means that no answer came.
func (s *meters) request(status int, took time.Duration) {
	o, ok := s.durations["none"]
	if status != 0 {
		if o, ok = s.durations[strconv.Itoa(status)]; !ok {
			o, ok = s.durations[strconv.Itoa(status/100)+"xx"]
		}
	}
	if !ok { // a status that is none, such as 700
		o = s.durations["5xx"]
	}
	o.Observe(took.Seconds())
}

// withBulk adds the series of a function with bulk.
func (s *meters) withBulk(m *metrics, function string) {
	s.bulk, s.bisected = m.bulk.WithLabelValues(function), m.bisected.WithLabelValues(function)
}

func (s *meters) askedFor(events int) { s.bulk.Observe(float64(events)) }

func (s *meters) retry(reason string) { s.retries[reason].Inc() }

func (s *meters) connection(reused bool) {
	if reused {
		s.reused.Inc()
		return
	}
	s.fresh.Inc()
}
