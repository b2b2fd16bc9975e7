package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

const (
	// defaultMaxMessage is Kafka's max.message.bytes where a topic does not say otherwise.
	defaultMaxMessage = 1048588
	// limitAge is after how long limits are asked for again.
	limitAge = 5 * time.Minute
	// firstLook bounds how long the first record of a topic waits for the topic's limit.
	firstLook = 5 * time.Second
	// smallestBatch is the least that the library takes as the size of a batch.
	smallestBatch = 512
)

// limits knows how large a record may be in each topic.
type limits struct {
	ctx     context.Context // of the requests; ends with the sink
	t       *troubles
	most    int64                   // what the client allows itself
	see     func(kadm.TopicDetails) // gets the topics that were found
	cure    string                  // of a topic that does not exist; empty: somebody else says so
	forgive bool                    // that a topic does not exist is no trouble: it comes into being when it is written to, or its events are at fault
	adm     *kadm.Client
	nudge   chan struct{}

	topic string // is looked at from the beginning; empty: none

	mu     sync.Mutex       // guards topics
	topics map[string]int64 // limits; 0: asked for in vain so far
}

var _ kgo.HookBrokerConnect = (*limits)(nil)

func newLimits(ctx context.Context, t *troubles, most int64, forgive bool) *limits {
	return &limits{ctx: ctx, t: t, most: most, forgive: forgive, nudge: make(chan struct{}, 1), topics: map[string]int64{}}
}

// start gives l its way to the brokers.
func (l *limits) start(adm *kadm.Client, topic string, see func(kadm.TopicDetails)) {
	l.adm, l.topic, l.see = adm, topic, see
}

// of returns the bytes that a record of topic may take. It asks for a topic that it sees the first time.
func (l *limits) of(topic string) int64 {
	l.mu.Lock()
	n, ok := l.topics[topic]
	l.mu.Unlock()
	if !ok {
		ctx, cancel := context.WithTimeout(l.ctx, firstLook)
		defer cancel()
		_ = l.ask(ctx, topic) // watch asks again, and notes why it fails
		l.again()
	}
	if n <= 0 {
		n = l.kept(topic)
	}
	return min(n, l.most)
}

// knows reports whether topic is one that l looks at.
func (l *limits) knows(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, seen := l.topics[topic]
	return seen || topic == l.topic
}

// kept returns the limit of topic as far as it is known, without asking.
func (l *limits) kept(topic string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.topics[topic]; n > 0 {
		return n
	}
	return defaultMaxMessage
}

// forget has a topic that does not exist looked at no more.
func (l *limits) forget(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.topics, topic)
}

// batch returns the size of a batch for topic, without asking.
func (l *limits) batch(topic string) int32 {
	return int32(max(min(l.kept(topic), l.most), smallestBatch))
}

// again has the topics looked at soon.
func (l *limits) again() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// watch keeps the limits up to date until the sink closes.
func (l *limits) watch() {
	for {
		well := l.refresh()
		if !pause(l.ctx, lookAgain) {
			return
		}
		if !well {
			continue
		}
		timer := time.NewTimer(limitAge)
		select {
		case <-l.ctx.Done():
		case <-timer.C:
		case <-l.nudge:
		}
		timer.Stop()
	}
}

// OnBrokerConnect has the brokers looked at soon when one cannot be reached: records wait then without an
// answer, and nothing else would tell that the sink is unwell.
func (l *limits) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		l.again()
	}
}

// refresh reports whether all is well with the topics.
func (l *limits) refresh() bool {
	ctx, cancel := context.WithTimeout(l.ctx, lookTimeout)
	defer cancel()
	topics := l.seen()
	if len(topics) == 0 {
		_, err := l.adm.BrokerMetadata(ctx)
		return answered(l.ctx, l.t, err)
	}
	well := l.forgive || lookAt(l.ctx, l.adm, l.t, l.cure, topics, l.see)
	return answered(l.ctx, l.t, l.ask(ctx, topics...)) && well
}

// seen returns the topics to look at.
func (l *limits) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	topics := slices.Sorted(maps.Keys(l.topics))
	if l.topic != "" && !slices.Contains(topics, l.topic) {
		topics = append(topics, l.topic)
	}
	return topics
}

// ask fetches limits. Where it is not allowed to, and where a topic does not exist yet, Kafka's default
// holds.
func (l *limits) ask(ctx context.Context, topics ...string) error {
	found, err := l.adm.DescribeTopicConfigs(ctx, topics...)
	var denied *kadm.AuthError
	if errors.As(err, &denied) {
		err = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, topic := range topics {
		if _, ok := l.topics[topic]; !ok {
			l.topics[topic] = 0
		}
	}
	for _, r := range found {
		for _, c := range r.Configs {
			n, perr := strconv.ParseInt(c.MaybeValue(), 10, 64)
			if r.Err == nil && c.Key == "max.message.bytes" && perr == nil && n > 0 {
				l.topics[r.Name] = n
			}
		}
	}
	return err
}

// batchOverhead is what a batch takes beside its records, in the requests of any version.
const batchOverhead = 72

// recordSize returns the bytes of a batch that holds r alone, before compression.
func recordSize(r *streammanager.Record) int64 {
	n := 1 + 1 + 1 + bytesSize(r.Key) + bytesSize(r.Value) + varint(int64(len(r.Headers)))
	for _, h := range r.Headers {
		n += varint(int64(len(h.Key))) + int64(len(h.Key)) + bytesSize(h.Value)
	}
	return batchOverhead + varint(n) + n
}

func bytesSize(b []byte) int64 { return varint(int64(len(b))) + int64(len(b)) }

// varint returns the bytes of n in zigzag encoding.
func varint(n int64) int64 {
	var buf [binary.MaxVarintLen64]byte
	return int64(binary.PutVarint(buf[:], n))
}
