//go:build unix

package kafka_test

import (
	"context"
	"encoding/json"
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

// explained returns how many repeats the books explain on both ways: of what was written to the topic in between, since
// partitions of the input went from one turn to another, and of what was written of that topic, since its own did.
//
// What is in that topic does not name who wrote it: whoever had the partition then is taken for it, which is wrong for what was
// under way when it changed hands. An event that went through twice has two places there, and its outputs do not say of which
// they are: they are taken for the later one first. So the sums hold, and the bounds of each turn hold but for these few.
func (p *passage) explained(u *suite, b books, kept []commit) int {
	u.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var through, out []*made
	for id, at := range p.places {
		from := u.events[id]
		for _, place := range at {
			through = append(through, &made{of: []job.Place{{Partition: from.Partition, Offset: from.Offset}}, at: p.came[place]})
		}
	}
	for _, m := range u.made(b) {
		m.of = p.places[m.id]
		out = append(out, m)
	}
	twice := u.handedOver(u.input, through, kept, true)
	again := u.handedOver(u.between(), out, kept, true)
	u.t.Logf("explained are %d that went through the topic in between again, and %d outputs of what is there", twice, again)
	return twice + again
}
