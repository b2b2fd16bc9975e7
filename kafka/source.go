package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

// Where a source begins, or goes on after its offset has vanished.
const (
	Earliest = "earliest"
	Latest   = "latest"
	Fail     = "fail"
)

// SourceConfig says what to read.
type SourceConfig struct {
	Connection
	Topics []string // names; one between slashes is a regular expression that a whole name must match
	Group  string   // consumer group that holds the positions
	// Start is where to begin without a committed offset: Earliest (the default), Latest, or the first record of a time
	// or later: RFC 3339, milliseconds since 1970, or an age such as -24h.
	Start string
	// Until is where to end, in the same words. It is fixed for each partition at the first start. Empty: never.
	Until string
	// Force leaves a committed offset that does not lie between Start and Until, and begins at Start. Without it, it is
	// an error.
	Force bool
	// Anew has a read that came to its end begin once more, to the end as it is then. nil: the end stays.
	Anew *Anew
	// Missing is what to do where one of Topics does not exist, and ends the source then. Empty: the topic is waited for.
	Missing    string
	OutOfRange string // where to go on when the offset is gone: Earliest (the default), Latest or Fail

	// Repartition, if set, is the topic through which events go; see streammanager.Builder.
	Repartition *Repartition
}

// fetches is how many answers are fetched or held at once. With fetch.max.bytes it bounds the memory.
const fetches = 4

// closeTimeout bounds how long Close waits for brokers that do not answer.
const closeTimeout = 10 * time.Second

// Source reads topics as a member of a consumer group.
type Source struct {
	cfg    SourceConfig
	set    *settings
	t      *troubles
	names  []*regexp.Regexp // of Topics, if one is a regular expression
	opened chan struct{}    // closed when the next fields are set

	start, until moment
	reading      string // both in words, which tell this read from another; empty: it has no end

	tx       *Transaction // whose client is used; nil: its own
	cl       *kgo.Client
	adm      *kadm.Client
	a        streammanager.Assignments
	end      context.CancelFunc // ends the client
	calls    context.Context    // of calls to a
	endCalls context.CancelFunc
	watching sync.WaitGroup

	refetches refetches

	tell turn // makes calls to a one at a time; taken before mu

	mu      sync.Mutex // guards what follows
	owned   map[streammanager.TopicPartition]struct{}
	given   map[streammanager.TopicPartition]struct{} // by the group, at last; with transactions
	held    map[streammanager.TopicPartition]*holding
	paused  map[streammanager.TopicPartition]struct{}  // by the stream
	resting map[streammanager.TopicPartition]time.Time // after an error, until then
	joined  bool
	member  string // its id when the group last gave it something, be it nothing new
	closing bool
	wake    context.CancelFunc // ends the wait of Poll
	unmet   bool               // a partition that flows again has come to where nothing is, which Poll has to tell
	parts   map[string]int     // of topics, how many partitions a bounded read has
	bare    map[string]bool    // topics in which nothing lies between start and until of a bounded read
	came    map[string]int64   // how far the group had come in topics of a bounded read when this worker first looked
	further bool               // it has come further since
	expels  int                // how often this worker was expelled

	stalls
	ids     identities
	nudge   chan struct{} // has the topics looked at soon
	through through
	topics  kadm.TopicDetails // as they were seen in the last look, nil where nobody answered; belongs to watch
	asking  asking
	verdict verdict

	settling atomic.Int32 // starts of topics that are not settled

	expelled atomic.Bool // some of held is stale, and Poll has to begin it anew; set with mu held
	skipped  atomic.Int64
	room     atomic.Int64 // bytes of metadata that brokers take beside an offset
	waits    atomic.Bool  // for its first place in the group, for longer than that takes by itself
	begun    atomic.Bool  // this worker has fixed the ends of a bounded read
	within   atomic.Int64 // how many offsets lie between start and until of what it has begun
	ended    atomic.Bool  // a bounded read has come to its end
	poll     poll         // belongs to Poll
}

// holding is a partition that the stream was told of.
type holding struct {
	start   beginning // what was told
	next    int64     // offset after the last delivered record
	stale   bool      // the group may have given it to another worker since
	seen    int64     // offset after the last that the stream was told
	until   int64     // where reading ends
	ended   bool      // next is there
	leaving bool      // it is being revoked
	gap     gap       // what was passed over last, being out of range
	end     int64     // of the log as it was last heard of, -1 unknown
}

var (
	_ streammanager.Source    = (*Source)(nil)
	_ streammanager.Committer = (*Source)(nil)
	_ streammanager.Rewinder  = (*Source)(nil)
	_ streammanager.Pauser    = (*Source)(nil)
	_ streammanager.Settler   = (*Source)(nil)
	_ streammanager.Health    = (*Source)(nil)
	_ streammanager.Buffered  = (*Source)(nil)
	_ streammanager.Staller   = (*Source)(nil)
	_ streammanager.Skipper   = (*Source)(nil)
	_ streammanager.Ender     = (*Source)(nil)
)

// NewSource checks cfg and opens nothing. A nil logger says nothing.
func NewSource(cfg SourceConfig, logger *slog.Logger) (*Source, error) {
	set, err := cfg.check(SourceSide)
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: cfg, set: set, t: newTroubles(logger, &cfg.Connection), opened: make(chan struct{}), tell: make(turn, 1),
		nudge:   make(chan struct{}, 1),
		owned:   map[streammanager.TopicPartition]struct{}{},
		held:    map[streammanager.TopicPartition]*holding{},
		paused:  map[streammanager.TopicPartition]struct{}{},
		resting: map[streammanager.TopicPartition]time.Time{},
		parts:   map[string]int{},
		bare:    map[string]bool{},
		came:    map[string]int64{},
	}
	s.room.Store(maxMetadata)
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := checkOpts(s.opts(context.Background())); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Source) check() error {
	c := &s.cfg
	if len(c.Topics) == 0 {
		return keyErrorf("topics", "none given")
	}
	if err := s.checkTopics(); err != nil {
		return err
	}
	if err := c.Repartition.check(s.reads, s.set); err != nil {
		return err
	}
	if c.Group == "" {
		return keyErrorf("group", "none given")
	}
	if err := s.checkMoments(); err != nil {
		return err
	}
	return oneOf("out_of_range", &c.OutOfRange, Earliest, Latest, Fail)
}

// oneOf fills in the first word where v is empty.
func oneOf(key string, v *string, words ...string) error {
	if *v == "" {
		*v = words[0]
	}
	for _, w := range words {
		if *v == w {
			return nil
		}
	}
	return keyErrorf(key, "%q is not one of %q", *v, words)
}

// turn is a lock that is held while others wait for work to end, so that waiting for it must not stop the
// virtual time of tests, as waiting for a sync.Mutex does. It has room for one.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// Open implements streammanager.Source. Brokers that do not answer and topics that do not exist are
// waited for; Health says so.
func (s *Source) Open(ctx context.Context, a streammanager.Assignments) error {
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	cl, err := s.client(own)
	if err != nil {
		end()
		s.t.end()
		return fmt.Errorf("opening the kafka source: %w", err)
	}
	s.cl, s.adm, s.a, s.end = cl, kadm.NewClient(cl), a, end
	s.calls, s.endCalls = context.WithCancel(own)
	close(s.opened)
	s.set.sayIdle(s.t.log)
	s.watching.Go(func() { s.watch(s.calls) })
	s.watching.Go(func() { s.sayWaits(s.calls) })
	if s.cfg.Repartition != nil {
		s.watching.Go(func() { s.keepThrough(s.calls) })
	}
	if s.tx != nil {
		s.watching.Go(func() { s.tx.takeOver(s.calls) })
	}
	return nil
}

func (s *Source) client(ctx context.Context) (*kgo.Client, error) {
	if s.tx != nil {
		return s.tx.open(ctx)
	}
	return kgo.NewClient(s.opts(ctx)...)
}

// Close implements streammanager.Source. It leaves the group, so that others take over at once, and
// gives up after a while where no broker answers.
func (s *Source) Close(ctx context.Context) {
	if s.cl == nil {
		return
	}
	s.mu.Lock()
	again := s.closing
	s.closing = true
	s.mu.Unlock()
	if again {
		return
	}
	s.endCalls()
	s.cleanLast(ctx)
	closeClient(ctx, s.cl, s.end)
	s.watching.Wait()
	s.t.end()
	s.tell.Lock() // wait for a call that was under way
	defer s.tell.Unlock()
}

// Commit implements streammanager.Committer.
func (s *Source) Commit(ctx context.Context, positions map[streammanager.TopicPartition]streammanager.Position) error {
	all, still := s.ofMine(positions)
	if err := s.commit(ctx, all, still); err != nil {
		if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) {
			s.lookSoon() // it may have been made again
		}
		return fmt.Errorf("committing offsets of group %q: %w", s.cfg.Group, err)
	}
	s.noteCommitted(positions)
	return nil
}

// ofMine adds to positions what else is committed with them, and returns the question whether their assignments go on.
func (s *Source) ofMine(positions map[streammanager.TopicPartition]streammanager.Position) (map[streammanager.TopicPartition]beginning, func() error) {
	mine := make(map[streammanager.TopicPartition]*holding, len(positions))
	all := make(map[streammanager.TopicPartition]beginning, len(positions))
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp, at := range positions {
		h := s.held[tp]
		if mine[tp] = h; h != nil {
			all[tp] = beginning{Position: at, meta: h.start.meta}
		}
	}
	return all, s.stillHeld(mine)
}

// stillHeld returns the question whether the assignments of mine go on. The library may send much later,
// after it has joined the group anew: it asks again then.
func (s *Source) stillHeld(mine map[streammanager.TopicPartition]*holding) func() error {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for tp, h := range mine {
			if h == nil || h.stale || s.held[tp] != h {
				return fmt.Errorf("topic %q partition %d: %w", tp.Topic, tp.Partition, streammanager.ErrAssignmentLost)
			}
		}
		return nil
	}
}

// Rewind implements streammanager.Rewinder.
func (s *Source) Rewind(offsets map[streammanager.TopicPartition]int64) { s.setOffsets(offsets, true) }

// setOffsets has the library go on at offsets. told says that the stream knows of all that lies before them.
func (s *Source) setOffsets(offsets map[streammanager.TopicPartition]int64, told bool) {
	to := map[string]map[int32]kgo.EpochOffset{}
	s.mu.Lock()
	for tp, at := range offsets {
		if h := s.held[tp]; h != nil {
			if told {
				h.seen = at
			}
			at = h.gap.behind(at)
			h.next = at
			if h.ended && at < h.until {
				h.ended = false
				s.flow(tp)
			}
			put(to, tp, kgo.EpochOffset{Epoch: -1, Offset: at})
		}
	}
	s.mu.Unlock()
	s.cl.SetOffsets(to)
}

// Pause implements streammanager.Pauser.
func (s *Source) Pause(tps ...streammanager.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tp := range tps {
		if s.held[tp] != nil {
			s.paused[tp] = struct{}{}
			s.cl.PauseFetchPartitions(one(tp))
		}
	}
}

// Resume implements streammanager.Pauser.
func (s *Source) Resume(tps ...streammanager.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tp := range tps {
		delete(s.paused, tp)
		s.flow(tp)
		s.unmet = s.unmet || s.unmetAt(tp)
	}
	if s.unmet && s.wake != nil {
		s.wake()
	}
}

// flow lets tp be fetched unless something holds it. The caller holds mu.
func (s *Source) flow(tp streammanager.TopicPartition) {
	_, paused := s.paused[tp]
	_, resting := s.resting[tp]
	if h := s.held[tp]; !paused && !resting && (h == nil || !h.ended) {
		s.cl.ResumeFetchPartitions(one(tp))
	}
}

// Health implements streammanager.Health.
func (s *Source) Health() error {
	if err := s.t.worst(troubleTransaction); err != nil {
		return err
	}
	if s.isJoined() {
		return nil
	}
	if err := s.t.worst(troubleBroker); err != nil {
		return err
	}
	if s.waits.Load() {
		return errors.New(s.waitsFor())
	}
	return fmt.Errorf("consumer group %q is not joined yet", s.cfg.Group)
}

// BufferBytes implements streammanager.Buffered: what is fetched and not polled. Of compressed records it is what
// becomes of them, once it has been seen by how much they grow.
func (s *Source) BufferBytes() int64 { return fetches * s.set.number("fetch.max.bytes") }

// Skipped implements streammanager.Skipper: how many offsets were passed over because they were no longer there.
func (s *Source) Skipped() int64 { return s.skipped.Load() }

func one(tp streammanager.TopicPartition) map[string][]int32 {
	return map[string][]int32{tp.Topic: {tp.Partition}}
}

func put[V any](m map[string]map[int32]V, tp streammanager.TopicPartition, v V) {
	if m[tp.Topic] == nil {
		m[tp.Topic] = map[int32]V{}
	}
	m[tp.Topic][tp.Partition] = v
}
