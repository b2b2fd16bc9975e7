package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

var errClosed = errors.New("the kafka source is closed")

const (
	// restAfterError keeps a partition that cannot be read from being asked for without a pause.
	restAfterError = time.Second
	// wellAgainAfter is after how long of being asked for without an error a partition can be read again: with no record
	// to come, nothing else tells.
	wellAgainAfter = 30 * time.Second
	// mostUnreadable is how often in a row a batch may be unreadable before the pipeline gives up.
	mostUnreadable = 5
)

// poll is what Poll keeps from call to call.
type poll struct {
	records []streammanager.Record
	headers []event.Header
	ill     map[streammanager.TopicPartition]*illness
	failed  error // is returned by the next Poll
	ending  ending
}

// illness is that of a partition that cannot be read.
type illness struct {
	at   int64     // the offset
	last time.Time // when it was said last
	bad  int       // how often in a row the batch there could not be read
}

// Poll implements streammanager.Source.
func (s *Source) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	if s.cl == nil {
		return streammanager.Polled{}, errClosed
	}
	p := &s.poll
	clear(p.records)
	p.records, p.headers = p.records[:0], p.headers[:0]
	got := streammanager.Polled{HighWatermarks: map[streammanager.TopicPartition]int64{}}
	for p.failed == nil {
		if ctx.Err() != nil {
			return streammanager.Polled{}, ctx.Err()
		}
		if err := s.judged(); err != nil {
			return streammanager.Polled{}, err
		}
		s.refetch()
		if s.expelled.Swap(false) {
			if err := s.beginAnew(ctx); err != nil {
				s.expelled.Store(true)
				s.t.note(trouble{kind: troubleStart}, err)
				pause(ctx, commitAgain)
				continue
			}
			s.t.healed(trouble{kind: troubleStart})
		}
		if s.meetMoved(limit); len(p.records) > 0 {
			got.Records = p.records
			return got, nil
		}
		most := time.Duration(noEnd)
		if s.bounded() {
			if s.over(ctx) {
				return streammanager.Polled{}, io.EOF
			}
			most = askGroupAgain // what was waited for may be another's by then
		}
		wait, cancel := s.untilRested(ctx, most)
		s.asking.begin()
		fetched := s.cl.PollRecords(wait, max(limit, 1))
		s.asking.end(fetched.NumRecords() > 0)
		cancel()
		s.take(fetched, got.HighWatermarks)
		p.failed = s.errors(ctx, fetched)
		if err := s.refusal(); err != nil { // nothing of what was polled is to be worked on
			return streammanager.Polled{}, err
		}
		if len(p.records) > 0 {
			got.Records = p.records
			return got, nil
		}
	}
	err := p.failed
	p.failed = nil
	return streammanager.Polled{}, err
}

// take keeps the records of partitions that the stream was told of.
func (s *Source) take(fetched kgo.Fetches, ends map[streammanager.TopicPartition]int64) {
	p := &s.poll
	n := 0
	fetched.EachRecord(func(r *kgo.Record) { n += len(r.Headers) })
	if cap(p.headers) < n {
		p.headers = make([]event.Header, 0, n)
	}
	stable := s.isolation() == stableOfLog
	s.mu.Lock()
	defer s.mu.Unlock()
	fetched.EachPartition(func(f kgo.FetchTopicPartition) {
		tp := streammanager.TopicPartition{Topic: f.Topic, Partition: f.Partition}
		h := s.held[tp]
		if h == nil {
			return
		}
		through := s.isThrough(tp.Topic)
		if f.Err == nil && f.HighWatermark >= 0 {
			ends[tp] = f.HighWatermark
			if stable && f.LastStableOffset >= 0 {
				ends[tp] = min(f.HighWatermark, f.LastStableOffset)
			}
			ends[tp] = min(ends[tp], h.until)
			h.end = ends[tp]
		}
		for _, r := range f.Records {
			if r.Offset >= h.until {
				h.next = h.until
				break
			}
			if through && !s.claim(r) {
				return
			}
			p.records = append(p.records, p.record(r))
			h.next, h.seen = r.Offset+1, r.Offset+1
		}
		s.meet(tp, h)
		if len(f.Records) > 0 && f.Err == nil && len(p.ill) > 0 {
			s.wellAgain(tp)
		}
	})
}

func (p *poll) record(r *kgo.Record) streammanager.Record {
	from := len(p.headers)
	for _, h := range r.Headers {
		p.headers = append(p.headers, event.Header{Key: h.Key, Value: h.Value})
	}
	var headers []event.Header
	if len(p.headers) > from {
		headers = p.headers[from:len(p.headers):len(p.headers)]
	}
	return streammanager.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value,
		Headers: headers, Timestamp: r.Timestamp, Marker: r.Attrs.IsControl(),
	}
}

// errors deals with what went wrong. It returns an error for what will not heal here.
func (s *Source) errors(ctx context.Context, fetched kgo.Fetches) error {
	var failed error
	gone := map[streammanager.TopicPartition]struct{}{}
	fetched.EachError(func(topic string, partition int32, err error) {
		tp := streammanager.TopicPartition{Topic: topic, Partition: partition}
		var loss *kgo.ErrDataLoss
		switch {
		case errors.Is(err, kgo.ErrClientClosed):
			failed = errClosed
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		case errors.Is(err, kerr.FencedInstanceID):
			failed = &streammanager.FailedError{Reason: streammanager.ReasonGroup, Err: fmt.Errorf(
				"taking part in group %q: another worker uses the same group.instance.id, %q: give each its own: %w", s.cfg.Group, s.set.text("group.instance.id"), err)}
		case errors.As(err, &loss) && s.isThrough(loss.Topic):
			failed = event.Fatal(fmt.Errorf("the repartition topic %q has lost events: the cluster lost the records of partition %d from offset %d to %d, as when a replica that lacked them became its leader; "+
				"read the input again from an earlier offset", loss.Topic, loss.Partition, loss.ResetTo, loss.ConsumedTo))
		case errors.As(err, &loss):
			s.t.log.Error("kafka: the cluster lost records, going on where its log goes on", "topic", topic, "partition", partition,
				"offset", loss.ConsumedTo, "resumed", loss.ResetTo)
			s.retell(streammanager.TopicPartition{Topic: loss.Topic, Partition: loss.Partition}, loss.ResetTo)
		case errors.Is(err, kerr.OffsetOutOfRange):
			gone[tp] = struct{}{}
		case topic == "":
			// Of the group: the hook has noted it. It cannot ask for offsets of a topic that was made again.
			s.lookSoon()
		case partition < 0:
			s.t.note(trouble{kind: troubleTopic, about: topic}, topicError(topic, err, "create it, or correct topics"))
		default:
			if err := s.unreadable(tp, err); err != nil {
				failed = err
			}
		}
	})
	for tp := range gone {
		if err := s.outOfRange(ctx, tp); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// unreadable notes that a partition cannot be read and lets it rest. What the broker says may heal; a
// batch that cannot be decoded is tried a few times, in case it was damaged on its way.
func (s *Source) unreadable(tp streammanager.TopicPartition, err error) error {
	ill, err := s.rest(tp, err)
	if ill == nil || mayHeal(err) {
		return nil
	}
	if ill.bad++; ill.bad < mostUnreadable && !isFinal(err) {
		return nil
	}
	delete(s.poll.ill, tp)
	return &streammanager.FailedError{
		Reason: streammanager.ReasonUnreadable, At: &event.Position{Topic: tp.Topic, Partition: tp.Partition, Offset: ill.at},
		Err: fmt.Errorf("%w: the batch there cannot be read; to pass over it, stop all workers and commit a later offset for group %q", err, s.cfg.Group),
	}
}

// rest notes why a partition is not read, with its place, and lets it rest. It returns nil for one that is no longer held.
func (s *Source) rest(tp streammanager.TopicPartition, err error) (*illness, error) {
	s.mu.Lock()
	h := s.held[tp]
	at := int64(-1)
	if h != nil {
		at = h.next
		s.resting[tp] = time.Now().Add(restAfterError)
		s.cl.PauseFetchPartitions(one(tp))
	}
	s.mu.Unlock()
	if h == nil {
		return nil, nil
	}
	err = fmt.Errorf("reading topic %q partition %d at offset %d: %w", tp.Topic, tp.Partition, at, err)
	s.t.note(partitionTrouble(tp), err)
	if errors.Is(err, kerr.UnknownTopicID) {
		s.ids.doubts(tp.Topic, true)
		s.lookSoon()
	}
	if s.poll.ill == nil {
		s.poll.ill = map[streammanager.TopicPartition]*illness{}
	}
	ill := s.poll.ill[tp]
	if ill == nil || ill.at != at {
		ill = &illness{at: at}
		s.poll.ill[tp] = ill
	}
	ill.last = time.Now()
	return ill, err
}

// wellAgain notes that a partition can be read. The caller holds mu.
func (s *Source) wellAgain(tp streammanager.TopicPartition) {
	delete(s.poll.ill, tp)
	s.ids.doubts(tp.Topic, false)
	s.t.healed(partitionTrouble(tp))
}

// untilWell takes partitions for well that are asked for and give no error any more, and returns when the next may be.
// The caller holds mu.
func (s *Source) untilWell(now time.Time) time.Time {
	after, next := wellAgainAfter+s.set.millis("fetch.max.wait.ms"), time.Time{}
	for tp, ill := range s.poll.ill {
		if _, paused := s.paused[tp]; paused { // it is not asked for
			ill.last = now
		}
		switch until := ill.last.Add(after); {
		case s.held[tp] == nil:
			delete(s.poll.ill, tp)
		case !until.After(now):
			s.wellAgain(tp)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	return next
}

// mayHeal reports whether a broker gave err, about something else than the batch.
func mayHeal(err error) bool {
	var said *kerr.Error
	return errors.As(err, &said) && said != kerr.CorruptMessage
}

// isFinal reports whether the library asks no more for what err is about. It does so with a batch that would
// take too much memory, and the partition would stand still without another word.
func isFinal(err error) bool {
	var large *kgo.ErrDecompressTooLarge
	return errors.As(err, &large)
}

// untilRested lets partitions flow whose rest is over, and returns a context that ends with the next
// one's rest, when this worker is expelled or refused, or after most.
func (s *Source) untilRested(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	next := s.untilWell(now)
	if until := now.Add(most); most < noEnd && (next.IsZero() || until.Before(next)) {
		next = until
	}
	for tp, until := range s.resting {
		if !until.After(now) {
			delete(s.resting, tp)
			s.flow(tp)
			continue
		}
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	if next.IsZero() {
		ctx, s.wake = context.WithCancel(ctx)
	} else {
		ctx, s.wake = context.WithDeadline(ctx, next)
	}
	if s.expelled.Load() || s.isJudged() || s.refetches.asked() || s.unmet {
		s.wake()
	}
	return ctx, s.wake
}

func partitionTrouble(tp streammanager.TopicPartition) trouble {
	return trouble{kind: troublePartition, about: fmt.Sprintf("%s/%d", tp.Topic, tp.Partition)}
}

// topicError adds what to do.
func topicError(topic string, err error, cure string) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("topic %q does not exist: %s: %w", topic, cure, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("topic %q: this user has no right to it: grant it one: %w", topic, err)
	}
	return fmt.Errorf("topic %q: %w", topic, err)
}
