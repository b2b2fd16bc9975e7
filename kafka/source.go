package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// Where a source starts, or goes on after its offsets have vanished.
const (
	Earliest = "earliest"
	Latest   = "latest"
	Fail     = "fail"
)

// SourceConfig is what a user sets of a source.
type SourceConfig struct {
	Connection
	Topics     []string // names; one between slashes is a regular expression
	Group      string
	Start      string // without a committed offset: Earliest (default) or Latest
	OutOfRange string // Earliest (default), Latest or Fail
}

// Source is a member of a consumer group.
type Source struct {
	cfg    SourceConfig
	log    *slog.Logger
	opts   []kgo.Opt
	client *kgo.Client
	admin  *kadm.Client
	stream streammanager.Assignments
	polled []streammanager.Record

	opened chan struct{} // closed when client and admin are there: the client's goroutines may be earlier

	revokeLimit time.Duration

	mu      sync.Mutex // guards all below
	joined  bool
	trouble map[string]error // by what it concerns
}

var (
	_ streammanager.Source    = (*Source)(nil)
	_ streammanager.Committer = (*Source)(nil)
	_ streammanager.Rewinder  = (*Source)(nil)
	_ streammanager.Pauser    = (*Source)(nil)
	_ streammanager.Health    = (*Source)(nil)
	_ streammanager.Buffered  = (*Source)(nil)
)

// NewSource checks cfg; it opens nothing.
func NewSource(cfg SourceConfig, log *slog.Logger) (*Source, error) {
	s := &Source{cfg: cfg, log: log, opened: make(chan struct{}), trouble: map[string]error{}}
	if s.cfg.Start == "" {
		s.cfg.Start = Earliest
	}
	if s.cfg.OutOfRange == "" {
		s.cfg.OutOfRange = Earliest
	}
	var errs []error
	if len(cfg.Topics) == 0 {
		errs = append(errs, errors.New("topics: none given"))
	}
	if cfg.Group == "" {
		errs = append(errs, errors.New("group: none given"))
	}
	if s.cfg.Start != Earliest && s.cfg.Start != Latest {
		errs = append(errs, fmt.Errorf("start: %q is none of earliest, latest", s.cfg.Start))
	}
	if o := s.cfg.OutOfRange; o != Earliest && o != Latest && o != Fail {
		errs = append(errs, fmt.Errorf("out_of_range: %q is none of earliest, latest, fail", o))
	}
	topics, err := topicOptions(cfg.Topics)
	if err != nil {
		errs = append(errs, err)
	}
	own, err := cfg.clientOptions(SourceSide, log)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	rebalance := time.Duration(number(cfg.Options, "max.poll.interval.ms")) * time.Millisecond
	heartbeat := time.Duration(number(cfg.Options, "heartbeat.interval.ms")) * time.Millisecond
	s.revokeLimit = max(time.Second, min(10*time.Second, rebalance-2*heartbeat))
	s.opts = append(append(own, topics...), s.groupOptions()...)
	return s, nil
}

func topicOptions(topics []string) ([]kgo.Opt, error) {
	patterns := 0
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t
		if len(t) > 2 && strings.HasPrefix(t, "/") && strings.HasSuffix(t, "/") {
			patterns++
			names[i] = t[1 : len(t)-1]
			if _, err := regexp.Compile(names[i]); err != nil {
				return nil, fmt.Errorf("topics: %w", err)
			}
		}
	}
	if patterns == 0 {
		return []kgo.Opt{kgo.ConsumeTopics(names...)}, nil
	}
	for i, t := range topics {
		if names[i] == t {
			names[i] = "^" + regexp.QuoteMeta(t) + "$"
		}
	}
	return []kgo.Opt{kgo.ConsumeTopics(names...), kgo.ConsumeRegex()}, nil
}

func (s *Source) groupOptions() []kgo.Opt {
	reset := kgo.NewOffset().AtStart()
	switch s.cfg.OutOfRange {
	case Latest:
		reset = kgo.NewOffset().AtEnd()
	case Fail:
		reset = kgo.NoResetOffset()
	}
	return []kgo.Opt{
		kgo.ConsumerGroup(s.cfg.Group),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.DisableAutoCommit(),
		kgo.KeepControlRecords(),
		kgo.MaxConcurrentFetches(maxFetches),
		kgo.ConsumeResetOffset(reset),
		kgo.AdjustFetchOffsetsFn(s.begin),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { s.noteJoined() }),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.lost),
		kgo.WithHooks(groupHook{s}),
	}
}

// maxFetches bounds, together with fetch.max.bytes, what the client holds.
const maxFetches = 2

// groupHook learns why the group cannot be joined.
type groupHook struct{ s *Source }

// OnGroupManageError implements kgo.HookGroupManageError.
func (h groupHook) OnGroupManageError(err error) { h.s.setTrouble("group", err) }

// Open implements streammanager.Source.
func (s *Source) Open(_ context.Context, a streammanager.Assignments) error {
	s.stream = a
	client, err := kgo.NewClient(s.opts...)
	if err != nil {
		return fmt.Errorf("making the source's client: %w", err)
	}
	s.client, s.admin = client, kadm.NewClient(client)
	close(s.opened)
	return nil
}

// Poll implements streammanager.Source.
func (s *Source) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	for {
		fetches := s.client.PollRecords(ctx, limit)
		if fetches.IsClientClosed() {
			return streammanager.Polled{}, context.Canceled
		}
		if err := ctx.Err(); err != nil && fetches.NumRecords() == 0 {
			return streammanager.Polled{}, err
		}
		if err := s.fetchErrors(fetches); err != nil {
			return streammanager.Polled{}, err
		}
		if fetches.NumRecords() > 0 {
			return s.convert(fetches), nil
		}
	}
}

// fetchErrors notes what went wrong for Health, and returns what can never heal.
func (s *Source) fetchErrors(fetches kgo.Fetches) error {
	var fatal error
	fetches.EachError(func(topic string, partition int32, err error) {
		where := fmt.Sprintf("topic %q partition %d", topic, partition)
		var loss *kgo.ErrDataLoss
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		case errors.As(err, &loss):
			s.log.Error("records were lost on the broker", "topic", topic, "partition", partition, "from", loss.ConsumedTo, "to", loss.ResetTo)
		case errors.Is(err, kerr.OffsetOutOfRange):
			fatal = event.Fatal(fmt.Errorf("%s: the offset is out of range, records were deleted before they were read: set out_of_range to go on from earliest or latest", where))
		default:
			s.setTrouble(where, fmt.Errorf("%s: %w", where, err))
		}
	})
	return fatal
}

func (s *Source) convert(fetches kgo.Fetches) streammanager.Polled {
	clear(s.polled)
	s.polled = s.polled[:0]
	ends := map[streammanager.TopicPartition]int64{}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		ends[streammanager.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.HighWatermark
		for _, r := range p.Records {
			s.polled = append(s.polled, recordOf(r))
		}
	})
	s.heal("topic ")
	return streammanager.Polled{Records: s.polled, HighWatermarks: ends}
}

func recordOf(r *kgo.Record) streammanager.Record {
	rec := streammanager.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
		Marker: r.Attrs.IsControl(),
	}
	if len(r.Headers) > 0 {
		rec.Headers = make([]event.Header, len(r.Headers))
		for i, h := range r.Headers {
			rec.Headers[i] = event.Header{Key: h.Key, Value: h.Value}
		}
	}
	return rec
}

// Commit implements streammanager.Committer.
func (s *Source) Commit(ctx context.Context, offsets map[streammanager.TopicPartition]int64) error {
	uncommitted := map[string]map[int32]kgo.EpochOffset{}
	for tp, off := range offsets {
		if uncommitted[tp.Topic] == nil {
			uncommitted[tp.Topic] = map[int32]kgo.EpochOffset{}
		}
		uncommitted[tp.Topic][tp.Partition] = kgo.EpochOffset{Epoch: -1, Offset: off}
	}
	return s.commit(ctx, uncommitted)
}

// Rewind implements streammanager.Rewinder.
func (s *Source) Rewind(offsets map[streammanager.TopicPartition]int64) {
	set := map[string]map[int32]kgo.EpochOffset{}
	for tp, off := range offsets {
		if set[tp.Topic] == nil {
			set[tp.Topic] = map[int32]kgo.EpochOffset{}
		}
		set[tp.Topic][tp.Partition] = kgo.EpochOffset{Epoch: -1, Offset: off}
	}
	s.client.SetOffsets(set)
}

// Pause implements streammanager.Pauser.
func (s *Source) Pause(tps ...streammanager.TopicPartition) {
	s.client.PauseFetchPartitions(byTopic(tps))
}

// Resume implements streammanager.Pauser.
func (s *Source) Resume(tps ...streammanager.TopicPartition) {
	s.client.ResumeFetchPartitions(byTopic(tps))
}

func byTopic(tps []streammanager.TopicPartition) map[string][]int32 {
	m := map[string][]int32{}
	for _, tp := range tps {
		m[tp.Topic] = append(m[tp.Topic], tp.Partition)
	}
	return m
}

// BufferBytes implements streammanager.Buffered.
func (s *Source) BufferBytes() int64 { return maxFetches * number(s.cfg.Options, "fetch.max.bytes") }

// Close implements streammanager.Source. Static members keep their place in the group.
func (s *Source) Close() {
	if s.client != nil {
		s.client.Close()
	}
}

// Health implements streammanager.Health.
func (s *Source) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.trouble {
		return err
	}
	if !s.joined {
		return fmt.Errorf("group %q not joined yet: no broker of %s answered, or the topic does not exist", s.cfg.Group, strings.Join(s.cfg.Brokers, ", "))
	}
	return nil
}

func (s *Source) noteJoined() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	delete(s.trouble, "group")
}

// setTrouble keeps a cause for Health and says it once.
func (s *Source) setTrouble(what string, err error) {
	s.mu.Lock()
	known := s.trouble[what]
	s.trouble[what] = err
	s.mu.Unlock()
	if known == nil || known.Error() != err.Error() {
		s.log.Warn("source has trouble and keeps trying", "group", s.cfg.Group, "err", err)
	}
}

// heal forgets trouble of the kind after a success.
func (s *Source) heal(prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for what := range s.trouble {
		if strings.HasPrefix(what, prefix) {
			delete(s.trouble, what)
		}
	}
}
