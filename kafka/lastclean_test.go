package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

// left is how many records of the repartition topic were not deleted.
func left(c *kfake.Cluster) (n int64) {
	for _, p := range c.PartitionInfos(between) {
		n += p.HighWatermark - p.LogStartOffset
	}
	return n
}

func TestWhatIsFinishedIsDeletedWhenTheSourceCloses(t *testing.T) {
	lead := func(until string) []func(*kafka.SourceConfig) {
		return []func(*kafka.SourceConfig){leading(2), ranged("earliest", until)}
	}
	put := func(t *testing.T, cl *kgo.Client) {
		write(t, cl, "in", 0, 0, 1)
		write(t, cl, between, 0, 10, 3)
		write(t, cl, between, 1, 20, 3)
	}
	t.Run("at the end of a bounded read", func(t *testing.T) {
		c, cl, _ := fake(t, 1)
		write(t, cl, "in", 0, 0, 1)
		if err := c.CreateTopic(between, 2, map[string]string{"retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
		put(t, cl)
		r := open(t, c, lead("latest")...)
		if got := toTheEnd(t, r); len(strings.Fields(got)) != 8 {
			t.Fatalf("read %q", got)
		}
		r.src.Close(context.Background())
		if n := left(c); n != 0 {
			t.Errorf("%d finished records are in the repartition topic", n)
		}
		again := open(t, c, lead("latest")...)
		if got := toTheEnd(t, again); got != "" {
			t.Errorf("a second run read %q", got)
		}
		if again.log.count("to read it again use another group and another repartition.topic, to go on") != 1 {
			t.Errorf("it said:\n%s", again.log.text.String())
		}
	})
	t.Run("at a stop, also what was finished by one that was killed", func(t *testing.T) {
		c, cl, _ := fake(t, 1)
		if err := c.CreateTopic(between, 2, map[string]string{"retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
		put(t, cl)
		killed := refuse(c, kmsg.DeleteRecords, kerr.NotLeaderForPartition, -1)
		r := open(t, c, leading(2))
		r.poll(t, 7)
		if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: between}: 2, {Topic: between, Partition: 1}: 3})); err != nil {
			t.Fatal(err)
		}
		r.src.Close(context.Background())
		killed.Remove()
		if n := left(c); n != 6 {
			t.Fatalf("%d records are in the topic", n)
		}
		next := open(t, c, leading(2))
		next.poll(t, 2) // one of the input, and one that was not committed
		next.src.Close(context.Background())
		if n := left(c); n != 1 {
			t.Errorf("%d records are in the repartition topic, want the one that is not finished", n)
		}
	})
	t.Run("no longer than for a while", func(t *testing.T) {
		bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
			cl := within(t, dial)
			defer cl.Close()
			r := open(t, c, leading(2), over(dial))
			r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return len(held) == 3 })
			put(t, cl)
			r.poll(t, 7)
			if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: between}: 3})); err != nil {
				t.Fatal(err)
			}
			refuse(c, kmsg.DeleteRecords, kerr.NotLeaderForPartition, -1)
			began := time.Now()
			r.src.Close(context.Background())
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("closing took %v", took)
			}
		})
	})
}
