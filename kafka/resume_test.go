package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

func (r *record) beyond(partition int32) []streammanager.Range {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.finished[tp{Topic: "in", Partition: partition}]
}

func textOf(t *testing.T, adm *kadm.Client) string {
	t.Helper()
	found, err := adm.FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	o, _ := found.Lookup("in", 0)
	return o.Metadata
}

// finishes reads topic "in", commits a position of its partition 0, and leaves.
func finishes(t *testing.T, c *kfake.Cluster, at streammanager.Position) {
	t.Helper()
	r := open(t, c)
	r.untilHeld(t, 1)
	if err := r.src.Commit(t.Context(), map[tp]streammanager.Position{{Topic: "in"}: at}); err != nil {
		t.Fatal(err)
	}
	r.src.Close(context.Background())
}

var some = []streammanager.Range{{From: 4, To: 6}, {From: 8, To: 9}}

func TestWhatIsFinishedBeyondTheOffsetIsToldToTheNextOwner(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	finishes(t, c, streammanager.Position{Offset: 3, Finished: some})
	r := open(t, c)
	r.untilHeld(t, 1)
	if got := r.beyond(0); !slices.Equal(got, some) || r.held()[tp{Topic: "in"}] != 3 {
		t.Errorf("told %v beyond %v, want %v", got, r.held(), some)
	}
	if got := text(r.poll(t, 7)); got != "3 4 5 6 7 8 9" {
		t.Errorf("delivered %q: what is finished is delivered too, and passed over by the stream", got)
	}
}

func TestWhatIsFinishedBeyondAnOffsetDoesNotHoldForAnother(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	finishes(t, c, streammanager.Position{Offset: 3, Finished: some})
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: "in", Partition: 0, At: 2, LeaderEpoch: -1, Metadata: textOf(t, adm)})
	if err := adm.CommitAllOffsets(t.Context(), "g", o); err != nil {
		t.Fatal(err)
	}
	r := open(t, c)
	r.untilHeld(t, 1)
	if got := r.beyond(0); len(got) > 0 || r.held()[tp{Topic: "in"}] != 2 {
		t.Errorf("told %v beyond %v, want none", got, r.held())
	}
}

func TestWhatWasFinishedOfATopicDoesNotHoldForOneMadeAnew(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	finishes(t, c, streammanager.Position{Offset: 3, Finished: some})
	kept := textOf(t, adm)
	if _, err := adm.DeleteTopics(t.Context(), "in"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopics(t.Context(), 1, 1, nil, "in"); err != nil {
		t.Fatal(err)
	}
	fresh, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...)) // which knows nothing of the topic before
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	adm = kadm.NewClient(fresh)
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: "in", Partition: 0, At: 3, LeaderEpoch: -1, Metadata: kept})
	if err := adm.CommitAllOffsets(t.Context(), "g", o); err != nil {
		t.Fatal(err)
	}
	r := open(t, c, latest)
	r.untilHeld(t, 1)
	if got := r.beyond(0); len(got) > 0 || r.held()[tp{Topic: "in"}] != 0 {
		t.Errorf("told %v beyond %v, want none, and all from the first record on", got, r.held())
	}
}

func TestACommitFitsIntoWhatBrokersKeepBesideAnOffset(t *testing.T) {
	var many []streammanager.Range
	for i := range int64(3000) {
		many = append(many, streammanager.Range{From: 10 + 1000*i, To: 500 + 1000*i})
	}
	for _, most := range []int{4096, 1000, 0} {
		c, cl, adm := fake(t, 1)
		write(t, cl, "in", 0, 0, 10)
		c.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			req := kreq.(*kmsg.OffsetCommitRequest)
			for _, topic := range req.Topics {
				for _, p := range topic.Partitions {
					if p.Metadata == nil || len(*p.Metadata) <= most {
						continue
					}
					resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
					at := kmsg.NewOffsetCommitResponseTopic()
					at.Topic, at.TopicID = topic.Topic, topic.TopicID
					refused := kmsg.NewOffsetCommitResponseTopicPartition()
					refused.Partition, refused.ErrorCode = p.Partition, 12 // OFFSET_METADATA_TOO_LARGE
					at.Partitions = append(at.Partitions, refused)
					resp.Topics = append(resp.Topics, at)
					return resp, nil, true
				}
			}
			return nil, nil, false
		})
		finishes(t, c, streammanager.Position{Offset: 3, Finished: many})
		kept := textOf(t, adm)
		if len(kept) > most || len(kept) < most/3 || !strings.HasPrefix(kept, "enricher/1 ") && most > 0 {
			t.Errorf("brokers that keep %d bytes got %d: %q", most, len(kept), kept)
		}
		r := open(t, c)
		r.untilHeld(t, 1)
		got := r.beyond(0)
		if len(got) > len(many) || !slices.Equal(got, many[:len(got)]) || len(got) < most/16 {
			t.Errorf("brokers that keep %d bytes: %d ranges are told, want the first of them", most, len(got))
		}
		r.src.Close(context.Background())
	}
}
