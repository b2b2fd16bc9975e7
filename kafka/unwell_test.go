package kafka_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// closed takes the right to write to topic "secret" away.
func closed(c *kfake.Cluster) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "secret", Err: kerr.TopicAuthorizationFailed, Count: -1})
}

func namesSecret(err error) bool {
	return err != nil && strings.Contains(err.Error(), `topic "secret": this user has no right to it: grant it one`)
}

func TestATopicThatRefusesIsNamedUntilItTakesRecordsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		w := made(t, dial)
		refused := closed(c)
		for range 3 {
			if err := w.send(t, to("secret"))[0]; !namesSecret(err) || rejected(err) != "" {
				t.Errorf("answer %v, want it as the sink's and with the cure", err)
			}
			if err := w.send(t, to("in"))[0]; err != nil {
				t.Error(err)
			}
			if err := w.Health(); !namesSecret(err) {
				t.Errorf("Health = %v after another topic took a record", err)
			}
			wait(time.Minute)
		}
		if n := w.log.count(said); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, w.log.text.String())
		}
		refused.Remove()
		if err := w.send(t, to("secret"))[0]; err != nil || w.Health() != nil {
			t.Errorf("with the right given back: %v, Health %v", err, w.Health())
		}
		refused = closed(c)
		defer refused.Remove()
		w.send(t, to("secret")) // for the last time: another worker has the event now
		wait(4 * time.Minute)
		if err := w.Health(); !namesSecret(err) {
			t.Errorf("Health = %v while nothing was written", err)
		}
		if err := w.send(t, to("in"))[0]; err != nil || w.Health() != nil {
			t.Errorf("with no refusal for long: %v, Health %v", err, w.Health())
		}
	}, kfake.SeedTopics(1, "secret"))
}

// An event that names a topic without rights makes its stream go back again and again. What is written
// meanwhile must not hide it.
func TestATopicWithoutRightsIsNamedByTheStreamThroughoutAndMakesNoErrorEvent(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "secret"))
	refused := closed(c.fake)
	conn := kafka.Connection{Brokers: c.fake.ListenAddrs(), Options: map[string]string{"linger.ms": "0"}}
	src, err := kafka.NewSource(kafka.SourceConfig{Connection: kafka.Connection{Brokers: c.fake.ListenAddrs()}, Topics: []string{"in"}, Group: "g"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, TopicOf: func(ev *event.Event) (string, error) { return string(ev.Value()), nil }}, nil)
	if err != nil {
		t.Fatal(err)
	}
	errs, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "errors"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	slow := func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		if string(ev.Value()) == "secret" { // others are written between going back and the refusal
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return []*event.Event{ev}, nil
	}
	s, err := streammanager.New(streammanager.Config{Name: "g", Logger: slog.New(slog.DiscardHandler)}).
		From(src).Process(streammanager.Step{Name: "fn", Func: event.FuncOf(slow)}).To(sink).ErrorsTo(errs, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	write := func(topic string, n int) {
		t.Helper()
		rs := make([]*kgo.Record, n)
		for i := range rs {
			rs[i] = &kgo.Record{Topic: "in", Value: []byte(topic)}
		}
		if err := c.cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write("secret", 1)
	eventually(t, "the stream names the topic", func() bool { return namesSecret(s.Status().Ready) })
	until := time.Now().Add(3 * time.Second)
	eventually(t, "it has named it for a while", func() bool {
		write("out", 4)
		if err := s.Status().Ready; !namesSecret(err) {
			t.Fatalf("Ready = %v while the event goes round", err)
		}
		return time.Now().After(until)
	})
	if hits := refused.Hits(); hits < 3 {
		t.Errorf("it was tried %d times, want again and again", hits)
	}
	refused.Remove()
	eventually(t, "the stream is ready", func() bool { return s.Status().Ready == nil })
	eventually(t, "the event is written", func() bool { return c.fake.PartitionInfos("secret")[0].HighWatermark == 1 })
	if n := c.fake.PartitionInfos("errors")[0].HighWatermark; n != 0 {
		t.Errorf("%d error events, want none", n)
	}
}
