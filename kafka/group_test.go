package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

func TestWhatIsPolledIsNotCommittedByItself(t *testing.T) {
	bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
		_, r, sink := ends(t, dial, nil)
		for i := range 4 {
			if err := sink.send(t, streammanager.Record{Value: fmt.Append(nil, i)})[0]; err != nil {
				t.Fatal(err)
			}
			r.poll(t, 1)
			wait(30 * time.Second)
		}
		r.src.Close(context.Background())
		_, next, _ := ends(t, dial, nil)
		defer next.src.Close(context.Background())
		if got := text(next.poll(t, 4)); got != "0 1 2 3" || next.held()[tp{Topic: "in"}] != 0 {
			t.Errorf("the next worker began with %q at %v", got, next.held())
		}
	})
}

func TestWhatWasFetchedBeforeALossIsNotDeliveredAfterIt(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 100)
	r := open(t, c)
	if got := text(r.poll(t, 3)); got != "0 1 2" {
		t.Fatalf("got %q", got)
	}
	refuse(c, kmsg.Heartbeat, kerr.UnknownMemberID, 1)
	r.until(t, "it was lost and given back", func(told string, held map[tp]int64) bool {
		return strings.Contains(told, "lost") && len(held) == 1
	})
	if got := text(r.poll(t, 3)); got != "0 1 2" {
		t.Errorf("went on with %q, want what was not committed", got)
	}
}

// slow has heartbeats so rare that only a commit can tell that the group has forgotten a worker.
func slow(cfg *kafka.SourceConfig) {
	cfg.Options = map[string]string{"heartbeat.interval.ms": "40000", "max.poll.interval.ms": "90000"}
}

// forget has the group forget its members, as after an outage that lasted longer than their sessions.
func forget(t *testing.T, c *kfake.Cluster, cl *kgo.Client) {
	t.Helper()
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = "g"
	for _, m := range c.GroupInfo("g").Members {
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		leave.Members = append(leave.Members, member)
	}
	if _, err := leave.RequestWith(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkerThatTheGroupForgotBeginsAnewAtOnce(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	r := open(t, c, slow)
	r.poll(t, 10)
	p := tp{Topic: "in"}
	if err := r.src.Commit(t.Context(), at(map[tp]int64{p: 4})); err != nil {
		t.Fatal(err)
	}
	forget(t, c, cl)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	polled := make(chan string, 1)
	go func() { // waits already when the commit fails
		got, err := r.src.Poll(ctx, 2)
		polled <- fmt.Sprint(text(got.Records), err)
	}()
	if err := r.src.Commit(t.Context(), at(map[tp]int64{p: 5})); !errors.Is(err, streammanager.ErrAssignmentLost) {
		t.Fatalf("Commit = %v, want a lost assignment", err)
	}
	if got := <-polled; got != "4 5<nil>" {
		t.Errorf("Poll = %q, want to go on where the group has committed", got)
	}
	if got := r.heard(); !strings.HasPrefix(got, "assigned 1, lost 1, assigned 1") || r.held()[p] != 4 {
		t.Errorf("the stream was told %q, start %d", got, r.held()[p])
	}
	eventually(t, "it commits again", func() bool { // it is taken in as another member, and begins anew once more for that
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, _ = r.src.Poll(soon, 1)
		return r.src.Commit(t.Context(), at(map[tp]int64{p: 6})) == nil
	})
	if at := committed(t, adm)[0]; at != 6 {
		t.Errorf("committed %d, want 6", at)
	}
}

func TestABoundedReadThatTheGroupForgotAtItsEndGoesOnAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := writer(t, c, dial)
		defer cl.Close()
		write(t, cl, "in", 0, 0, 10)
		r := open(t, c, slow, ranged("earliest", "latest"), func(cfg *kafka.SourceConfig) { cfg.Dialer = dial })
		defer r.src.Close(context.Background())
		r.poll(t, 10)
		if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 4})); err != nil {
			t.Fatal(err)
		}
		forget(t, c, cl)
		if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 5})); !errors.Is(err, streammanager.ErrAssignmentLost) {
			t.Fatalf("Commit = %v, want a lost assignment", err)
		}
		began := time.Now()
		got, err := r.src.Poll(t.Context(), 2)
		if took := time.Since(began); err != nil || text(got.Records) != "4 5" || took > 10*time.Second {
			t.Errorf("after %v the poll gave %q, %v; want what was not committed, at once", took, text(got.Records), err)
		}
	})
}

func TestAWorkerThatTheGroupForgotCommitsNothingForTheNextOwner(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	first := open(t, c, slow)
	first.poll(t, 5)
	forget(t, c, cl)
	second := open(t, c, slow)
	second.poll(t, 10)
	p := tp{Topic: "in"}
	if err := second.src.Commit(t.Context(), at(map[tp]int64{p: 7})); err != nil {
		t.Fatal(err)
	}
	first.revoke = func(context.Context, []tp) { t.Error("the first was asked to finish what another owns already") }
	eventually(t, "the first was told of the loss", func() bool {
		told := first.heard() == "assigned 1, lost 1"
		if err := first.src.Commit(t.Context(), at(map[tp]int64{p: 3})); !errors.Is(err, streammanager.ErrAssignmentLost) {
			t.Errorf("Commit = %v, want a lost assignment", err)
		}
		return told
	})
	if at := committed(t, adm)[0]; at != 7 {
		t.Errorf("committed %d, want 7", at)
	}
}

// takenAway returns two workers at one partition: the group has forgotten the first, which has begun it anew and not heard yet that
// it joins as another member, and the second has it, and has committed offset 7.
func takenAway(t *testing.T) (first, second *record, adm *kadm.Client) {
	t.Helper()
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 10)
	first = open(t, c, slow)
	first.poll(t, 5)
	forget(t, c, cl)
	second = open(t, c)
	second.poll(t, 10)
	p := tp{Topic: "in"}
	first.revoke = func(context.Context, []tp) { t.Error("the first was asked to finish what another owned") }
	if err := first.src.Commit(t.Context(), at(map[tp]int64{p: 2})); !errors.Is(err, streammanager.ErrAssignmentLost) {
		t.Fatalf("Commit = %v, want a lost assignment", err)
	}
	first.poll(t, 5)
	if got := first.heard(); got != "assigned 1, lost 1, assigned 1" {
		t.Fatalf("the first was told %q, want that it begins anew", got)
	}
	if err := second.src.Commit(t.Context(), at(map[tp]int64{p: 7})); err != nil {
		t.Fatal(err)
	}
	return first, second, adm
}

// commitsNothing has a commit of the worker, once it has joined, and whatever follows leave offset 7 as it is.
func (r *record) commitsNothing(t *testing.T, adm *kadm.Client, follows func()) {
	t.Helper()
	if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 3})); !errors.Is(err, streammanager.ErrAssignmentLost) {
		t.Errorf("Commit = %v, want a lost assignment", err)
	}
	follows()
	if at := committed(t, adm)[0]; at != 7 {
		t.Errorf("committed %d, want 7", at)
	}
}

// It has begun anew what another owns by then, and its next commit waits while it joins. The group, which knows it again,
// would take that before it has heard what it has.
func TestAWorkerThatJoinsAsAnotherMemberCommitsNothingForTheNextOwner(t *testing.T) {
	first, _, adm := takenAway(t)
	first.commitsNothing(t, adm, func() {
		first.until(t, "it is told of the loss", func(told string, _ map[tp]int64) bool { return strings.HasSuffix(told, "assigned 1, lost 1") })
	})
}

// The same, where the other has left again by then: the group gives the worker as another member what it held before, and the
// library keeps that without a word.
func TestAWorkerThatJoinsAsAnotherMemberBeginsAnewWhatItKeeps(t *testing.T) {
	first, second, adm := takenAway(t)
	second.src.Close(t.Context())
	first.commitsNothing(t, adm, func() {
		first.poll(t, 3)
		first.until(t, "it begins at what is committed", func(_ string, at map[tp]int64) bool { return at[tp{Topic: "in"}] == 7 })
	})
}

// A worker whose batches take long does not poll, and must not hold up the group.
func TestAWorkerThatDoesNotPollGivesPartitionsAwayAndKeepsTheRest(t *testing.T) {
	c, cl, _ := fake(t, 4)
	for p := range int32(4) {
		write(t, cl, "in", p, int(p)*10, 1)
	}
	first := open(t, c)
	first.poll(t, 4)
	second := open(t, c)
	second.untilHeld(t, 2)
	second.poll(t, 2)
	first.untilHeld(t, 2)
	if got := first.heard(); got != "assigned 4, revoked 2" {
		t.Errorf("the first was told %q, want that the others stay undisturbed", got)
	}
	for p := range int32(4) {
		write(t, cl, "in", p, int(p)*10+1, 1)
	}
	for name, r := range map[string]*record{"first": first, "second": second} {
		for _, rec := range r.poll(t, 2) {
			if _, mine := r.held()[tp{Topic: "in", Partition: rec.Partition}]; !mine || !strings.HasSuffix(string(rec.Value), "1") {
				t.Errorf("the %s got %q of partition %d", name, rec.Value, rec.Partition)
			}
		}
	}
}

// A commit that gives up while the group rebalances must leave nothing behind that others wait for.
func TestACommitThatGivesUpInARebalanceHoldsUpNobody(t *testing.T) {
	c, cl, adm := fake(t, 2)
	write(t, cl, "in", 0, 0, 3)
	write(t, cl, "in", 1, 10, 3)
	first := open(t, c)
	first.poll(t, 6)
	revoking := make(chan struct{})
	first.revoke = func(ctx context.Context, tps []tp) {
		close(revoking)
		for range 50 {
			brief, cancel := context.WithTimeout(ctx, time.Millisecond)
			_ = first.src.Commit(brief, at(map[tp]int64{tps[0]: 2})) // kept or not, as time allows
			cancel()
		}
		if err := first.src.Commit(ctx, at(map[tp]int64{tps[0]: 2})); err != nil {
			t.Errorf("a commit with time enough: %v", err)
		}
	}
	second := open(t, c)
	<-revoking
	second.untilHeld(t, 1)
	if got := second.poll(t, 1); string(got[0].Value) != fmt.Sprint(got[0].Partition*10+2) {
		t.Errorf("the second began with %q of partition %d, want what was not committed", got[0].Value, got[0].Partition)
	}
	for p := range first.held() {
		brief, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		if err := first.src.Commit(brief, at(map[tp]int64{p: 1})); err == nil {
			t.Error("a commit without time was kept")
		}
		cancel()
		write(t, cl, "in", p.Partition, 100, 1)
		if got := text(first.poll(t, 1)); got != "100" {
			t.Errorf("the first went on with %q, want 100", got)
		}
		if err := first.src.Commit(t.Context(), at(map[tp]int64{p: 3})); err != nil || committed(t, adm)[p.Partition] != 3 {
			t.Errorf("the first commits: %v, committed %v", err, committed(t, adm))
		}
	}
}

func TestWorkersThatComeAndGoInQuickSuccessionLeaveNoPartitionUnread(t *testing.T) {
	c, cl, _ := fake(t, 6)
	rs := []*record{open(t, c)}
	for round := range 6 {
		rs = append(rs, open(t, c))
		if round%2 == 0 {
			eventually(t, "it is a member", func() bool { g := c.GroupInfo("g"); return g != nil && len(g.Members) >= 2 })
		}
		rs = append(rs, open(t, c))
		rs[0].src.Close(context.Background())
		rs = rs[1:]
	}
	for p := range int32(6) {
		write(t, cl, "in", p, int(p), 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	values := make(chan string)
	for _, r := range rs {
		go func() {
			for {
				got, err := r.src.Poll(ctx, 10)
				if err != nil {
					return
				}
				for _, rec := range got.Records {
					select {
					case values <- string(rec.Value):
					case <-ctx.Done():
						return
					}
				}
			}
		}()
	}
	seen := map[string]bool{}
	for len(seen) < 6 {
		select {
		case v := <-values:
			seen[v] = true
		case <-ctx.Done():
			t.Fatalf("read %v of six partitions", seen)
		}
	}
}

func TestAWorkerComesBackAfterTroubleWithItsCoordinator(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.IllegalGeneration} {
		t.Run(err.Message, func(t *testing.T) {
			c, cl, _ := fake(t, 2)
			r := open(t, c)
			r.untilHeld(t, 2)
			for _, key := range []kmsg.Key{kmsg.Heartbeat, kmsg.FindCoordinator, kmsg.OffsetFetch} {
				refuse(c, key, err, 3)
			}
			write(t, cl, "in", 0, 0, 1)
			write(t, cl, "in", 1, 1, 1)
			r.poll(t, 2)
			eventually(t, "offsets can be committed", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				return r.src.Commit(ctx, at(map[tp]int64{{Topic: "in"}: 1, {Topic: "in", Partition: 1}: 1})) == nil
			})
			if got := fmt.Sprint(len(r.held()), r.src.Health()); got != "2 <nil>" {
				t.Errorf("it holds and is %s", got)
			}
		})
	}
}
