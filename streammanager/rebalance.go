package streammanager

import (
	"context"
	"time"
)

// revocation is a set of partitions on their way to another owner.
type revocation struct {
	parts      []*partition
	deadline   time.Time
	ctx        context.Context
	committing bool
	done       chan struct{}
}

// maxRevoke bounds how long partitions take that are given back: four fifths of it are for their running work, the rest
// is for the last commit. The source's ctx may bound it more tightly.
const maxRevoke = 10 * time.Second

// Assigned implements Assignments.
func (s *Stream) Assigned(starts map[TopicPartition]Position) {
	parts := make([]*partition, 0, len(starts))
	for tp, start := range starts {
		parts = append(parts, s.assigned.add(tp, start))
	}
	s.control.send(func(l *loop) {
		l.readOn()
		for _, p := range parts {
			l.parts[p] = struct{}{}
			l.s.metrics.assigned(p)
			l.s.log.Info("partition assigned", "topic", p.tp.Topic, "partition", p.tp.Partition, "offset", p.committed, "finished_beyond", covered(p.tracker.before))
		}
		l.s.metrics.rebalances.Inc()
	})
	s.assigned.publish(parts)
}

// Revoked implements Assignments.
func (s *Stream) Revoked(ctx context.Context, tps []TopicPartition) {
	if len(tps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxRevoke)
	defer cancel()
	r := &revocation{ctx: ctx, done: make(chan struct{})}
	s.control.send(func(l *loop) { l.revoke(r, tps) })
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-s.stopped:
	}
	s.endEpochs(tps)
}

// Lost implements Assignments.
func (s *Stream) Lost(tps []TopicPartition) {
	if len(tps) == 0 {
		return
	}
	s.endEpochs(tps)
	s.control.send(func(l *loop) {
		l.readOn()
		for _, tp := range tps {
			l.forgetRewind(tp)
			for _, p := range l.find(tp) {
				l.s.log.Warn("partition lost", "topic", tp.Topic, "partition", tp.Partition)
				l.endEpoch(p)
			}
		}
		l.takenAway(tps)
		l.s.metrics.rebalances.Inc()
	})
}

// endEpochs makes sure, from any goroutine, that nothing more is emitted or committed for tps.
func (s *Stream) endEpochs(tps []TopicPartition) {
	for _, tp := range tps {
		if p := s.assigned.current(tp); p != nil {
			s.assigned.end(p)
		}
	}
}

// find returns the epochs of tp that the loop still keeps.
func (l *loop) find(tp TopicPartition) []*partition {
	var found []*partition
	for p := range l.parts {
		if p.tp == tp {
			found = append(found, p)
		}
	}
	return found
}

func (l *loop) revoke(r *revocation, tps []TopicPartition) {
	l.readOn()
	if l.tx != nil {
		l.revokeAtOnce(r, tps)
		return
	}
	end, _ := r.ctx.Deadline()
	r.deadline = end.Add(-end.Sub(l.now) / 5) // what is left is for the commit
	for _, tp := range tps {
		l.forgetRewind(tp)
		for _, p := range l.find(tp) {
			l.s.log.Info("partition revoked", "topic", tp.Topic, "partition", tp.Partition)
			p.revoking = true
			l.purge(p)
			r.parts = append(r.parts, p)
		}
	}
	l.s.metrics.rebalances.Inc()
	l.revokes = append(l.revokes, r)
}

// revokeAtOnce ends partitions of which the transaction can commit nothing any more.
func (l *loop) revokeAtOnce(r *revocation, tps []TopicPartition) {
	for _, tp := range tps {
		l.forgetRewind(tp)
		for _, p := range l.find(tp) {
			l.s.log.Info("partition revoked", "topic", tp.Topic, "partition", tp.Partition)
			l.endEpoch(p)
		}
	}
	l.takenAway(tps)
	l.s.metrics.rebalances.Inc()
	close(r.done)
}

// settleRevokes lets partitions go whose running work has ended, or whose time is up.
func (l *loop) settleRevokes() {
	for _, r := range l.revokes {
		if r.committing {
			continue
		}
		running := 0
		for _, p := range r.parts {
			running += p.running
		}
		if running > 0 && l.now.Before(r.deadline) {
			continue
		}
		r.committing = true
		marks := map[*partition]mark{}
		for _, p := range r.parts {
			if p.ahead() {
				marks[p] = p.mark()
			}
		}
		l.s.commits.send(commitRequest{marks: marks, ctx: r.ctx, after: func() {
			l.s.control.send(func(l *loop) { l.letGo(r) })
		}})
	}
}

// letGo ends the epochs of a revocation and lets the source go on.
func (l *loop) letGo(r *revocation) {
	l.readOn() // it may have ended once more meanwhile
	for _, p := range r.parts {
		l.endEpoch(p)
	}
	for i, other := range l.revokes {
		if other == r {
			l.revokes = append(l.revokes[:i], l.revokes[i+1:]...)
			break
		}
	}
	close(r.done)
}

// endEpoch ends an assignment: what is not in a call becomes unfinished now, the rest when it is back.
func (l *loop) endEpoch(p *partition) {
	l.s.assigned.end(p)
	delete(l.parts, p)
	l.giveBack(p.hop, p.notReturned())
	if p.paused && l.s.pauser != nil {
		p.paused = false
		l.s.pauser.Resume(p.tp)
	}
	l.purge(p)
	for c := range l.calls {
		if l.onlyDead(c) {
			c.cancel()
		}
	}
	l.s.metrics.forget(p.tp)
}

// onlyDead reports whether no event of a call belongs to a live partition.
func (l *loop) onlyDead(c *call) bool {
	for _, f := range c.flows {
		if f.u.part.live.Load() {
			return false
		}
	}
	return true
}

// purge makes everything of p unfinished that is neither in a call nor on its way to a sink.
func (l *loop) purge(p *partition) {
	for _, it := range l.windows.Drop(p.id) {
		l.abandonUnit(it.Value)
	}
	queued, door := p.queue, p.door
	p.queue, p.door = nil, nil
	for _, u := range append(queued, door...) {
		l.abandonUnit(u)
	}
	if u := p.barrier; u != nil && u.state == unitQueued {
		l.abandonUnit(u)
	}
	l.purgeQueue(&l.fresh)
	l.purgeQueue(&l.again)
	l.purgeWaits(func(f *flow) bool { return f.u.part == p })
	for c := range l.calls {
		if c.inline == nil {
			l.purgeArrived(p, c.flows)
		}
	}
	for _, q := range []*queue{&l.fresh, &l.again} {
		for _, g := range q.items {
			l.purgeArrived(p, g.flows)
		}
	}
}

// purgeArrived gives up the flows of p that wait for the rest of their batch, of which fs are.
func (l *loop) purgeArrived(p *partition, fs []*flow) {
	for _, f := range fs[0].u.ks.b.arrived {
		if f.u.part == p && f.state == flowArrived {
			l.giveUp(f)
		}
	}
}

// purgeQueue takes the flows out that nothing may be started for.
func (l *loop) purgeQueue(q *queue) {
	items := q.items
	q.items = nil
	for _, g := range items {
		if fs := l.wanted(g.flows); len(fs) > 0 {
			q.push(fs)
		}
	}
}

// purgeWaits gives up the flows between two tries that match.
func (l *loop) purgeWaits(match func(*flow) bool) {
	touched := map[*batch]bool{}
	for _, t := range append(timers(nil), l.timers...) {
		if t.flows == nil {
			continue
		}
		kept := t.flows[:0:0]
		for _, f := range t.flows {
			if f.state != flowWaiting {
				continue
			}
			if match(f) {
				touched[f.u.ks.b] = true
				l.giveUp(f)
				continue
			}
			kept = append(kept, f)
		}
		if t.flows = kept; len(kept) == 0 {
			l.timers.remove(t)
		}
	}
	for b := range touched {
		l.settleBatch(b)
	}
}
