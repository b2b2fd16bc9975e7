package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// Rate returns how many calls of 50 ms a second so many workers make of an input of one partition over a repartition
// topic, with as many calls at once each. No processor is too slow for that in virtual time. It must be called inside a
// synctest bubble.
func Rate(workers, calls int) (rate float64, broken []string) {
	const ahead, keys, delay, while = 1200, 500, 50 * time.Millisecond, 10 * time.Second
	w := &between{rnd: rand.New(rand.NewPCG(1, 46)), busy: map[string]int{}, called: map[string]int{}}
	w.parts, w.partitions, w.faults = 12, 1, 1
	w.cfg = streammanager.Config{
		Name: "sim", Workers: calls, Limits: streammanager.Limits{InFlightEvents: 500}, CommitInterval: 200 * time.Millisecond, ShutdownTimeout: 10 * time.Second,
	}
	var written, done atomic.Int64
	w.step = func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		time.Sleep(delay)
		done.Add(1)
		return []*event.Event{ev}, nil
	}
	if err := w.open(); err != nil {
		return 0, []string{err.Error()}
	}
	for range workers {
		w.launch()
	}
	feed := func(until time.Time) {
		for time.Now().Before(until) {
			for ; written.Load()-done.Load() < ahead; written.Add(1) {
				key := fmt.Sprint("k", w.rnd.IntN(keys))
				w.client.Produce(context.Background(), &kgo.Record{Topic: inTopic, Key: []byte(key), Value: []byte(key)}, nil)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	feed(time.Now().Add(while)) // the group settles
	before := done.Load()
	feed(time.Now().Add(while))
	rate = float64(done.Load()-before) / while.Seconds()
	w.stopAll()
	w.admin.Close()
	w.cluster.Close()
	return rate, w.broken
}
