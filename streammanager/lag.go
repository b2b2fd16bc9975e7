package streammanager

import (
	"cmp"
	"fmt"
	"time"
)

// stalledAfter is how long a partition with records left may stand still before the stream is not ready:
// longer than calls and the holds of a host take by their defaults.
const stalledAfter = 5 * time.Minute

// observeLag sets the gauges of how far behind the stream is, and looks for partitions that stand still.
func (l *loop) observeLag() {
	oldest := 0.0
	var stall error
	l.hearOfEnds()
	for p := range l.parts {
		if p.end >= 0 {
			l.s.metrics.lag.WithLabelValues(p.tp.Topic, itoa(p.tp.Partition)).Set(float64(max(0, p.end-l.safe(p))))
		}
		if ms, ok := p.tracker.oldest(); ok {
			oldest = max(oldest, l.now.Sub(time.UnixMilli(ms)).Seconds())
		}
		if err := l.stall(p); err != nil {
			stall = err
		}
	}
	l.s.metrics.lagSec.Set(oldest)
	l.countFound()
	l.s.setStall(cmp.Or(l.watch(), stall))
}

// hearOfEnds asks the source where logs end: polls tell of what they deliver alone.
func (l *loop) hearOfEnds() {
	if l.s.ender == nil {
		return
	}
	for tp, end := range l.s.ender.Ends() {
		if p := l.s.assigned.current(tp); p != nil {
			p.end = end
		}
	}
}

// safe is the offset that a restart goes on from: of a transaction that is not committed nothing counts.
func (l *loop) safe(p *partition) int64 {
	if l.s.committer == nil && l.tx == nil { // nothing is kept
		return p.tracker.position()
	}
	return p.committed
}

// stall tells whether p has records left and has not moved for too long.
func (l *loop) stall(p *partition) error {
	at := p.tracker.position()
	if p.moved.IsZero() || at != p.at || p.turning || p.tracker.length == 0 && p.seen <= at {
		p.at, p.moved, p.stalled = at, l.now, false
		return nil
	}
	still := l.now.Sub(p.moved)
	if still < stalledAfter+l.s.window.Timeout {
		return nil
	}
	err := fmt.Errorf("topic %q partition %d stands still at offset %d for %v, with %d records left: the event there is not finished",
		p.tp.Topic, p.tp.Partition, at, still.Round(time.Second), max(p.seen-at, int64(p.tracker.length)))
	if !p.stalled {
		p.stalled = true
		l.s.metrics.stalls.WithLabelValues(string(StallEvent)).Inc()
		l.s.log.Warn("partition stalled", "topic", p.tp.Topic, "partition", p.tp.Partition, "offset", at, "err", err)
	}
	return err
}

func (s *Stream) setStall(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = err
}

// countFound adds what source and sinks have found since they were last asked: records that were gone, and what stood still.
func (l *loop) countFound() {
	if l.s.skipper != nil {
		now := l.s.skipper.Skipped()
		l.s.metrics.skipped.Add(float64(now - l.skipped))
		l.skipped = now
	}
	parts := []any{l.s.source}
	for _, n := range l.s.sinks() {
		parts = append(parts, n.sink)
	}
	for _, part := range parts {
		st, ok := part.(Staller)
		if !ok {
			continue
		}
		for what, n := range st.Stalled() {
			key := counted{part, what}
			l.s.metrics.stalls.WithLabelValues(string(what)).Add(float64(n - l.counted[key]))
			l.counted[key] = n
		}
	}
}

// counted is a number that a part of the stream keeps, and that was added to a metric.
type counted struct {
	part any
	what Stall
}
