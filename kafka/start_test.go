package kafka_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

func latest(cfg *kafka.SourceConfig) { cfg.Start = kafka.Latest }

func TestAStartIsTheOffsetOfTheFirstRecordDelivered(t *testing.T) {
	c, cl, adm := fake(t, 2)
	write(t, cl, "in", 0, 0, 10)
	write(t, cl, "in", 1, 100, 10)
	if err := c.DeleteRecords("in", 1, 4); err != nil {
		t.Fatal(err)
	}
	put(t, adm, 0, 7)
	r := open(t, c, latest)
	got := map[int32]string{}
	for _, rec := range r.poll(t, 9) {
		if got[rec.Partition] == "" {
			got[rec.Partition] = string(rec.Value)
		}
	}
	want := map[tp]int64{{Topic: "in"}: 7, {Topic: "in", Partition: 1}: 4}
	if !maps.Equal(r.held(), want) || got[0] != "7" || got[1] != "104" {
		t.Errorf("told %v and delivered %v first, want %v: where committed, and the rest, added later, from its earliest", r.held(), got, want)
	}
}

func TestTheStartOfATopicIsCommittedAtOnceBeforeAnythingIsRead(t *testing.T) {
	for _, start := range []string{kafka.Earliest, kafka.Latest} {
		t.Run(start, func(t *testing.T) {
			c, cl, adm := fake(t, 4)
			for p := range int32(4) {
				write(t, cl, "in", p, 0, 10)
			}
			refused := refuse(c, kmsg.OffsetCommit, kerr.GroupAuthorizationFailed, -1)
			set := func(cfg *kafka.SourceConfig) { cfg.Start = start }
			first, second := open(t, c, set), open(t, c, set)
			if err := refused.Wait(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			eventually(t, "both have joined", func() bool { g := c.GroupInfo("g"); return len(g.Members) == 2 && g.State == "Stable" })
			first.nothing(t, 300*time.Millisecond)
			second.nothing(t, 300*time.Millisecond)
			if first.heard()+second.heard() != "" {
				t.Fatalf("told %q and %q before the start was committed", first.heard(), second.heard())
			}
			refused.Remove()
			first.untilHeld(t, 2)
			second.untilHeld(t, 2)
			want := int64(0)
			if start == kafka.Latest {
				want = 10
			}
			at := committed(t, adm)
			for p := range int32(4) {
				if o, ok := at[p]; !ok || o != want {
					t.Errorf("committed %v, want %d for all partitions", at, want)
				}
			}
			for part, o := range first.held() {
				if o != want {
					t.Errorf("%v starts at %d, want %d", part, o, want)
				}
			}
		})
	}
}

func TestAPartitionAddedLaterStartsAtItsEarliestRecord(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	r := open(t, c, latest)
	r.untilHeld(t, 1)
	if _, err := adm.CreatePartitions(t.Context(), 1, "in"); err != nil {
		t.Fatal(err)
	}
	fresh, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	write(t, fresh, "in", 1, 50, 3)
	if got := text(r.poll(t, 3)); got != "50 51 52" {
		t.Errorf("got %q", got)
	}
}

func TestARegularExpressionFindsTopicsThatComeLater(t *testing.T) {
	c, cl, _ := fake(t, 1)
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Topics = []string{`/wiki\..*/`, "in"} })
	r.untilHeld(t, 1)
	for _, topic := range []string{"wiki.a", "other"} {
		if err := c.CreateTopic(topic, 1, nil); err != nil {
			t.Fatal(err)
		}
		write(t, cl, topic, 0, 0, 1)
	}
	if got := r.poll(t, 1); got[0].Topic != "wiki.a" {
		t.Errorf("got a record of %q", got[0].Topic)
	}
	r.nothing(t, 300*time.Millisecond)
}

// So does a subscription to a pattern in Kafka's own client.
func TestARegularExpressionMatchesTheWholeNameOfATopic(t *testing.T) {
	topics := []string{"a.b", "a.b.error", "my.a.b", "c", "cc"}
	for expr, want := range map[string][]string{
		`/a\.b/`: {"a.b"}, `/a\.b|c/`: {"a.b", "c"}, `/.*a\.b/`: {"a.b", "my.a.b"}, `/^a\..*$/`: {"a.b", "a.b.error"}, `/(?i)A.B/`: {"a.b"},
	} {
		t.Run(expr, func(t *testing.T) {
			c, _, _ := fake(t, 0, kfake.SeedTopics(1, topics...))
			r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Topics = []string{expr} })
			r.untilHeld(t, len(want))
			for part := range r.held() {
				if !slices.Contains(want, part.Topic) {
					t.Errorf("reads %q, want %q", part.Topic, want)
				}
			}
			eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
		})
	}
	_, err := kafka.NewSource(kafka.SourceConfig{Connection: kafka.Connection{Brokers: []string{"h:1"}}, Topics: []string{"/a)(b/"}, Group: "g"}, nil)
	if err == nil || !strings.Contains(err.Error(), `topics[0]: reading the regular expression "/a)(b/"`) {
		t.Errorf("NewSource = %v", err)
	}
}

func TestAnExpressionThatNoTopicMatchesIsSaidOnceAndWaitedFor(t *testing.T) {
	c, _, _ := fake(t, 1)
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Topics = []string{"/i/"} })
	eventually(t, "the source is unwell", func() bool {
		err := r.src.Health()
		return err != nil && strings.Contains(err.Error(), "no topic has a name that /i/ matches as a whole")
	})
	if err := c.CreateTopic("i", 1, nil); err != nil {
		t.Fatal(err)
	}
	r.untilHeld(t, 1)
	eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
	if n := r.log.count(said); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}
