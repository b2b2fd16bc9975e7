package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

// How ends of the log are seen: by who reads all, and by who reads what is committed.
const (
	allOfLog int8 = iota
	stableOfLog
)

// isolation is how this source sees the log.
func (s *Source) isolation() int8 {
	if s.set.text("isolation.level") == "read_committed" {
		return stableOfLog
	}
	return allOfLog
}

// How the ends of a log are asked for in place of a time.
const (
	theStart = -2
	theEnd   = -1
)

// listOffsets asks for the same of several partitions.
func listOffsets(seen int8, which int64, of map[string][]int32) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = seen
	for topic, parts := range of {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, p := range parts {
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Partition, part.Timestamp = p, which
			t.Partitions = append(t.Partitions, part)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// endsOf asks the leaders for the ends of partitions, and of no others: what a worker asks must not grow with the topic.
// Left out is what nobody answers for, such as a partition whose leader is another by now.
func (s *Source) endsOf(ctx context.Context, topics kadm.TopicDetails, tps []streammanager.TopicPartition, seen int8) map[streammanager.TopicPartition]int64 {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	of := map[int32]map[string][]int32{}
	for _, tp := range tps {
		p, ok := topics[tp.Topic].Partitions[tp.Partition]
		if !ok || p.Leader < 0 {
			continue
		}
		if of[p.Leader] == nil {
			of[p.Leader] = map[string][]int32{}
		}
		of[p.Leader][tp.Topic] = append(of[p.Leader][tp.Topic], tp.Partition)
	}
	ends := map[streammanager.TopicPartition]int64{}
	for _, leader := range slices.Sorted(maps.Keys(of)) {
		got, err := s.cl.Broker(int(leader)).RetriableRequest(ctx, listOffsets(seen, theEnd, of[leader]))
		if err != nil {
			continue // the looks at the topics tell of brokers that do not answer
		}
		for _, t := range got.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 && p.Offset >= 0 {
					ends[streammanager.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.Offset
				}
			}
		}
	}
	return ends
}

// Ends implements streammanager.Ender.
func (s *Source) Ends() map[streammanager.TopicPartition]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ends := make(map[streammanager.TopicPartition]int64, len(s.held))
	for tp, h := range s.held {
		if h.end >= 0 {
			ends[tp] = h.end
		}
	}
	return ends
}

// hearOfEnds asks where all that is held ends: polls tell of what they deliver alone.
func (s *Source) hearOfEnds(ctx context.Context, topics kadm.TopicDetails) {
	s.mu.Lock()
	held := maps.Clone(s.held)
	s.mu.Unlock()
	ends := s.endsOf(ctx, topics, slices.Collect(maps.Keys(held)), s.isolation())
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp, end := range ends {
		if h := s.held[tp]; h != nil && h == held[tp] {
			h.end = min(end, h.until)
		}
	}
}

// short looks whether a bounded read waits for what may never come: it has read all that it can see of a partition, and
// its end lies further on.
func (g *guard) short(ctx context.Context, topics kadm.TopicDetails, waiting map[streammanager.TopicPartition]int64) {
	var long []streammanager.TopicPartition
	for tp, next := range waiting {
		sus, still := g.suspect(suspect{stallShort, tp}, next)
		if still >= starvedUnits*g.unit && sus.looks >= 2 {
			long = append(long, tp)
		}
	}
	if len(long) == 0 {
		return
	}
	for tp, end := range g.s.endsOf(ctx, topics, long, allOfLog) {
		until := g.s.untilOf(tp)
		sus := g.suspected[suspect{stallShort, tp}]
		if end >= until {
			if sus.steps == 0 && g.s.isolation() == stableOfLog { // else the log has just grown
				sus.steps++
				g.s.t.log.Warn("kafka: a bounded read waits for a transaction that is open: kafka-transactions.sh finds and ends one that hangs",
					"topic", tp.Topic, "partition", tp.Partition, "offset", sus.at, "until", until)
			}
			continue
		}
		err := fmt.Errorf("topic %q partition %d is read up to %d, which lies behind the end of the log at %d: it was cut, as when a replica that lacked records became its leader; "+
			"it is waited for until it has grown again; to go on without, run with another until", tp.Topic, tp.Partition, until, end)
		if sus.steps == 0 {
			sus.steps++
			g.s.t.log.Warn("kafka: the log ends before the end of a bounded read", "topic", tp.Topic, "partition", tp.Partition, "offset", sus.at, "end", end, "until", until,
				"waited", time.Since(sus.since).Round(time.Millisecond))
		}
		g.s.t.note(trouble{kind: troubleStall, about: fmt.Sprintf("%s/%d", tp.Topic, tp.Partition)}, err)
	}
}

// stallShort is a suspicion of the guard's own: nothing stands still, it is waited for more.
const stallShort streammanager.Stall = "short"

// untilOf returns where the reading of a partition ends.
func (s *Source) untilOf(tp streammanager.TopicPartition) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[tp]; h != nil {
		return h.until
	}
	return noEnd
}
