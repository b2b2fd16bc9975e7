//go:build unix

package kafka_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// passage is what went through the topic in between, noted before it is deleted there.
type passage struct {
	mu     sync.Mutex // guards what follows
	places map[int][]job.Place
	came   map[job.Place]time.Time
}

// follow reads the topic in between until the suite ends. It returns once it has read something.
func (u *suite) follow() *passage {
	u.t.Helper()
	p := &passage{places: map[int][]job.Place{}, came: map[job.Place]time.Time{}}
	client, err := kgo.NewClient(kgo.SeedBrokers(u.c.Direct()...), kgo.ConsumeTopics(u.between()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.FetchMaxWait(50*time.Millisecond))
	must(u.t, err)
	ctx, stop := context.WithCancel(u.t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(p.add)
		}
	})
	u.t.Cleanup(func() { stop(); reader.Wait(); client.Close() })
	waitFor(u.t, "events come through the topic in between", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.came) > 0
	})
	return p
}

func (p *passage) add(r *kgo.Record) {
	var value struct{ Load struct{ ID int } }
	if json.Unmarshal(r.Value, &value) != nil {
		return // the suite's own events are JSON
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := job.Place{Partition: r.Partition, Offset: r.Offset}
	p.places[value.Load.ID] = append(p.places[value.Load.ID], at)
	p.came[at] = time.Now()
}

// explained returns how many repeats the crashes explain on both ways: what a worker that was killed had written to the
// topic in between and not committed of the input, and what it had written of that topic and not committed there. Each
// is no more than what it may have in flight, and what has left since its last commit.
func (p *passage) explained(u *suite, outputs []job.Output, kept []commit) int {
	u.t.Helper()
	committed, between := map[*worker]map[int32]int64{}, map[*worker]map[int32]int64{}
	for _, w := range u.workers {
		if w.crashed {
			committed[w], between[w] = u.committedBy(w, u.input, kept), u.committedBy(w, u.between(), kept)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	twice, strange := 0, 0
	for id, at := range p.places {
		from, open := u.events[id], false
		for _, w := range u.workers {
			open = open || w.crashed && from.Offset >= committed[w][from.Partition]
		}
		twice += len(at) - 1
		if len(at) > 1 && !open {
			strange++
		}
	}
	if strange > 0 {
		u.t.Errorf("%d events went through the topic in between again although they were committed at each kill", strange)
	}
	if most := u.rounds * (u.setup.limit + mostBetween(slices.Collect(maps.Values(p.came)), kept)); twice > most {
		u.t.Errorf("%d events went through the topic in between again, want at most %d", twice, most)
	}
	n := twice
	by := job.ByOwner(outputs)
	for _, w := range u.workers {
		if !w.crashed {
			continue
		}
		behind := 0
		for _, o := range by[w.Name] {
			for _, at := range p.places[o.ID] {
				if at.Offset >= between[w][at.Partition] {
					behind++
					break
				}
			}
		}
		_, atCommit := w.watch.Ended()
		if since := len(by[w.Name]) - int(atCommit.Outputs); behind > u.setup.limit+since {
			u.t.Errorf("%s was killed with %d outputs behind its commits of the topic in between, want at most the %d in flight and %d since the last commit",
				w.Name, behind, u.setup.limit, since)
		}
		n += behind
	}
	u.t.Logf("%d events went through the topic in between again, and %d outputs were behind the commits there", twice, n-twice)
	return n
}
