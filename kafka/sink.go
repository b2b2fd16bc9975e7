package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// SinkConfig is what a user sets of a sink.
type SinkConfig struct {
	Connection
	Topic string
	// TopicOf, if set, finds the topic of each event instead.
	TopicOf func(ev *event.Event) (string, error)
	// KeyOf finds the key of each record; nil: the event's own.
	KeyOf func(ev *event.Event) ([]byte, error)
	// Now stamps records with the time of writing instead of the event's.
	Now bool
}

// Sink writes with an idempotent producer and acks of all in-sync replicas.
type Sink struct {
	cfg    SinkConfig
	log    *slog.Logger
	opts   []kgo.Opt
	client *kgo.Client
	admin  *kadm.Client
	most   int64 // max.request.size
	single atomic.Bool

	mu      sync.Mutex // guards all below
	limits  map[string]topicLimit
	trouble error
}

// topicLimit is a topic's max.message.bytes and when it is to be read again.
type topicLimit struct {
	bytes int64
	until time.Time
}

// defaultMessageBytes is Kafka's default of max.message.bytes.
const defaultMessageBytes = 1048588

var (
	_ streammanager.Sink     = (*Sink)(nil)
	_ streammanager.Preparer = (*Sink)(nil)
	_ streammanager.Checker  = (*Sink)(nil)
	_ streammanager.Health   = (*Sink)(nil)
	_ streammanager.Buffered = (*Sink)(nil)
	_ streammanager.Single   = (*Sink)(nil)
)

// NewSink checks cfg; it opens nothing.
func NewSink(cfg SinkConfig, log *slog.Logger) (*Sink, error) {
	if cfg.Topic == "" && cfg.TopicOf == nil {
		return nil, errors.New("topic: none given")
	}
	own, err := cfg.clientOptions(SinkSide, log)
	if err != nil {
		return nil, err
	}
	s := &Sink{cfg: cfg, log: log, most: number(cfg.Options, "max.request.size"), limits: map[string]topicLimit{}}
	if cfg.Options["batch.size"] == "" {
		own = append(own, kgo.ProducerBatchMaxBytes(int32(min(s.most, 1<<30))))
	}
	s.opts = append(own,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedBytes(int(number(cfg.Options, "buffer.memory"))),
		kgo.MaxBufferedRecords(1_000_000),
		kgo.UnknownTopicRetries(-1),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	)
	return s, nil
}

// Open implements streammanager.Sink.
func (s *Sink) Open(context.Context) error {
	client, err := kgo.NewClient(s.opts...)
	if err != nil {
		return fmt.Errorf("making the sink's client: %w", err)
	}
	s.client, s.admin = client, kadm.NewClient(client)
	return nil
}

// Prepare implements streammanager.Preparer.
func (s *Sink) Prepare(ev *event.Event) (streammanager.Record, error) {
	rec := streammanager.Record{Topic: s.cfg.Topic, Key: ev.Key(), Value: ev.Value(), Headers: ev.Headers(), Timestamp: ev.Timestamp()}
	var err error
	if s.cfg.TopicOf != nil {
		if rec.Topic, err = s.cfg.TopicOf(ev); err != nil {
			return rec, err
		}
	}
	if s.cfg.KeyOf != nil && !ev.Tombstone() {
		if rec.Key, err = s.cfg.KeyOf(ev); err != nil {
			return rec, err
		}
	}
	if s.cfg.Now {
		rec.Timestamp = time.Now()
	}
	return rec, nil
}

// recordOverhead bounds what a batch of one record adds to its parts.
const recordOverhead = 128

// Check implements streammanager.Checker.
func (s *Sink) Check(r *streammanager.Record) error {
	size := int64(len(r.Key)+len(r.Value)) + recordOverhead
	for _, h := range r.Headers {
		size += int64(len(h.Key)+len(h.Value)) + 10
	}
	topic := r.Topic
	if topic == "" {
		topic = s.cfg.Topic
	}
	if size > s.most {
		return event.Rejectf(event.TooLarge, "record of %d bytes is over max.request.size %d: raise it under options", size, s.most)
	}
	if limit := s.limitOf(topic); size > limit {
		return event.Rejectf(event.TooLarge, "record of %d bytes is over max.message.bytes %d of topic %q", size, limit, topic)
	}
	return nil
}

// limitOf reads a topic's max.message.bytes, and keeps it for a while.
func (s *Sink) limitOf(topic string) int64 {
	s.mu.Lock()
	known, ok := s.limits[topic]
	s.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.bytes
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	limit := topicLimit{bytes: defaultMessageBytes, until: time.Now().Add(10 * time.Second)}
	if ok {
		limit.bytes = known.bytes
	}
	configs, err := s.admin.DescribeTopicConfigs(ctx, topic)
	if err == nil {
		for _, c := range configs {
			for _, entry := range c.Configs {
				if entry.Key != "max.message.bytes" {
					continue
				}
				if n, err := strconv.ParseInt(entry.MaybeValue(), 10, 64); err == nil {
					limit = topicLimit{bytes: n, until: time.Now().Add(time.Minute)}
				}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits[topic] = limit
	return limit.bytes
}

// Produce implements streammanager.Sink.
func (s *Sink) Produce(ctx context.Context, r *streammanager.Record, done func(error)) {
	rec := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
	if rec.Topic == "" {
		rec.Topic = s.cfg.Topic
	}
	if len(r.Headers) > 0 {
		rec.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			rec.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
		}
	}
	alone := s.single.Load()
	s.client.Produce(ctx, rec, func(rec *kgo.Record, err error) {
		s.note(err)
		done(s.classify(rec.Topic, err, alone))
	})
}

// classify tells the record's own fault from the sink's. In a batch of several the culprit cannot be
// told, so there it is the sink's, and the stream sends them one by one.
func (s *Sink) classify(topic string, err error, alone bool) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("writing to topic %q: %w", topic, err)
	if alone {
		switch {
		case errors.Is(err, kerr.MessageTooLarge):
			return event.Reject(event.TooLarge, err)
		case errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.InvalidTimestamp):
			return event.Reject(event.Rejected, err)
		}
	}
	return err
}

func (s *Sink) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
}

// Single implements streammanager.Single: the stream waits for each answer before the next Produce.
func (s *Sink) Single(on bool) { s.single.Store(on) }

// Health implements streammanager.Health.
func (s *Sink) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// BufferBytes implements streammanager.Buffered.
func (s *Sink) BufferBytes() int64 { return number(s.cfg.Options, "buffer.memory") }

// Close implements streammanager.Sink.
func (s *Sink) Close(ctx context.Context) error {
	if s.client == nil {
		return nil
	}
	err := s.client.Flush(ctx)
	s.client.Close()
	if err != nil {
		return fmt.Errorf("flushing: %w", err)
	}
	return nil
}
