package kafka

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// checkTopics reads the regular expressions. Names beside them become expressions too, since the library
// takes one kind or the other.
func (s *Source) checkTopics() error {
	var names []*regexp.Regexp
	for i, t := range s.cfg.Topics {
		expr, found := regexp.QuoteMeta(t), false
		if len(t) > 2 && t[0] == '/' && t[len(t)-1] == '/' {
			expr, found = t[1:len(t)-1], true
		} else if err := CheckTopic(t); err != nil {
			return &KeyError{fmt.Sprintf("topics[%d]", i), err}
		}
		if _, err := regexp.Compile(expr); err != nil {
			return keyErrorf(fmt.Sprintf("topics[%d]", i), "reading the regular expression %q: %w", t, err)
		}
		// The library searches a name; a subscription to a pattern in Kafka's own client matches all of it.
		names = append(names, regexp.MustCompile("^(?:"+expr+")$"))
		if found {
			s.names = names
		}
	}
	if s.names != nil {
		s.names = names
	}
	return nil
}

func (s *Source) opts(ctx context.Context) []kgo.Opt {
	opts := append(s.readOpts(ctx),
		kgo.ConsumerGroup(s.cfg.Group),
		kgo.DisableAutoCommit(),
		// Where to go on is decided by Poll, which knows the policy, logs and counts.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.OnPartitionsAssigned(s.onAssigned),
		kgo.AdjustFetchOffsetsFn(s.onOffsets),
		kgo.OnPartitionsRevoked(s.onRevoked),
		kgo.OnPartitionsLost(s.onLost),
	)
	topics := slices.Clone(s.cfg.Topics)
	if s.names != nil {
		opts = append(opts, kgo.ConsumeRegex())
		for i, re := range s.names {
			topics[i] = re.String()
		}
	}
	apart := ""
	if r := s.cfg.Repartition; r != nil {
		name := r.Topic
		apart = r.Topic
		if s.names != nil {
			name = "^" + regexp.QuoteMeta(name) + "$"
		}
		topics = append(topics, name)
	}
	if chosen := balancers(s.set.text("partition.assignment.strategy"), apart); s.tx != nil {
		opts = append(opts, s.listen(chosen))
	} else {
		opts = append(opts, kgo.Balancers(chosen...))
	}
	return append(opts, kgo.ConsumeTopics(topics...))
}

// readOpts is how a client reads, be it a member of the group or not.
func (s *Source) readOpts(ctx context.Context) []kgo.Opt {
	return append(s.cfg.clientOpts(ctx, s.set, s.t),
		kgo.KeepControlRecords(),
		kgo.MaxConcurrentFetches(fetches),
		kgo.WithHooks(newUnpacking(s.set)),
		kgo.BrokerMaxReadBytes(int32(min(max(100<<20, 2*s.set.number("fetch.max.bytes")), 1<<30))),
	)
}
