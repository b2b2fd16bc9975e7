package streammanager_test

import (
	"context"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

const between = "between" // the repartition topic

// hopSink writes to the repartition topic of a memSource, where a key finds its partition.
type hopSink struct {
	memSink
	src   *memSource
	parts int32
}

func (s *hopSink) Produce(_ context.Context, r *streammanager.Record, done func(error)) {
	if s.refuse != nil {
		if err := s.refuse(r); err != nil {
			done(err)
			return
		}
	}
	h := fnv.New32()
	_, _ = h.Write(r.Key)
	at := tp{between, int32(h.Sum32() % uint32(s.parts))}
	s.src.mu.Lock()
	rec := *r
	rec.Topic, rec.Partition, rec.Offset = at.Topic, at.Partition, int64(len(s.src.logs[at]))
	s.src.logs[at] = append(s.src.logs[at], rec)
	s.src.kick()
	s.src.mu.Unlock()
	done(nil)
}

// Settled implements streammanager.Settler.
func (s *memSource) Settled(ctx context.Context, topic string) error {
	s.mu.Lock()
	ends := map[tp]int64{}
	for at, log := range s.logs {
		if at.Topic == topic {
			ends[at] = int64(len(log))
		}
	}
	s.mu.Unlock()
	for {
		left := false
		s.mu.Lock()
		for at, end := range ends {
			left = left || s.committed[at] < end
		}
		s.mu.Unlock()
		if !left {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// byField takes the value up to the first colon as the key; "!" has none that can be found, "~" is keyless.
func byField(_ context.Context, ev *event.Event) (streammanager.Key, error) {
	key, _, _ := strings.Cut(string(ev.Value()), ":")
	switch key {
	case "!":
		return streammanager.Key{}, event.Rejectf(event.MissingKey, "it has no key")
	case "~":
		return streammanager.Key{Keyless: true}, nil
	}
	return streammanager.Key{Value: key}, nil
}

// newHop makes a stream that goes through a topic of three partitions.
func newHop(t *testing.T, cfg streammanager.Config, shape func(*streammanager.Builder)) (*harness, *hopSink) {
	t.Helper()
	hop := &hopSink{parts: 3}
	h := newHarness(t, false, cfg, func(b *streammanager.Builder) {
		b.PartitionBy(byField).Repartition(between, hop)
		shape(b)
	})
	hop.src = h.src
	for p := range hop.parts {
		h.src.logs[tp{between, p}] = nil
	}
	return h, hop
}

// behind returns how many records of the repartition topic are not committed.
func (s *hopSink) behind() int64 {
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	n := int64(0)
	for at, log := range s.src.logs {
		if at.Topic == between {
			n += int64(len(log)) - s.src.committed[at]
		}
	}
	return n
}
