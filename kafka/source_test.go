package kafka_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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

func TestRecordsComeWithAllTheirParts(t *testing.T) {
	c, cl, _ := fake(t, 1)
	at := time.UnixMilli(1700000000123)
	for _, r := range []*kgo.Record{
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("k"), Value: []byte("v"), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte{}}}},
	} {
		r.Topic = "in"
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	got := open(t, c).poll(t, 3)
	if got[0].Key != nil || got[0].Value != nil {
		t.Errorf("null key and value came as %q and %q", got[0].Key, got[0].Value)
	}
	if got[1].Key == nil || got[1].Value == nil {
		t.Errorf("empty key and value came as null: %#v", got[1])
	}
	r := got[2]
	if string(r.Key) != "k" || string(r.Value) != "v" || !r.Timestamp.Equal(at) || r.Offset != 2 || r.Topic != "in" || r.Marker {
		t.Errorf("got %+v", r)
	}
	if len(r.Headers) != 3 || r.Headers[0].Key != "a" || r.Headers[1].Key != "b" || r.Headers[1].Value != nil || r.Headers[2].Key != "a" || r.Headers[2].Value == nil {
		t.Errorf("headers %#v, want a, b with null, a with empty", r.Headers)
	}
}

func TestATransactionsEndIsAMarkerAndWhatItAbortedIsLeftOut(t *testing.T) {
	c, _, _ := fake(t, 1)
	transact(t, c, []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit}, func(i int) []*kgo.Record {
		return []*kgo.Record{kgo.StringRecord([]string{"aborted", "committed"}[i])}
	})
	var markers int
	var values []string
	for _, r := range open(t, c).poll(t, 3) {
		if r.Marker {
			markers++
		} else {
			values = append(values, string(r.Value))
		}
	}
	if markers != 2 || strings.Join(values, " ") != "committed" {
		t.Errorf("got values %q and %d markers, want the committed one and 2", values, markers)
	}
}

func TestRewindDeliversAgainAndForgetsWhatWasFetched(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 100)
	r := open(t, c)
	p := tp{Topic: "in"}
	for _, step := range []struct {
		to   int64
		want string
	}{{-1, "0 1 2"}, {0, "0 1 2"}, {0, "0 1 2"}, {50, "50 51 52"}, {2, "2 3 4"}, {5, "5 6 7"}, {8, "8 9 10"}} {
		if step.to >= 0 {
			r.src.Rewind(map[tp]int64{p: step.to, {Topic: "in", Partition: 9}: 3})
		}
		if got := text(r.poll(t, 3)); got != step.want {
			t.Fatalf("after Rewind to %d got %q, want %q", step.to, got, step.want)
		}
	}
}

func TestAPausedPartitionWaitsWhileOthersFlow(t *testing.T) {
	c, cl, _ := fake(t, 2)
	r := open(t, c)
	r.untilHeld(t, 2)
	r.src.Pause(tp{Topic: "in"})
	write(t, cl, "in", 0, 0, 5)
	write(t, cl, "in", 1, 10, 5)
	if got := text(r.poll(t, 5)); got != "10 11 12 13 14" {
		t.Fatalf("got %q", got)
	}
	r.nothing(t, 300*time.Millisecond)
	r.src.Resume(tp{Topic: "in"})
	if got := text(r.poll(t, 5)); got != "0 1 2 3 4" {
		t.Fatalf("after Resume got %q", got)
	}
}

func TestAPausedPartitionThatWasLostAndGivenBackFlows(t *testing.T) {
	c, cl, _ := fake(t, 1)
	r := open(t, c)
	r.untilHeld(t, 1)
	r.src.Pause(tp{Topic: "in"})
	refuse(c, kmsg.Heartbeat, kerr.UnknownMemberID, 1)
	r.until(t, "it was lost and given back", func(told string, held map[tp]int64) bool {
		return strings.Contains(told, "lost") && len(held) == 1
	})
	write(t, cl, "in", 0, 0, 3)
	if got := text(r.poll(t, 3)); got != "0 1 2" {
		t.Fatalf("got %q", got)
	}
}

func TestARevokeWaitsForTheStreamWhichMayStillCommit(t *testing.T) {
	c, _, adm := fake(t, 4)
	tenSeconds := func(cfg *kafka.SourceConfig) {
		cfg.Options = map[string]string{"heartbeat.interval.ms": "100", "metadata.max.age.ms": "200", "max.poll.interval.ms": "10000"}
	}
	first := open(t, c, tenSeconds)
	first.untilHeld(t, 4)
	var left time.Duration
	var failed error
	first.revoke = func(ctx context.Context, tps []tp) {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		offsets := map[tp]int64{}
		for _, at := range tps {
			offsets[at] = 7
		}
		failed = first.src.Commit(ctx, at(offsets))
	}
	second := open(t, c, tenSeconds)
	second.untilHeld(t, 2)
	if left <= 5*time.Second || left > 10*time.Second {
		t.Errorf("a revoke had %v left, want somewhat less than the 10s that the group gives", left)
	}
	if failed != nil {
		t.Errorf("committing while partitions are revoked: %v", failed)
	}
	for at, start := range second.held() {
		if start != 7 {
			t.Errorf("%v went on at %d, want 7", at, start)
		}
	}
	if got := committed(t, adm); len(got) != 4 {
		t.Errorf("committed %v, want all four partitions", got)
	}
	if len(first.held()) != 2 {
		t.Errorf("the first worker holds %v, want two", first.held())
	}
}

func TestCommitErrorsTellALostAssignmentFromTrouble(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   *kerr.Error
		count int
		lost  bool
		fine  bool
	}{
		{name: "unknown member", err: kerr.UnknownMemberID, count: 1, lost: true},
		{name: "old generation", err: kerr.IllegalGeneration, count: 1, lost: true},
		{name: "fenced instance", err: kerr.FencedInstanceID, count: 1, lost: true},
		{name: "no right", err: kerr.GroupAuthorizationFailed, count: 1},
		{name: "a rebalance that ends is waited for", err: kerr.RebalanceInProgress, count: 2, fine: true},
		{name: "a rebalance that does not end gives up with the context", err: kerr.RebalanceInProgress, count: -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _, adm := fake(t, 1)
			r := open(t, c)
			r.untilHeld(t, 1)
			refuse(c, kmsg.OffsetCommit, tt.err, tt.count)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := r.src.Commit(ctx, at(map[tp]int64{{Topic: "in"}: 5}))
			if lost := errors.Is(err, streammanager.ErrAssignmentLost); lost != tt.lost || (err == nil) != tt.fine {
				t.Fatalf("Commit = %v, want lost %v, nil %v", err, tt.lost, tt.fine)
			}
			if err != nil && !errors.Is(err, tt.err) {
				t.Errorf("Commit = %v, want the broker's error in it", err)
			}
			if at := committed(t, adm)[0]; tt.fine && at != 5 {
				t.Errorf("committed %d, want 5", at)
			}
		})
	}
}

func TestNothingIsCommittedForWhatIsNotHeld(t *testing.T) {
	c, _, adm := fake(t, 1)
	r := open(t, c)
	r.untilHeld(t, 1)
	err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 5, {Topic: "in", Partition: 3}: 5}))
	if !errors.Is(err, streammanager.ErrAssignmentLost) {
		t.Errorf("Commit = %v, want a lost assignment", err)
	}
	if at := committed(t, adm)[0]; at != 0 {
		t.Errorf("committed %d, want the start alone", at)
	}
}

// A commit that waits while the group is joined anew must not be sent for partitions that were lost.
func TestACommitThatWasOvertakenByALossIsNotSent(t *testing.T) {
	c, _, adm := fake(t, 1)
	r := open(t, c)
	r.untilHeld(t, 1)
	busy := refuse(c, kmsg.OffsetCommit, kerr.RebalanceInProgress, -1)
	done := make(chan error, 1)
	go func() { done <- r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 5})) }()
	if err := busy.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	refuse(c, kmsg.Heartbeat, kerr.UnknownMemberID, 1)
	r.until(t, "it was lost and given back", func(told string, held map[tp]int64) bool {
		return strings.Contains(told, "lost") && len(held) == 1
	})
	busy.Remove()
	if err := <-done; !errors.Is(err, streammanager.ErrAssignmentLost) {
		t.Errorf("Commit = %v, want a lost assignment", err)
	}
	if at := committed(t, adm)[0]; at != 0 {
		t.Errorf("committed %d, want 0", at)
	}
}

func TestAnOffsetOutOfRangeGoesOnByPolicy(t *testing.T) {
	for _, tt := range []struct {
		name, policy string
		from         int64
		want         string
		skipped      int64
		committed    int64
	}{
		{name: "earliest is the default", from: 2, want: "5 6", skipped: 3, committed: 5},
		{name: "latest", policy: kafka.Latest, from: 2, want: "10 11", skipped: 8, committed: 10},
		{name: "behind the end", from: 40, want: "5 6", committed: 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, cl, adm := fake(t, 1)
			write(t, cl, "in", 0, 0, 10)
			if err := c.DeleteRecords("in", 0, 5); err != nil {
				t.Fatal(err)
			}
			put(t, adm, 0, tt.from)
			r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.OutOfRange = tt.policy })
			var later sync.WaitGroup
			later.Go(func() {
				eventually(t, "the skip is logged", func() bool { return r.log.count("out of range") == 1 })
				write(t, cl, "in", 0, 10, 2)
			})
			marks := 0
			if tt.skipped > 0 {
				marks = 1 // of the place up to which it was passed over
			}
			if got := r.poll(t, marks+2); text(got[marks:]) != tt.want || marks > 0 && !got[0].Marker {
				t.Errorf("got %q (mark first: %v), want %d mark and %q", text(got), got[0].Marker, marks, tt.want)
			}
			later.Wait()
			if got := r.src.Skipped(); got != tt.skipped {
				t.Errorf("Skipped = %d, want %d", got, tt.skipped)
			}
			if got := committed(t, adm)[0]; got != tt.committed {
				t.Errorf("committed %d, want %d", got, tt.committed)
			}
			if tt.from == 40 {
				if got := r.held()[tp{Topic: "in"}]; got != 5 {
					t.Errorf("the stream was told of offset %d, want 5", got)
				}
			}
		})
	}
}

func TestAnOffsetOutOfRangeEndsThePipelineWhereThePolicyIsFail(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	if err := c.DeleteRecords("in", 0, 5); err != nil {
		t.Fatal(err)
	}
	put(t, adm, 0, 2)
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.OutOfRange = kafka.Fail })
	_, err := r.src.Poll(t.Context(), 10)
	var fatal *event.FatalError
	if !errors.As(err, &fatal) || !strings.Contains(err.Error(), `topic "in" partition 0: offset 2 is out of range: the log holds 5 to 10`) {
		t.Errorf("Poll = %v", err)
	}
}

// The records that took the place of lost ones have offsets that the stream has seen already.
func TestRecordsThatReplaceLostOnesAreDelivered(t *testing.T) {
	c, cl, _ := fake(t, 1, kfake.NumBrokers(3))
	write(t, cl, "in", 0, 0, 10)
	r := open(t, c)
	r.poll(t, 10)
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		resp.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: "in", Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{{EndOffset: 6}}}}
		return resp, nil, true
	})
	if err := c.MoveTopicPartition("in", 0, (c.LeaderFor("in", 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	if got := text(r.poll(t, 4)); got != "6 7 8 9" {
		t.Errorf("got %q", got)
	}
	if got := r.held()[tp{Topic: "in"}]; got != 6 || !strings.HasSuffix(r.heard(), "lost 1, assigned 1") {
		t.Errorf("the stream was told %q, start %d, want the loss and a start at 6", r.heard(), got)
	}
	if r.log.count("lost records") != 1 {
		t.Error("the loss was not logged")
	}
}

func TestTheEndOfTheLogComesWithTheRecords(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	r := open(t, c)
	got, err := r.src.Poll(t.Context(), 3)
	if err != nil || len(got.Records) != 3 || got.HighWatermarks[tp{Topic: "in"}] != 10 {
		t.Errorf("Poll = %d records, ends %v, %v, want 3 and 10", len(got.Records), got.HighWatermarks, err)
	}
}

func TestAStaticMemberThatIsFencedSaysWhy(t *testing.T) {
	c, _, _ := fake(t, 1)
	same := func(cfg *kafka.SourceConfig) {
		cfg.Options = map[string]string{"group.instance.id": "a", "heartbeat.interval.ms": "100"}
	}
	first := open(t, c, same)
	first.untilHeld(t, 1)
	open(t, c, same)
	_, err := first.src.Poll(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "group.instance.id") {
		t.Errorf("Poll = %v, want a word about group.instance.id", err)
	}
}

func TestCloseTellsNothingAndGivesPartitionsBack(t *testing.T) {
	c, _, _ := fake(t, 2)
	first, second := open(t, c), (*record)(nil)
	first.untilHeld(t, 2)
	before := first.heard()
	first.src.Close(context.Background())
	first.src.Close(context.Background())
	if got := first.heard(); got != before {
		t.Errorf("Close told %q", strings.TrimPrefix(got, before))
	}
	if _, err := first.src.Poll(t.Context(), 1); err == nil {
		t.Error("Poll after Close gave no error")
	}
	second = open(t, c)
	second.untilHeld(t, 2)
}
