package kafka_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

func TestAQuietPartitionIsWellAgainOnceItCanBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := writer(t, c, dial)
		defer cl.Close()
		write(t, cl, "in", 0, 0, 5)
		r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer, cfg.Options = dial, nil })
		defer r.src.Close(context.Background())
		r.poll(t, 5)
		ctx, cancel := context.WithCancel(t.Context())
		failed := r.untilItFails(ctx)
		refusing := refuse(c, kmsg.Fetch, kerr.TopicAuthorizationFailed, -1)
		wait(3 * time.Second)
		for range 20 {
			if wait(17 * time.Second); r.src.Health() == nil {
				t.Fatal("it is well while it is refused")
			}
		}
		refusing.Remove()
		wait(10 * time.Second)
		if r.src.Health() == nil {
			t.Error("it is well before that can be known")
		}
		wait(30 * time.Second)
		if err := r.src.Health(); err != nil || r.log.count("trouble healed") != 1 {
			t.Errorf("40 seconds after it can be read: %v; logged\n%s", err, r.log.text.String())
		}
		cancel()
		<-failed
	})
}

// It would tell what is not there again and again, since the stream goes back for it.
func TestAPausedPartitionBeforeAGapHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := writer(t, c, dial)
		defer cl.Close()
		adm := kadm.NewClient(cl)
		if added, err := adm.CreatePartitions(t.Context(), 1, "in"); err != nil || added.Error() != nil {
			t.Fatal(errors.Join(err, added.Error()))
		}
		write(t, cl, "in", 0, 0, 10)
		put(t, adm, 0, 2)
		put(t, adm, 1, 0)
		if err := c.DeleteRecords("in", 0, 6); err != nil {
			t.Fatal(err)
		}
		r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.Dialer = dial })
		defer r.src.Close(context.Background())
		p0 := tp{Topic: "in"}
		if mark := r.poll(t, 1)[0]; !mark.Marker || mark.Offset != 5 {
			t.Fatalf("the first record is at offset %d, want the mark of what is gone", mark.Offset)
		}
		r.src.Pause(p0) // meanwhile: the stream leaves the mark out, and goes back
		r.src.Rewind(map[tp]int64{p0: 2})
		write(t, cl, "in", 1, 100, 1)
		if got := r.poll(t, 1)[0]; got.Partition != 1 {
			t.Fatalf("the next record is of partition %d at offset %d, mark: %v; want that of the other", got.Partition, got.Offset, got.Marker)
		}
		if err := c.DeleteRecords("in", 0, 10); err != nil { // no record comes to wake the poll
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			synctest.Wait() // it polls
			r.src.Resume(p0)
		}()
		if got, err := r.src.Poll(ctx, 1); err != nil || len(got.Records) != 1 || !got.Records[0].Marker || got.Records[0].Offset != 5 {
			t.Errorf("once it flows again the poll gave %v, %v, want the mark", got.Records, err)
		}
	})
}
