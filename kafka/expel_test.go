package kafka

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

// heard are the offsets at which a stream was told to begin.
type heard struct {
	mu sync.Mutex // guards at
	at []int64

	told func(nth int)
}

func (h *heard) Assigned(s map[streammanager.TopicPartition]streammanager.Position) {
	h.mu.Lock()
	h.at = append(h.at, s[streammanager.TopicPartition{Topic: "in"}].Offset)
	n := len(h.at)
	h.mu.Unlock()
	h.told(n)
}
func (h *heard) Revoked(context.Context, []streammanager.TopicPartition) {}
func (h *heard) Lost([]streammanager.TopicPartition)                     {}

// While a worker that was expelled looks where to go on, it is expelled once more: it has joined as another member. What it
// has found may be old by then, and what it commits from there on would set the group back.
func TestAWorkerThatIsExpelledAgainWhileItBeginsAnewLooksOnceMore(t *testing.T) {
	c := tenRecords(t)
	var s *Source
	h := &heard{}
	h.told = func(nth int) {
		if nth == 2 { // another has come further by the time the stream is told
			commitBeside(t, c, s, 7)
		}
	}
	s = readTen(t, c, h)
	commitBeside(t, c, s, 2)
	again := false
	c.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !again {
			again = true
			s.expel()
		}
		return nil, nil, false
	})
	s.expel()
	got, err := s.Poll(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := fmt.Sprint(h.at); at != "[0 2 7]" || got.Records[0].Offset != 7 {
		t.Errorf("the stream began at %s and was given %d first, want it to begin at 7 in the end", at, got.Records[0].Offset)
	}
}

// commitBeside commits an offset behind the back of a source.
func commitBeside(t *testing.T, c *kfake.Cluster, s *Source, offset int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = "g"
	req.MemberID, req.Generation = s.cl.GroupMetadata()
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "in"
	details, err := s.adm.ListTopics(t.Context(), "in")
	if err != nil {
		t.Fatal(err)
	}
	topic.TopicID = details["in"].ID
	at := kmsg.NewOffsetCommitRequestTopicPartition()
	at.Offset = offset
	topic.Partitions = append(topic.Partitions, at)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("committing %d: error %d", offset, code)
	}
}

// Poll begins anew what is stale when it hears that the worker was expelled, and does not look again: nothing may be stale later.
func TestWhatIsExpelledIsStaleOnceItIsSaid(t *testing.T) {
	p := streammanager.TopicPartition{Topic: "in"}
	s := &Source{held: map[streammanager.TopicPartition]*holding{p: {}}}
	var done sync.WaitGroup
	s.mu.Lock() // somebody else looks at what is held
	done.Go(s.expel)
	for range 10000 {
		runtime.Gosched()
	}
	said, stale := s.expelled.Load(), s.held[p].stale
	s.mu.Unlock()
	done.Wait()
	if said && !stale || !s.held[p].stale {
		t.Errorf("said %v, stale %v, and stale in the end %v", said, stale, s.held[p].stale)
	}
}
