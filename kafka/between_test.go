package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
)

// leadThrough starts a source that leads through a topic, behind the sink that writes there.
func leadThrough(t *testing.T, c *kfake.Cluster, dial dialer) (*record, written) {
	t.Helper()
	sink := sinkTo(t, c, func(cfg *kafka.SinkConfig) { cfg.Dialer, cfg.Topic, cfg.SourceMakes = dial, between, true })
	wait(3 * time.Second) // it has looked for the topic
	return open(t, c, leading(2), func(cfg *kafka.SourceConfig) { cfg.Dialer = dial }), sink
}

func TestMakingTheRepartitionTopicIsNoTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		r, sink := leadThrough(t, c, dial)
		defer r.src.Close(context.Background())
		r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return heldOf(held, between) == 2 })
		wait(time.Minute)
		if r.log.count("level=WARN")+sink.log.count("level=WARN") != 0 || r.log.count("kafka: repartition topic made") != 1 {
			t.Errorf("the source said:\n%s\nthe sink said:\n%s", r.log.text.String(), sink.log.text.String())
		}
	})
}

func TestARepartitionTopicThatCannotBeMadeIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		refuse(c, kmsg.CreateTopics, kerr.PolicyViolation, -1)
		r, sink := leadThrough(t, c, dial)
		defer r.src.Close(context.Background())
		wait(time.Minute)
		if r.log.count(said) != 1 || sink.log.count(said) != 0 {
			t.Errorf("the source said:\n%s\nthe sink said:\n%s", r.log.text.String(), sink.log.text.String())
		}
		text := r.log.text.String()
		if !strings.Contains(text, `making the repartition topic \"between\": make it yourself, with 2 partitions`) || strings.Count(text, "POLICY_VIOLATION") != 1 {
			t.Errorf("it said:\n%s", text)
		}
	})
}

func TestPartitionsThatAreAddedToTheRepartitionTopicWhileItIsUsedEndThePipeline(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := writer(t, c, dial)
		defer cl.Close()
		var workers []*record
		for i := range 2 {
			r := open(t, c, leading(2), func(cfg *kafka.SourceConfig) {
				cfg.Dialer = dial
				if i > 0 { // it looks seldom, and hears of it from the group
					cfg.Options = map[string]string{"heartbeat.interval.ms": "100", "metadata.max.age.ms": "3600000"}
				}
			})
			defer r.src.Close(context.Background())
			workers = append(workers, r)
			workers[0].until(t, "it has a share of the topic", func(_ string, held map[tp]int64) bool { return heldOf(held, between) == 2-i }) // the first leads the group
		}
		for _, r := range workers {
			r.until(t, "it has a partition of the topic", func(_ string, held map[tp]int64) bool { return heldOf(held, between) == 1 })
		}
		var ended []<-chan error
		for _, r := range workers {
			ended = append(ended, r.untilItFails(t.Context()))
		}
		if added, err := kadm.NewClient(cl).CreatePartitions(t.Context(), 4, between); err != nil || added.Error() != nil {
			t.Fatal(errors.Join(err, added.Error()))
		}
		for i, failed := range ended {
			select {
			case err := <-failed:
				var fatal *event.FatalError
				if !errors.As(err, &fatal) || !strings.Contains(err.Error(), `"between" was given more partitions while it was used, 6 in place of 2`) {
					t.Errorf("worker %d: Poll = %v, want the end of the pipeline and why", i, err)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("worker %d goes on", i)
			}
		}
	})
}
