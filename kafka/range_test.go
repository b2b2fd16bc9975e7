package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/streammanager"
)

type noted struct{ got chan string }

func (n noted) Assigned(s map[streammanager.TopicPartition]streammanager.Position) {
	n.got <- fmt.Sprint("assigned ", s)
}
func (n noted) Revoked(context.Context, []streammanager.TopicPartition) {}
func (n noted) Lost(t []streammanager.TopicPartition)                   { n.got <- fmt.Sprint("lost ", t) }

// tenRecords starts a broker in the process, with as many records in the one partition of topic "in".
func tenRecords(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "in"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 10 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// readTen opens a source that tells a, and reads the ten records.
func readTen(t *testing.T, c *kfake.Cluster, a streammanager.Assignments) *Source {
	t.Helper()
	s, err := NewSource(SourceConfig{Connection: Connection{Brokers: c.ListenAddrs()}, Topics: []string{"in"}, Group: "g"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	for read := 0; read < 10; {
		got, err := s.Poll(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		read += len(got.Records)
	}
	return s
}

func TestAPartitionThatIsGivenAgainWhileItsRangeIsAskedForKeepsItsStart(t *testing.T) {
	c := tenRecords(t)
	n := noted{make(chan string, 10)}
	s := readTen(t, c, n)
	tp := streammanager.TopicPartition{Topic: "in"}
	given := false
	c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !given { // the group takes the partition and gives it again, from what is committed
			given = true
			s.onLost(context.Background(), nil, map[string][]int32{"in": {0}})
			s.tell.Lock()
			if err := s.hold(map[streammanager.TopicPartition]beginning{tp: {}}, anyTime); err != nil {
				t.Error(err)
			}
			s.tell.Unlock()
			s.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{"in": {0: {Epoch: -1}}}) // as the client does
		}
		return nil, nil, false
	})
	if err := s.outOfRange(t.Context(), tp); err != nil {
		t.Fatal(err)
	}
	for len(n.got) > 0 {
		t.Log(<-n.got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	got, err := s.Poll(ctx, 100)
	if len(got.Records) == 0 || got.Records[0].Offset != 0 {
		t.Errorf("after the new assignment from offset 0 the poll gave %d records, %v; want them from 0", len(got.Records), err)
	}
}

func TestWhatIsPassedOverIsToldAsAMarkSoThatThePositionComesThere(t *testing.T) {
	c := tenRecords(t)
	for policy, mark := range map[string]int64{Earliest: 6, Latest: 9} {
		t.Run(policy, func(t *testing.T) {
			s, err := NewSource(SourceConfig{Connection: Connection{Brokers: c.ListenAddrs()}, Topics: []string{"in"}, Group: policy, OutOfRange: policy}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Open(t.Context(), noted{make(chan string, 10)}); err != nil {
				t.Fatal(err)
			}
			defer s.Close(context.Background())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if got, err := s.Poll(ctx, 3); err != nil || len(got.Records) == 0 {
				t.Fatalf("%d records, %v", len(got.Records), err)
			}
			if err := c.DeleteRecords("in", 0, 7); err != nil {
				t.Fatal(err)
			}
			s.Rewind(map[streammanager.TopicPartition]int64{{Topic: "in"}: 2})
			got, err := s.Poll(ctx, 100)
			if err != nil || len(got.Records) == 0 {
				t.Fatalf("after the deletion: %d records, %v", len(got.Records), err)
			}
			if r := got.Records[0]; !r.Marker || r.Offset != mark {
				t.Errorf("the first record after the deletion is %d (mark: %v), want a mark at %d", r.Offset, r.Marker, mark)
			}
		})
	}
}
