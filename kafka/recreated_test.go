package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// again deletes a topic and makes it anew.
func again(t *testing.T, c *kfake.Cluster, adm *kadm.Client, topic string, partitions int32) {
	t.Helper()
	gone, err := adm.DeleteTopic(t.Context(), topic)
	if err == nil {
		err = gone.Err
	}
	if err == nil {
		err = c.CreateTopic(topic, partitions, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestATopicThatIsMadeAgainIsReadFromItsFirstRecord(t *testing.T) {
	for _, topics := range []string{"in", "/i./"} {
		t.Run(topics, func(t *testing.T) {
			c, cl, adm := fake(t, 2)
			r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Topics, cfg.Start = []string{topics}, kafka.Latest })
			r.untilHeld(t, 2)
			write(t, cl, "in", 0, 0, 5)
			r.poll(t, 5)
			if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 5})); err != nil {
				t.Fatal(err)
			}
			again(t, c, adm, "in", 3)
			cl.PurgeTopicsFromClient("in")
			for p := range int32(3) {
				write(t, cl, "in", p, 10*int(p), 3) // the source cannot have seen the new topic yet
			}
			got := map[string]int{}
			for _, rec := range r.poll(t, 9) {
				got[fmt.Sprint(rec.Partition, " ", rec.Offset, " ", string(rec.Value))]++
			}
			for p := range 3 {
				for i := range 3 {
					if want := fmt.Sprint(p, " ", i, " ", 10*p+i); got[want] != 1 {
						t.Errorf("partition, offset and value %q came %d times, want once: %v", want, got[want], got)
					}
				}
			}
			if n := r.log.count("deleted and made again"); n != 1 {
				t.Errorf("it was said %d times:\n%s", n, r.log.text.String())
			}
			for _, line := range []string{"topic begun\" topic=in partitions=2 start=latest", "topic begun\" topic=in partitions=3 start=earliest"} {
				if r.log.count(line) != 1 {
					t.Errorf("%q is not said once:\n%s", line, r.log.text.String())
				}
			}
			if n := r.src.Stalled()[streammanager.StallTopic]; n != 1 {
				t.Errorf("counted %d times", n)
			}
			eventually(t, "offsets of the new topic are kept", func() bool {
				return r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 3, {Topic: "in", Partition: 1}: 3, {Topic: "in", Partition: 2}: 3})) == nil
			})
			eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
		})
	}
}

func TestASinkWritesToATopicThatWasMadeAgain(t *testing.T) {
	for name, change := range map[string]func(*kafka.SinkConfig){
		"one topic": func(cfg *kafka.SinkConfig) { cfg.Topic = "out" },
		"a topic that the event names": func(cfg *kafka.SinkConfig) {
			cfg.Topic, cfg.TopicOf = "", func(*event.Event) (string, error) { return "out", nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, adm := fake(t, 0)
			if err := c.CreateTopic("out", 1, nil); err != nil {
				t.Fatal(err)
			}
			sink := sinkTo(t, c, change, func(cfg *kafka.SinkConfig) { cfg.Options = map[string]string{"metadata.max.age.ms": "200"} })
			if err := sink.send(t, streammanager.Record{Topic: "out", Value: []byte("before")})[0]; err != nil {
				t.Fatal(err)
			}
			again(t, c, adm, "out", 1)
			refused := 0
			eventually(t, "the sink has noticed", func() bool { // until then its library may write to the new topic all the same
				if err := sink.send(t, streammanager.Record{Topic: "out", Value: []byte("between")})[0]; err != nil {
					refused++
				}
				return sink.log.count("deleted and made again, going on") > 0
			})
			eventually(t, "the new topic takes a record", func() bool {
				return sink.send(t, streammanager.Record{Topic: "out", Value: []byte("after")})[0] == nil
			})
			eventually(t, "the sink is well", func() bool { return sink.Health() == nil })
			if n := sink.Stalled()[streammanager.StallTopic]; n != 1 {
				t.Errorf("counted %d times, want once; %d records were refused", n, refused)
			}
		})
	}
}

// The library numbers the records of a topic anew once it has forgotten it. Where it has written to the new topic
// already, the brokers would take what comes next for what they have.
func TestASinkThatFirstWroteToTheTopicThatWasMadeAgainLosesNothing(t *testing.T) {
	c, _, adm := fake(t, 0)
	if err := c.CreateTopic("out", 1, nil); err != nil {
		t.Fatal(err)
	}
	asked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Count: -1, Observe: true})
	way := &breakable{}
	sink := sinkTo(t, c, func(cfg *kafka.SinkConfig) { cfg.Topic, cfg.Dialer = "out", way.dial })
	if err := asked.Wait(t.Context(), 1); err != nil { // it has looked at the first topic then
		t.Fatal(err)
	}
	again(t, c, adm, "out", 1)
	written := 0
	put := func() {
		if err := sink.send(t, streammanager.Record{Topic: "out", Value: fmt.Append(nil, written)})[0]; err != nil {
			t.Fatal(err)
		}
		written++
	}
	put()
	way.fail() // has the topics looked at soon
	put()
	eventually(t, "the sink has noticed", func() bool { return sink.log.count("deleted and made again, going on") > 0 })
	for range 50 {
		put()
	}
	ends, err := adm.ListEndOffsets(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := ends.Lookup("out", 0); o.Offset != int64(written) {
		t.Errorf("%d records were acknowledged, the topic holds %d", written, o.Offset)
	}
}

// breakable is a way to brokers that can be made to fail once.
type breakable struct {
	mu    sync.Mutex // guards what follows
	conns []net.Conn
	fails bool
}

func (b *breakable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails {
		b.fails = false
		return nil, errors.New("it fails once")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	b.conns = append(b.conns, conn)
	return conn, err
}

// fail closes all connections and refuses the next.
func (b *breakable) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = true
	for _, conn := range b.conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
	b.conns = nil
}

// A stream that goes back to where it was told that a partition begins, before it has seen the first record behind
// what is gone, must not have that passed over twice.
func TestWhatIsGoneIsPassedOverOnce(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	put(t, adm, 0, 2)
	var gone kadm.Offsets
	gone.AddOffset("in", 0, 6, -1)
	if done, err := adm.DeleteRecords(t.Context(), gone); err != nil || done.Error() != nil {
		t.Fatal(err, done.Error())
	}
	r := open(t, c)
	r.poll(t, 2) // the first is a mark of the place up to which it was passed over
	for _, back := range []int64{2, 5} {
		r.src.Rewind(map[tp]int64{{Topic: "in"}: back})
		if got := text(r.poll(t, 5)); got != " 6 7 8 9" {
			t.Errorf("back to %d: got %q", back, got)
		}
	}
	if n := r.src.Skipped(); n != 4 || r.log.count("out of range") != 1 {
		t.Errorf("counted %d as gone, want 4, and said it %d times", n, r.log.count("out of range"))
	}
	r.src.Rewind(map[tp]int64{{Topic: "in"}: 0}) // what was delivered and not finished is gone now too
	r.poll(t, 5)
	if n := r.src.Skipped(); n != 6 {
		t.Errorf("counted %d as gone, want 6", n)
	}
}
