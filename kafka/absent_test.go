package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// made is a sink whose topics events name.
func made(t *testing.T, dial dialer, change ...func(*kafka.SinkConfig)) written {
	return sinkTo(t, nil, append([]func(*kafka.SinkConfig){func(cfg *kafka.SinkConfig) {
		cfg.Brokers, cfg.Dialer, cfg.Topic = []string{"127.0.0.1:9092"}, dial, ""
		cfg.TopicOf = func(ev *event.Event) (string, error) { return string(ev.Key()), nil }
	}}, change...)...)
}

func to(topic string) streammanager.Record {
	return streammanager.Record{Topic: topic, Value: []byte("x")}
}

func TestAnEventThatNamesATopicThatDoesNotExistIsRejectedAfterAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		w := made(t, dial)
		r := to("nowhere")
		if err := w.Check(&r); err != nil {
			t.Errorf("Check = %v before anything is known", err)
		}
		began := time.Now()
		errs := w.send(t, to("nowhere"), to("in"), to("nowhere"))
		if errs[1] != nil {
			t.Errorf("the topic that exists: %v", errs[1])
		}
		for _, err := range []error{errs[0], errs[2], w.Check(&r)} {
			if rejected(err) != event.Rejected || !strings.Contains(err.Error(), `topic "nowhere", which the event names, does not exist`) {
				t.Errorf("answer %v, want rejected", err)
			}
		}
		if took := time.Since(began); took < kafka.UnknownAfter || took > 2*kafka.UnknownAfter {
			t.Errorf("it took %v", took)
		}
		if err := w.Health(); err != nil || w.log.count(said) != 0 {
			t.Errorf("the sink is %v, and said:\n%s", err, w.log.text.String())
		}
		if err := c.CreateTopic("nowhere", 1, nil); err != nil {
			t.Fatal(err)
		}
		wait(kafka.UnknownAfter + time.Second)
		if err := w.Check(&r); err != nil {
			t.Errorf("Check = %v after the topic was made", err)
		}
		if err := w.send(t, r)[0]; err != nil {
			t.Errorf("after the topic was made: %v", err)
		}
	})
}

func TestATopicThatIsMadeInTimeIsWrittenTo(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		w := made(t, dial)
		time.AfterFunc(kafka.UnknownAfter/2, func() { _ = c.CreateTopic("late", 1, nil) })
		if err := w.send(t, to("late"))[0]; err != nil {
			t.Error(err)
		}
	})
}

// That no broker answers says nothing about a topic.
func TestAnOutageIsNotTheFaultOfAnEventThatNamesATopic(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := &wire{dial: dial, cut: true}
		sink := made(t, w.DialContext)
		time.AfterFunc(10*time.Second, func() { w.set(false) })
		if err := sink.send(t, to("in"))[0]; err != nil {
			t.Error(err)
		}
	})
}

func TestASinkThatWaitsForTopicsRejectsNone(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		w := made(t, dial, func(cfg *kafka.SinkConfig) { cfg.WaitForTopics = true })
		time.AfterFunc(kafka.UnknownAfter+5*time.Second, func() { _ = c.CreateTopic("late", 1, nil) })
		if err := w.send(t, to("late"))[0]; err != nil {
			t.Error(err)
		}
	})
}

func TestASinkThatWaitsForAnUnknownTopicClosesInTime(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		w := made(t, dial)
		answer := make(chan error, 1)
		r := to("nowhere")
		w.Produce(t.Context(), &r, func(err error) { answer <- err })
		wait(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("closing took %v", took)
		}
		if err := <-answer; err == nil || rejected(err) != "" {
			t.Errorf("the record was told %v, want that the sink was closed", err)
		}
	})
}

func TestATopicThatExistsIsNotGivenUpHoweverLongItTakes(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		w := made(t, dial)
		refused := refuse(c, kmsg.Produce, kerr.NotLeaderForPartition, -1)
		time.AfterFunc(3*kafka.UnknownAfter/2, refused.Remove)
		if err := w.send(t, to("in"))[0]; err != nil {
			t.Error(err)
		}
	})
}
