package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// ranged reads from start until an end.
func ranged(start, until string) func(*kafka.SourceConfig) {
	return func(cfg *kafka.SourceConfig) { cfg.Start, cfg.Until = start, until }
}

// toTheEnd polls up to io.EOF, commits behind each poll, and returns the values.
func toTheEnd(t *testing.T, r *record) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var values []string
	for {
		got, err := r.src.Poll(ctx, 3)
		if errors.Is(err, io.EOF) {
			return strings.Join(values, " ")
		}
		if err != nil {
			t.Fatalf("Poll after %q: %v; logged %s", values, err, r.log.text.String())
		}
		to := map[tp]streammanager.Position{}
		for _, rec := range got.Records {
			to[tp{Topic: rec.Topic, Partition: rec.Partition}] = streammanager.Position{Offset: rec.Offset + 1}
			if !rec.Marker {
				values = append(values, string(rec.Value))
			}
		}
		if err := r.src.Commit(ctx, to); err != nil {
			t.Fatal(err)
		}
	}
}

// writeAt produces records whose values are hours, and so are their times, after the first of 2020.
func writeAt(t *testing.T, cl *kgo.Client, partition int32, hours ...int) {
	t.Helper()
	for _, h := range hours {
		r := &kgo.Record{Topic: "in", Partition: partition, Value: []byte(strconv.Itoa(h)), Timestamp: hour(h)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func hour(h int) time.Time { return time.Date(2020, 1, 1, h, 0, 0, 0, time.UTC) }

func TestABoundedReadTakesWhatLiesBetweenItsMoments(t *testing.T) {
	for name, tt := range map[string]struct{ start, until, want string }{
		"all of now":            {"earliest", "latest", "1 2 3 5 8"},
		"up to a time":          {"earliest", "2020-01-01T03:00:00Z", "1 2"},
		"from a time":           {"2020-01-01T03:00:00Z", "latest", "3 5 8"},
		"between times":         {"2020-01-01T02:00:00+00:00", "2020-01-01T06:00:00Z", "2 3 5"},
		"milliseconds":          {strconv.FormatInt(hour(2).UnixMilli(), 10), strconv.FormatInt(hour(4).UnixMilli(), 10), "2 3"},
		"an age":                {"-" + time.Since(hour(4)).Truncate(time.Second).String(), "latest", "5 8"},
		"nothing in it":         {"2020-01-01T06:00:00Z", "2020-01-01T07:00:00Z", ""},
		"behind all":            {"2021-01-01T06:00:00Z", "latest", ""},
		"before all":            {"2019-01-01T06:00:00Z", "2019-01-02T07:00:00Z", ""},
		"an end behind all":     {"earliest", "2022-01-01T00:00:00Z", "1 2 3 5 8"},
		"a start before it all": {"2019-01-01T00:00:00Z", "2020-01-01T02:00:00Z", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, cl, adm := fake(t, 2)
			writeAt(t, cl, 0, 1, 2, 3, 5, 8)
			r := open(t, c, ranged(tt.start, tt.until))
			r.untilHeld(t, 2)
			writeAt(t, cl, 0, 9) // too late
			writeAt(t, cl, 1, 9)
			if got := toTheEnd(t, r); got != tt.want {
				t.Errorf("read %q, want %q", got, tt.want)
			}
			before := committed(t, adm)
			r.src.Close(context.Background())

			again := open(t, c, ranged(tt.start, tt.until))
			if got := toTheEnd(t, again); got != "" {
				t.Errorf("a second run read %q", got)
			}
			if n := again.log.count("nothing is left to read"); n != 1 {
				t.Errorf("the second run says %d times that there is nothing left: %s", n, again.log.text.String())
			}
			if after := committed(t, adm); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the second run committed %v, before it was %v", after, before)
			}
		})
	}
}

func TestTheEndIsKeptAcrossAStop(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 6)
	r := open(t, c, ranged("earliest", "latest"))
	if got := text(r.poll(t, 2)); got != "0 1" {
		t.Fatal(got)
	}
	if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 2})); err != nil {
		t.Fatal(err)
	}
	r.src.Close(context.Background())
	write(t, cl, "in", 0, 6, 4)
	again := open(t, c, ranged("earliest", "latest"))
	if got := toTheEnd(t, again); got != "2 3 4 5" {
		t.Errorf("read %q, want the rest up to the end of the first start", got)
	}
	again.src.Close(context.Background())
	// Another end is another read, which goes on where that one came to.
	later := open(t, c, ranged("earliest", time.Now().Add(-time.Millisecond).Format(time.RFC3339Nano)))
	if got := toTheEnd(t, later); got != "6 7 8 9" {
		t.Errorf("read %q, want what lies up to the later end", got)
	}
}

func TestAnEndWithoutARecordIsMet(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 2)
	transact(t, c, []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort}, func(i int) []*kgo.Record {
		return []*kgo.Record{{Topic: "in", Value: fmt.Append(nil, "tx", i)}, {Topic: "in", Value: fmt.Append(nil, "ty", i)}}
	})
	r := open(t, c, ranged("earliest", "latest"), func(cfg *kafka.SourceConfig) {
		cfg.Options = map[string]string{"isolation.level": "read_committed", "heartbeat.interval.ms": "100"}
	})
	if got := toTheEnd(t, r); got != "0 1 tx0 ty0" {
		t.Errorf("read %q", got)
	}
	if got := committed(t, adm)[0]; got != 8 {
		t.Errorf("committed %d, want 8: behind the mark of the transaction that was aborted", got)
	}
}

func TestWhatIsGoneUpToTheEndIsCountedAndTheEndMet(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 6)
	r := open(t, c, ranged("earliest", "latest"))
	r.untilHeld(t, 1)
	r.src.Close(context.Background())
	write(t, cl, "in", 0, 6, 6)
	if err := c.DeleteRecords("in", 0, 9); err != nil {
		t.Fatal(err)
	}
	again := open(t, c, ranged("earliest", "latest"))
	if got := toTheEnd(t, again); got != "" {
		t.Errorf("read %q, want nothing: all of it is gone", got)
	}
	if got := committed(t, adm)[0]; got != 6 || again.src.Skipped() != 6 {
		t.Errorf("committed %d and skipped %d, want 6 and 6", got, again.src.Skipped())
	}
}

func TestAnOffsetOutsideOfTheRangeIsRefusedInWordsUnlessForced(t *testing.T) {
	for _, outside := range []int64{1, 5} {
		c, cl, adm := fake(t, 1)
		writeAt(t, cl, 0, 1, 2, 3, 4, 5, 6)
		put(t, adm, 0, outside)
		set := ranged("2020-01-01T03:00:00Z", "2020-01-01T05:00:00Z")
		r := open(t, c, set)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := r.src.Poll(ctx, 10)
		cancel()
		var fatal *event.FatalError
		if !errors.As(err, &fatal) {
			t.Fatalf("Poll = %v, want a fatal error", err)
		}
		for _, part := range []string{`topic "in" partition 0`, `group "g"`, fmt.Sprintf("committed offset %d", outside), "2 to 4", "start: {at: 2020-01-01T03:00:00Z, force: true}"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		r.src.Close(context.Background())
		if got := committed(t, adm)[0]; got != outside {
			t.Errorf("committed %d, want %d as it was", got, outside)
		}

		forced := open(t, c, set, func(cfg *kafka.SourceConfig) { cfg.Force = true })
		if got := toTheEnd(t, forced); got != "3 4" {
			t.Errorf("read %q, want 3 4", got)
		}
		forced.src.Close(context.Background())
		again := open(t, c, set, func(cfg *kafka.SourceConfig) { cfg.Force = true })
		if got := toTheEnd(t, again); got != "" {
			t.Errorf("a second run with force read %q, want nothing: its offset lies inside", got)
		}
		again.src.Close(context.Background())
	}
}

func TestAnOffsetInsideOfTheRangeIsWhereItGoesOn(t *testing.T) {
	c, cl, adm := fake(t, 1)
	writeAt(t, cl, 0, 1, 2, 3, 4, 5, 6)
	put(t, adm, 0, 3)
	r := open(t, c, ranged("2020-01-01T03:00:00Z", "2020-01-01T05:00:00Z"))
	if got := toTheEnd(t, r); got != "4" {
		t.Errorf("read %q, want 4", got)
	}
}

func TestPartitionsAddedAfterABoundedReadBeganAreNoPartOfIt(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 4)
	r := open(t, c, ranged("earliest", "latest"))
	r.untilHeld(t, 1)
	r.src.Close(context.Background())
	if _, err := adm.CreatePartitions(t.Context(), 1, "in"); err != nil {
		t.Fatal(err)
	}
	fresh, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	write(t, fresh, "in", 1, 50, 3)
	again := open(t, c, ranged("earliest", "latest"))
	if got := toTheEnd(t, again); got != "0 1 2 3" {
		t.Errorf("read %q", got)
	}
	if again.log.count("no part of it") == 0 {
		t.Error("it is not said")
	}
	if at, ok := committed(t, adm)[1]; ok {
		t.Errorf("committed %d for the partition that was added", at)
	}
}

func TestWorkersOfABoundedReadEndWhenAllHaveComeToTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(dial), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		adm := kadm.NewClient(cl)
		if added, err := adm.CreatePartitions(t.Context(), 1, "in"); err != nil || added.Error() != nil {
			t.Fatal(errors.Join(err, added.Error()))
		}
		write(t, cl, "in", 0, 0, 4)
		write(t, cl, "in", 1, 100, 4)
		worker := func() *record {
			return open(t, nil, ranged("earliest", "latest"), func(cfg *kafka.SourceConfig) { cfg.Brokers, cfg.Dialer = []string{"127.0.0.1:9092"}, dial })
		}
		all := []*record{worker(), worker(), worker()}
		for _, r := range all {
			defer r.src.Close(context.Background())
		}
		var idle *record
		var busy []*record
		eventually(t, "two of three have a partition each", func() bool {
			g := c.GroupInfo("g")
			busy = nil
			for _, r := range all {
				switch len(r.held()) {
				case 1:
					busy = append(busy, r)
				case 0:
					idle = r
				}
			}
			return g != nil && len(g.Members) == 3 && g.State == "Stable" && len(busy) == 2
		})
		ended := make(chan string, 2)
		go func() { ended <- toTheEnd(t, idle) }()
		go func() { ended <- toTheEnd(t, busy[0]) }()
		wait(15 * time.Second)
		select {
		case got := <-ended:
			t.Fatalf("a worker ended with %q while another has not come to its end", got)
		default:
		}
		rebalances := len(c.GroupInfo("g").Members)
		own := toTheEnd(t, busy[1])
		got := []string{own, <-ended, <-ended}
		if n := len(strings.Fields(strings.Join(got, " "))); n != 8 || rebalances != 3 {
			t.Errorf("read %q with %d members, want 8 records in all and nobody gone before", got, rebalances)
		}
		if at := committed(t, adm); at[0] != 4 || at[1] != 4 {
			t.Errorf("committed %v", at)
		}
	})
}

func TestAPositionSetBackReadsUpToTheEndAgain(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 4)
	r := open(t, c, ranged("earliest", "latest"))
	r.untilHeld(t, 1)
	write(t, cl, "in", 0, 4, 4)
	if got := text(r.poll(t, 4)); got != "0 1 2 3" {
		t.Fatal(got)
	}
	r.src.Rewind(map[tp]int64{{Topic: "in"}: 2})
	if got := toTheEnd(t, r); got != "2 3" {
		t.Errorf("read %q after going back, want 2 3", got)
	}
}

// A log that was cut below where the read has come to is read again from where out_of_range says, but never from before
// the start.
func TestABoundedReadOfALogThatWasCutBeginsNoEarlierThanItsStart(t *testing.T) {
	c, cl, _ := fake(t, 1)
	writeAt(t, cl, 0, 1, 2, 3, 4, 5, 6)
	r := open(t, c, ranged("2020-01-01T03:00:00Z", "latest"))
	if got := text(r.poll(t, 4)); got != "3 4 5 6" {
		t.Fatal(got)
	}
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.Offset = 4 // the end, where 6 are read
		if req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp == -2 {
			part.Offset = 0
		}
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic, topic.Partitions = "in", append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	r.src.Rewind(map[tp]int64{{Topic: "in"}: 5})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange, Count: 1})
	if got := text(r.poll(t, 4)); got != "3 4 5 6" {
		t.Errorf("read %q again, want what lies behind the start", got)
	}
}

func TestAReadThatIsDoneEndsAlsoWhileItsWorkerIsStillJoining(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 3)
	r := open(t, c, ranged("earliest", "latest"))
	toTheEnd(t, r)
	r.src.Close(context.Background())
	joining := make(chan struct{})
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-joining })
		return nil, nil, false
	})
	again := open(t, c, ranged("earliest", "latest"))
	if got := toTheEnd(t, again); got != "" {
		t.Errorf("read %q", got)
	}
	if n := again.log.count("nothing is left to read"); n != 1 {
		t.Errorf("it says %d times that there is nothing left: %s", n, again.log.text.String())
	}
	close(joining)
	again.src.Close(context.Background())
}
