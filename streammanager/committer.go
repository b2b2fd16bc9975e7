package streammanager

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// commitRequest asks for positions to be kept. after, if set, is called when it was tried.
type commitRequest struct {
	marks map[*partition]mark
	ctx   context.Context
	after func()

	// transaction commits what was written together with the marks; abort forgets it.
	transaction, abort bool
}

// committer alone commits. What it sends is pruned at the moment of sending to epochs that are live.
type committer struct {
	s *Stream

	said   string    // what was last wrong
	saidAt time.Time // when that was said
}

func (c *committer) run(ctx context.Context, requests *mailbox[commitRequest]) {
	var batch []commitRequest
	for {
		select {
		case <-ctx.Done():
			return
		case <-requests.notify:
		}
		batch = requests.take(batch)
		for _, req := range batch {
			c.s.committing.start()
			c.commit(req)
			c.s.committing.stop()
		}
	}
}

func (c *committer) commit(req commitRequest) {
	if req.transaction || req.abort {
		c.end(req)
		return
	}
	if req.after != nil {
		defer req.after()
	}
	positions := make(map[TopicPartition]Position, len(req.marks))
	sent := make(map[*partition]mark, len(req.marks))
	for p, m := range req.marks {
		if p.live.Load() {
			positions[p.tp], sent[p] = m.Position, m
		}
	}
	if len(positions) == 0 || c.s.committer == nil {
		c.s.completions.send(completion{commit: &committed{}})
		return
	}
	ctx, cancel := context.WithTimeout(req.ctx, commitTimeout)
	err := c.s.committer.Commit(ctx, positions)
	cancel()
	outcome := "ok"
	if err != nil {
		outcome = "failed"
		if errors.Is(err, ErrAssignmentLost) {
			outcome = "lost"
		}
		c.say(positions, err)
		sent = nil
	}
	c.s.metrics.commits.WithLabelValues(outcome).Inc()
	c.s.completions.send(completion{commit: &committed{marks: sent, err: err}})
}

// say logs a commit that failed: each cause when it comes up, and once a minute.
func (c *committer) say(positions map[TopicPartition]Position, err error) {
	level := slog.LevelDebug
	if text := err.Error(); text != c.said || time.Since(c.saidAt) >= sayAgain {
		c.said, c.saidAt, level = text, time.Now(), slog.LevelWarn
	}
	for tp, at := range positions {
		c.s.log.Log(c.s.hardCtx, level, "commit failed", "topic", tp.Topic, "partition", tp.Partition, "offset", at.Offset, "err", err)
	}
}

// end ends a transaction. One whose partitions were taken away meanwhile is aborted.
func (c *committer) end(req commitRequest) {
	e := &c.s.emitter.begun
	answer := &committed{transaction: true, marks: req.marks}
	positions := make(map[TopicPartition]Position, len(req.marks))
	commit := req.transaction
	for p, m := range req.marks {
		positions[p.tp] = m.Position
		commit = commit && p.live.Load()
	}
	if commit && !e.Load() { // of what was read, nothing was written
		answer.err = c.s.transactor.Begin(req.ctx)
	}
	if answer.err == nil {
		answer.kept, answer.err = c.s.transactor.End(req.ctx, commit, positions)
	}
	e.Store(false)
	if req.transaction {
		c.count(answer)
	}
	c.s.completions.send(completion{commit: answer})
}

func (c *committer) count(e *committed) {
	outcome := "ok"
	switch {
	case e.err != nil:
		outcome = "failed"
	case !e.kept:
		outcome = "lost"
	}
	c.s.metrics.commits.WithLabelValues(outcome).Inc()
}

// committed tells the loop what was kept.
type committed struct {
	marks map[*partition]mark

	// Of a transaction.
	transaction bool
	kept        bool

	err error
}

const commitTimeout = 10 * time.Second

// commit sends the positions that have moved.
func (l *loop) commit() {
	if l.committal || !l.dirty || l.tx != nil {
		return
	}
	l.dirty = false
	marks := map[*partition]mark{}
	for p := range l.parts {
		if p.ahead() && !p.revoking {
			marks[p] = p.mark()
		}
	}
	if len(marks) == 0 {
		return
	}
	l.committal = true
	l.dirty = true // until the answer says that it was kept
	l.s.commits.send(commitRequest{marks: marks, ctx: l.s.hardCtx})
}
