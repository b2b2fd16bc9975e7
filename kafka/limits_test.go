package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

func TestRecordsAreCheckedAgainstTheLimitOfTheirTopic(t *testing.T) {
	c, _, _ := fake(t, 0)
	for topic, most := range map[string]string{"out": "2000", "large": "3000000"} {
		if err := c.CreateTopic(topic, 1, map[string]string{"max.message.bytes": most}); err != nil {
			t.Fatal(err)
		}
	}
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) {
		cfg.Options = map[string]string{"max.request.size": "4000000", "compression.type": "none"}
	})
	for topic, most := range map[string]int{"out": 2000, "large": 3000000} {
		fits := 0
		for n := most - 200; n <= most; n++ {
			r := streammanager.Record{Topic: topic, Value: value(n).Value, Key: []byte("k"), Headers: []event.Header{{Key: "h", Value: []byte("v")}}}
			err := w.Check(&r)
			if err == nil {
				fits = n
				continue
			}
			if rejected(err) != event.TooLarge || !strings.Contains(err.Error(), fmt.Sprint(most)) {
				t.Fatalf("Check = %v, want too_large and the limit", err)
			}
			if err := w.send(t, r)[0]; err == nil && n > most-60 {
				t.Errorf("a record with %d bytes of value was written, the topic takes %d", n, most)
			}
			break
		}
		if fits < most-120 {
			t.Errorf("%s: the largest value that passes has %d bytes, want nearly %d", topic, fits, most)
		}
		r := streammanager.Record{Topic: topic, Value: value(fits).Value, Key: []byte("k"), Headers: []event.Header{{Key: "h", Value: []byte("v")}}}
		if err := w.send(t, r)[0]; err != nil {
			t.Errorf("%s: a record that passed the check was refused: %v", topic, err)
		}
	}
	if err := w.Check(&streammanager.Record{Topic: "no such/name"}); rejected(err) != event.Rejected {
		t.Errorf("Check of a bad topic = %v, want rejected", err)
	}
}

func TestManySmallRecordsFitATopicWithASmallLimit(t *testing.T) {
	c, _, _ := fake(t, 0)
	if err := c.CreateTopic("out", 1, map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) {
		cfg.Options = map[string]string{"compression.type": "none", "linger.ms": "50"}
	})
	var rs []streammanager.Record
	for range 200 {
		rs = append(rs, value(100))
		if err := w.Check(&rs[0]); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range w.send(t, rs...) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestALoweredLimitIsFoundOut(t *testing.T) {
	c, _, adm := fake(t, 0, kfake.SeedTopics(1, "out"))
	w := sinkTo(t, c)
	r := value(5000)
	if err := w.Check(&r); err != nil {
		t.Fatal(err)
	}
	most := "1000"
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &most}}, "out"); err != nil {
		t.Fatal(err)
	}
	refusing(c, kerr.MessageTooLarge)
	poison := streammanager.Record{Value: []byte("poison")}
	if err := w.send(t, poison)[0]; rejected(err) != event.TooLarge {
		t.Errorf("answer %v, want too_large", err)
	}
	eventually(t, "the new limit holds", func() bool { return rejected(w.Check(&r)) == event.TooLarge })
}

func TestWithoutTheRightToAskKafkasDefaultHolds(t *testing.T) {
	c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out"))
	refuse(c, kmsg.DescribeConfigs, kerr.TopicAuthorizationFailed, -1)
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) { cfg.Options = map[string]string{"max.request.size": "9000000"} })
	small, large := value(1000000), value(1048588)
	if err := w.Check(&small); err != nil {
		t.Error(err)
	}
	if err := w.Check(&large); rejected(err) != event.TooLarge {
		t.Errorf("Check = %v, want too_large", err)
	}
	eventually(t, "the sink was looked at", func() bool { return w.Health() == nil })
}

func TestOptionsOfASinkBoundItsMemory(t *testing.T) {
	c, _, _ := fake(t, 0, kfake.SeedTopics(1, "out"))
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) { cfg.Options = map[string]string{"buffer.memory": "70000"} })
	if got := w.BufferBytes(); got != 70000 {
		t.Errorf("BufferBytes = %d", got)
	}
	refuse(c, kmsg.Produce, kerr.NotLeaderForPartition, -1)
	room, found := context.WithTimeout(t.Context(), 20*time.Second)
	defer found()
	for i := range 2 {
		r := value(30000)
		w.Produce(room, &r, func(error) {})
		if room.Err() != nil {
			t.Fatalf("record %d found no room", i)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := value(30000)
	w.Produce(ctx, &r, func(error) {})
	if ctx.Err() == nil {
		t.Error("a third record did not wait for room")
	}
}
