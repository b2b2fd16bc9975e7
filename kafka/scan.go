package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

// scanRecords is how many records one poll of a scan gets at most.
const scanRecords = 1000

// Scan calls each for the records that a bounded source would deliver if it were opened now, outside of the group and
// without committing anything. It takes the place of Open. A record is valid until each returns.
func (s *Source) Scan(ctx context.Context, each func(rec *streammanager.Record)) error {
	return s.apart(ctx, func(ctx context.Context) error {
		left := map[streammanager.TopicPartition]beginning{}
		at := map[string]map[int32]kgo.Offset{}
		for _, topic := range s.cfg.Topics {
			found, err := s.extent(ctx, topic)
			if err != nil {
				return err
			}
			for p, b := range found {
				if tp := (streammanager.TopicPartition{Topic: topic, Partition: p}); b.Offset < b.meta.span.until {
					left[tp] = b
					put(at, tp, kgo.NewOffset().At(b.Offset).WithEpoch(-1))
				}
			}
		}
		s.cl.AddConsumePartitions(at)
		for len(left) > 0 {
			if err := s.scan(ctx, left, each); err != nil {
				return err
			}
		}
		return nil
	})
}

// extent returns where reading would begin and end in each partition of a topic.
func (s *Source) extent(ctx context.Context, topic string) (map[int32]beginning, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := s.lookUp(ctx, topic)
	if err != nil {
		return nil, err
	}
	from, err := s.resolve(ctx, topic, s.start)
	if err != nil {
		return nil, err
	}
	until, err := s.resolve(ctx, topic, s.until)
	if err != nil {
		return nil, err
	}
	begun := s.begins(found.parts) && !s.cfg.Anew.wanted(topic, found.parts)
	parts := map[int32]beginning{}
	for p := range from {
		b, ok := found.parts[p]
		switch {
		case !ok && begun: // it was added since
			continue
		case !ok:
			b = beginningOf(found.id, from[p], "")
		case b.Offset < from[p]:
			b = b.elsewhere(from[p])
		}
		if !begun {
			b.meta.span = span{s.reading, from[p], until[p]}
		}
		parts[p] = b
	}
	return parts, nil
}

// scan polls once, and takes from left what has come to its end.
func (s *Source) scan(ctx context.Context, left map[streammanager.TopicPartition]beginning, each func(rec *streammanager.Record)) error {
	fetched := s.cl.PollRecords(ctx, scanRecords)
	if err := ctx.Err(); err != nil {
		return err
	}
	var failed error
	fetched.EachError(func(topic string, p int32, err error) {
		failed = errors.Join(failed, fmt.Errorf("reading topic %q partition %d: %w", topic, p, err))
	})
	if failed != nil {
		return failed
	}
	fetched.EachRecord(func(r *kgo.Record) {
		tp := streammanager.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		b, on := left[tp]
		if !on {
			return
		}
		if r.Offset < b.meta.span.until && !finishedIn(b.Finished, r.Offset) {
			s.poll.headers = s.poll.headers[:0]
			rec := s.poll.record(r)
			each(&rec)
		}
		if r.Offset >= b.meta.span.until-1 {
			delete(left, tp)
			s.cl.RemoveConsumePartitions(one(tp))
		}
	})
	return nil
}

func finishedIn(ranges []streammanager.Range, offset int64) bool {
	for _, r := range ranges {
		if offset >= r.From && offset < r.To {
			return true
		}
	}
	return false
}

// apart runs do with a client that is no member of the group.
func (s *Source) apart(ctx context.Context, do func(ctx context.Context) error) error {
	own, end := context.WithCancel(ctx)
	defer end()
	opts := append(s.readOpts(own),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		s.t.end()
		return fmt.Errorf("opening a client of kafka: %w", err)
	}
	defer s.t.end()
	defer cl.Close()
	s.cl, s.adm = cl, kadm.NewClient(cl)
	return do(own)
}
