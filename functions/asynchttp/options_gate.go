package asynchttp

import "github.com/a0c75104/enricher/functions"

// BreakerOptions say when the calls to a host are stopped because too many fail.
type BreakerOptions struct {
	Failures  float64            `yaml:"failures" doc:"share of the latest calls to a host (those of the last second, or as many as calls says where those are fewer) that must fail: connection faults, time-outs and 5xx" default:"0.5"`
	Calls     int                `yaml:"calls" doc:"calls to a host that must have ended before it is judged; 0: no breaker" default:"20"`
	Open      functions.Duration `yaml:"open" doc:"time after which one of the events that wait tries the host again" default:"5s"`
	WhileOpen string             `yaml:"while_open" doc:"hold: the host's events wait, which is no attempt; error: they are error events of type connection at once" default:"hold" enum:"hold|error"`
}

// RateLimitOptions bound how many calls are sent.
type RateLimitOptions struct {
	PerSecond float64 `yaml:"per_second" doc:"calls per second, retries among them; events beyond it wait in order of arrival, which is no attempt" required:"true"`
	Burst     int     `yaml:"burst" doc:"calls that may go at once after a pause" default:"1"`
	Per       string  `yaml:"per" doc:"what the rate is of: all calls of the function, or those to each host" default:"all" enum:"all|host"`
	Scope     string  `yaml:"scope" doc:"whose calls count together: those of this worker" default:"worker" enum:"worker" refuse:"job" why:"the workers of a job cannot share a rate yet: write scope: worker, and per_second divided by their number"`
}

const (
	maxBreakerCalls = 1000
	maxShare        = 100
	maxPerSecond    = 1e6
	minPerSecond    = 1e-3
)

// checkGate finds what is wrong with the limits of hosts.
func (o Options) checkGate(wrong func(option, format string, args ...any)) {
	if s := o.Retry.Share; !(s >= 0 && s <= maxShare) {
		wrong("retry.share", "%v is no share: 0.1 allows one retry for ten calls", s)
	}
	b := o.Breaker
	if b.Calls < 0 || b.Calls > maxBreakerCalls {
		wrong("breaker.calls", "%d is not from 0 (no breaker) to %d", b.Calls, maxBreakerCalls)
	}
	if !(b.Failures > 0 && b.Failures <= 1) {
		wrong("breaker.failures", "%v is no share above 0 and up to 1; calls: 0 is no breaker", b.Failures)
	}
	if b.Open <= 0 {
		wrong("breaker.open", "without a pause a host that fails would be tried all the time: write a duration above 0")
	}
	r := o.RateLimit
	if r == nil {
		return
	}
	if !(r.PerSecond >= minPerSecond && r.PerSecond <= maxPerSecond) {
		wrong("rate_limit.per_second", "%v is not from %v to %v", r.PerSecond, minPerSecond, maxPerSecond)
	}
	if r.Burst < 1 {
		wrong("rate_limit.burst", "%d lets no call go: write 1 or more", r.Burst)
	}
	if r.Scope == "job" {
		wrong("rate_limit.scope", "the workers of a job cannot share a rate yet: write scope: worker, and per_second divided by their number")
	}
}
