package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// askGroupAgain is how often the group is asked whether others have come to their end too.
const askGroupAgain = time.Second

// ending is what a bounded source keeps of its end. It belongs to Poll.
type ending struct {
	asked time.Time // when the group was last asked
	open  bool      // there was something to read
	ill   bool      // the group did not answer when it was last asked
	said  bool
}

// meet ends a partition that has come to its end. What holds no record there, such as what compaction took away or a
// transaction's mark, is told to the stream as a mark, so that the position comes to the end too. The caller
// holds mu.
func (s *Source) meet(tp streammanager.TopicPartition, h *holding) {
	if h.ended || h.next < h.until {
		return
	}
	s.passOver(tp, h, h.until)
	h.ended = true
	s.cl.PauseFetchPartitions(one(tp))
}

// passOver tells the stream of what is not there up to an offset, as a mark before it, so that the position comes to it
// too. It would else stay where it was until the next record, and a start from there would pass over what has
// come meanwhile. The caller holds mu.
func (s *Source) passOver(tp streammanager.TopicPartition, h *holding, to int64) {
	if h.seen >= to || h.ended {
		return
	}
	h.seen = to
	s.poll.records = append(s.poll.records, streammanager.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: to - 1, Timestamp: time.Now(), Marker: true})
}

// meetMoved ends partitions that were set beyond their end, and tells of what others were set beyond.
func (s *Source) meetMoved(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unmet = false
	for tp, h := range s.held {
		if len(s.poll.records) >= limit {
			return
		}
		if _, paused := s.paused[tp]; paused { // the stream would leave it out and go back for it, again and again
			continue
		}
		if h.gap.to <= h.next {
			s.passOver(tp, h, h.gap.to)
		}
		s.meet(tp, h)
	}
}

// unmetAt reports whether meetMoved is to tell something of a partition. The caller holds mu.
func (s *Source) unmetAt(tp streammanager.TopicPartition) bool {
	h := s.held[tp]
	return h != nil && !h.ended && (h.next >= h.until || h.gap.to <= h.next && h.seen < h.gap.to)
}

// over reports whether the whole read has come to its end. A worker that has nothing left to do waits for others,
// whose partitions it takes over should they fail.
func (s *Source) over(ctx context.Context) bool {
	e := &s.poll.ending
	s.mu.Lock()
	open, coming, ended := false, len(s.owned) > len(s.held), map[string]int{}
	for tp, h := range s.held {
		open = open || h.leaving || !h.ended && !s.isThrough(tp.Topic)
		ended[tp.Topic]++
	}
	alone := s.names == nil && s.cfg.Repartition == nil
	for _, topic := range s.cfg.Topics {
		alone = alone && s.parts[topic] > 0 && ended[topic] == s.parts[topic]
	}
	s.mu.Unlock()
	if e.ill && (open || alone) { // it is not asked any more
		e.ill = false
		s.t.healed(trouble{kind: troubleStart})
	}
	switch {
	case open:
		e.open = true
		return false
	case coming: // perhaps with nothing to read
		return false
	case alone: // nobody else has any
	case time.Since(e.asked) < askGroupAgain:
		return false
	default:
		e.asked = time.Now()
		done, err := s.groupIsDone(ctx)
		if fatal := (*event.FatalError)(nil); errors.As(err, &fatal) {
			s.refuse(err)
		} else if err != nil && ctx.Err() == nil {
			e.ill = true
			s.t.note(trouble{kind: troubleStart}, err)
		} else if err == nil {
			e.ill = false
			s.t.healed(trouble{kind: troubleStart})
		}
		if !done {
			return false
		}
	}
	s.sayOver()
	return true
}

func (s *Source) sayOver() {
	e := &s.poll.ending
	if e.said {
		return
	}
	e.said = true
	s.ended.Store(true)
	switch {
	case s.cfg.Anew != nil: // whoever asks for that again and again says it
	case e.open:
		s.t.log.Info("kafka: all is read up to the end", "until", s.cfg.Until)
	case s.begun.Load() && s.within.Load() == 0:
		s.t.log.Warn("kafka: nothing lies between start and until", "start", s.cfg.Start, "until", s.cfg.Until)
	default:
		force := ""
		if s.cfg.Force {
			force = "; start.force leaves an offset that lies outside of the read, and no other"
		}
		s.t.log.Warn("kafka: nothing is left to read: group "+s.cfg.Group+" stands at the end of this read; to read it again use "+s.anotherGroup()+", "+
			"to go on, write until as a time, such as "+written(time.Now())+force,
			"group", s.cfg.Group, "start", s.cfg.Start, "until", s.cfg.Until)
	}
}

// wakeBounded has Poll look whether there is anything to read at all.
func (s *Source) wakeBounded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bounded() && s.wake != nil {
		s.wake()
	}
}

// groupIsDone reports whether the group has committed all partitions at their ends.
func (s *Source) groupIsDone(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	topics := s.cfg.Topics
	if s.names != nil {
		found, err := s.adm.ListTopics(ctx)
		if err != nil {
			return false, err
		}
		topics = s.matching(found).Names()
	}
	for _, topic := range topics {
		found, err := s.lookUp(ctx, topic)
		if err != nil {
			return false, err
		}
		s.mu.Lock()
		s.noteCame(topic, found.parts)
		s.mu.Unlock()
		switch {
		case !s.begins(found.parts):
			return false, nil
		case !read(found.parts):
			s.cfg.Anew.begun(topic) // this worker takes part in it, though it may have no partition
			s.poll.ending.open = true
			return false, nil
		case s.cfg.Anew.wanted(topic, found.parts): // it will begin once more when the partitions are shared out
			return false, nil
		}
	}
	if s.cfg.Repartition == nil || len(topics) == 0 {
		return len(topics) > 0, nil
	}
	done, err := s.throughIsDone(ctx)
	s.poll.ending.open = s.poll.ending.open || !done && err == nil
	return done, err
}

// throughIsDone reports whether all that is in the repartition topic is finished. What is committed of the topics before it was
// written there, so that no more will come.
func (s *Source) throughIsDone(ctx context.Context) (bool, error) {
	topic := s.cfg.Repartition.Topic
	first, err := s.list(ctx, s.adm.ListStartOffsets, topic)
	if err != nil {
		return false, err
	}
	end, err := s.list(ctx, s.adm.ListEndOffsets, topic)
	if err != nil {
		return false, err
	}
	found, err := s.lookUp(ctx, topic)
	if err != nil {
		return false, err
	}
	for p := range end {
		at := first[p]
		if b, ok := found.parts[p]; ok {
			at = b.Offset
		}
		if at < end[p] {
			return false, nil
		}
	}
	return true, nil
}
