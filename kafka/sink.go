package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// SinkConfig says where to write.
type SinkConfig struct {
	Connection
	Topic       string                             // topic of all records; or
	TopicOf     func(*event.Event) (string, error) // finds the topic of each
	KeyOf       func(*event.Event) ([]byte, error) // finds the key of each, nil for none; left out: the event's own
	Now         bool                               // stamps records with the time of writing instead of the event's
	AnySize     bool                               // lets a record be as large as its topic takes, whatever max.request.size says
	SourceMakes bool                               // the source makes the topic, and says what is wrong if it cannot
	Group       string                             // of a repartition topic: the group whose records they are, which only its source takes

	// WaitForTopics has a topic that TopicOf names and that does not exist waited for, as Topic is. Else the
	// event is rejected after UnknownAfter.
	WaitForTopics bool
}

// maxBufferedRecords bounds the records that wait for their answer. buffer.memory bounds their bytes.
const maxBufferedRecords = 100000

// Sink writes records idempotently and as often as it takes.
type Sink struct {
	cfg SinkConfig
	set *settings
	t   *troubles

	tx       *Transaction // whose client is used; nil: its own
	cl       *kgo.Client
	limits   *limits
	remade   *remade
	made     *made              // nil where a topic is waited for
	end      context.CancelFunc // ends the client
	watchCtx context.Context
	endWatch context.CancelFunc
	watching sync.WaitGroup

	single atomic.Bool
	unwell unwell

	mu     sync.Mutex // guards what follows
	flying int        // records without an answer
	newest *flight    // the record handed over last
}

// flight is a record on its way.
type flight struct {
	alone bool
	times int // that the library had forgotten the topic
}

var (
	_ streammanager.Sink     = (*Sink)(nil)
	_ streammanager.Preparer = (*Sink)(nil)
	_ streammanager.Checker  = (*Sink)(nil)
	_ streammanager.Single   = (*Sink)(nil)
	_ streammanager.Health   = (*Sink)(nil)
	_ streammanager.Buffered = (*Sink)(nil)
	_ streammanager.Staller  = (*Sink)(nil)
)

// NewSink checks cfg and opens nothing. A nil logger says nothing.
func NewSink(cfg SinkConfig, logger *slog.Logger) (*Sink, error) {
	set, err := cfg.check(SinkSide)
	if err == nil {
		err = cfg.checkRecord()
	}
	if err != nil {
		return nil, err
	}
	t := newTroubles(logger, &cfg.Connection)
	s := &Sink{cfg: cfg, set: set, t: t, unwell: unwell{t: t}}
	if err := checkOpts(s.opts(context.Background(), s.newLimits(context.Background()))); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *SinkConfig) checkRecord() error {
	if (c.Topic == "") == (c.TopicOf == nil) {
		return errors.New("name the topic, or say how each record finds its own")
	}
	if c.Topic != "" {
		if err := CheckTopic(c.Topic); err != nil {
			return &KeyError{"topic", err}
		}
	}
	return nil
}

// Open implements streammanager.Sink.
func (s *Sink) Open(ctx context.Context) error {
	if s.tx != nil {
		return nil // the source opens the client of both
	}
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	s.prepare(own)
	cl, err := kgo.NewClient(s.opts(own, s.limits)...)
	if err != nil {
		end()
		s.endWatch()
		s.t.end()
		return fmt.Errorf("opening the kafka sink: %w", err)
	}
	s.end = end
	s.start(cl, kadm.NewClient(cl))
	return nil
}

// prepare makes what the client needs to know of s. ctx is that of the client.
func (s *Sink) prepare(ctx context.Context) {
	s.watchCtx, s.endWatch = context.WithCancel(ctx)
	s.limits = s.newLimits(s.watchCtx)
}

// start begins to work over a client.
func (s *Sink) start(cl *kgo.Client, adm *kadm.Client) {
	s.cl = cl
	s.set.sayIdle(s.t.log)
	s.remade = newRemade(cl, adm, s.t)
	s.watching.Go(func() { s.remade.run(s.watchCtx) })
	s.limits.start(adm, s.cfg.Topic, s.remade.see)
	s.watching.Go(s.limits.watch)
	if s.cfg.TopicOf != nil && !s.cfg.WaitForTopics {
		s.made = newMade(cl, adm, s.t, s.limits)
		s.watching.Go(func() { s.made.watch(s.watchCtx) })
	}
}

func (s *Sink) newLimits(ctx context.Context) *limits {
	most := s.set.number("buffer.memory")
	if !s.cfg.AnySize {
		most = min(most, s.set.number("max.request.size"))
	}
	notMissed := s.set.text("allow.auto.create.topics") == "true" || s.cfg.TopicOf != nil && !s.cfg.WaitForTopics
	l := newLimits(ctx, s.t, most, notMissed)
	if !s.cfg.SourceMakes {
		l.cure = "create it, or correct the sink's topic"
	}
	return l
}

func (s *Sink) opts(ctx context.Context, l *limits) []kgo.Opt {
	return append(append(s.cfg.clientOpts(ctx, s.set, s.t), kgo.WithHooks(l)), writeOpts(l.batch)...)
}

// writeOpts is how all clients write.
func writeOpts(batch func(topic string) int32) []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.UnknownTopicRetries(-1), // a topic that does not exist yet is waited for; limits says so
		kgo.ProducerBatchMaxBytesFn(batch),
		// A key goes where Java's clients put it; records without one are spread.
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(64<<10, true, true, nil)),
	}
}

// Prepare implements streammanager.Preparer.
func (s *Sink) Prepare(ev *event.Event) (streammanager.Record, error) {
	r := streammanager.Record{Topic: s.cfg.Topic, Key: ev.Key(), Value: ev.Value(), Headers: ev.Headers(), Timestamp: ev.Timestamp()}
	var err error
	if s.cfg.TopicOf != nil {
		if r.Topic, err = s.cfg.TopicOf(ev); err != nil {
			return r, err
		}
	}
	if s.cfg.KeyOf != nil && !ev.Tombstone() { // a tombstone has no value to find a key in, and keeps its own
		if r.Key, err = s.cfg.KeyOf(ev); err != nil {
			return r, err
		}
	}
	if s.cfg.Now {
		r.Timestamp = time.Time{} // the client stamps what has none as it takes it
	}
	return r, nil
}

// Check implements streammanager.Checker. For a topic that it sees the first time it asks the brokers
// for the limit, which takes a few seconds at most.
func (s *Sink) Check(r *streammanager.Record) error {
	topic := s.topic(r)
	if err := CheckTopic(topic); err != nil {
		return event.Reject(event.Rejected, err)
	}
	if err := s.made.check(topic); err != nil {
		return err
	}
	whole := *r
	whole.Headers = s.headers(r)
	size, most := recordSize(&whole), s.limits.of(topic)
	if size > most {
		return event.Rejectf(event.TooLarge, "the record takes %d bytes, topic %q takes at most %d: raise max.message.bytes of the topic (and option max.request.size), or write less",
			size, topic, most)
	}
	return nil
}

func (s *Sink) topic(r *streammanager.Record) string {
	if r.Topic != "" {
		return r.Topic
	}
	return s.cfg.Topic
}

// Produce implements streammanager.Sink.
func (s *Sink) Produce(ctx context.Context, r *streammanager.Record, done func(error)) {
	rec := &kgo.Record{Topic: s.topic(r), Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
	if headers := s.headers(r); len(headers) > 0 {
		rec.Headers = make([]kgo.RecordHeader, len(headers))
		for i, h := range headers {
			rec.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
		}
	}
	single := s.single.Load()
	if single {
		if err := s.cl.Flush(ctx); err != nil {
			done(fmt.Errorf("writing to topic %q: %w", rec.Topic, err))
			return
		}
	}
	f := s.takeOff(rec.Topic)
	s.made.takeOff(rec.Topic)
	answered := make(chan struct{})
	s.cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
		done(s.landed(f, rec.Topic, err))
		close(answered)
	})
	if single {
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
}

// takeOff notes a record on its way, and whether others are.
func (s *Sink) takeOff(topic string) *flight {
	times := s.remade.forgotten(topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &flight{alone: s.flying == 0, times: times}
	if s.newest != nil {
		s.newest.alone = false
	}
	s.flying++
	s.newest = f
	return f
}

// landed says what an answer means for the record.
func (s *Sink) landed(f *flight, topic string, err error) error {
	s.mu.Lock()
	s.flying--
	if s.newest == f {
		s.newest = nil
	}
	alone := f.alone
	s.mu.Unlock()
	if refused := s.made.landed(topic, err); refused != nil {
		s.limits.forget(topic)
		s.unwell.written(topic)
		return refused
	}
	if err == nil {
		s.unwell.written(topic)
		return nil
	}
	if s.tx != nil && takenOver(err) { // of which topic does not matter
		return &streammanager.FailedError{Reason: streammanager.ReasonTransaction, Err: s.tx.explain(err)}
	}
	var refused event.Type
	switch {
	case errors.Is(err, kerr.UnknownTopicID):
		s.remade.queue(topic, f.times)
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		refused = event.TooLarge
		s.limits.again()
	case errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.InvalidTimestamp):
		refused = event.Rejected
	}
	err = fmt.Errorf("writing to topic %q: %w", topic, sinkError(topic, err))
	if refused != "" && alone {
		s.unwell.written(topic) // but for this record it takes all
		return event.Reject(refused, err)
	}
	// The brokers refuse a batch as a whole, and the library then fails all that waits for the
	// partition: which record is at fault is known only of one that travels alone.
	if !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) && !errors.Is(err, kgo.ErrAborting) {
		s.unwell.refused(topic, err)
	}
	return err
}

// sinkError adds what to do.
func sinkError(topic string, err error) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("topic %q was deleted and made again: what waited for the old one is written anew: %w", topic, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.TopicAuthorizationFailed):
		return topicError(topic, err, "create it, or correct the sink's topic")
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("this user has no right to write idempotently: grant IdempotentWrite on the cluster: %w", err)
	}
	return loginError(err)
}

// Single implements streammanager.Single.
func (s *Sink) Single(on bool) { s.single.Store(on) }

// Close implements streammanager.Sink. What could not be written before ctx ends is told to each record's
// done; it is no error of Close.
func (s *Sink) Close(ctx context.Context) error {
	if s.cl == nil {
		return nil
	}
	if s.tx != nil { // its source has closed the client
		s.endWatch()
		s.watching.Wait()
		s.t.end()
		return nil
	}
	err := s.cl.Flush(ctx)
	s.endWatch()
	closeClient(ctx, s.cl, s.end)
	s.watching.Wait()
	s.t.end()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("writing what is buffered: %w", err)
	}
	return nil
}

// Health implements streammanager.Health.
func (s *Sink) Health() error { return s.t.worst(troubleSink) }

// Stalled implements streammanager.Staller.
func (s *Sink) Stalled() map[streammanager.Stall]int64 {
	if s.remade == nil {
		return nil
	}
	return s.remade.Stalled()
}

// BufferBytes implements streammanager.Buffered.
func (s *Sink) BufferBytes() int64 { return s.set.number("buffer.memory") }
