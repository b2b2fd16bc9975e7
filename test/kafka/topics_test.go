//go:build unix

package kafka_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// The source's topic is deleted and made again while the pipeline runs, with records that it cannot have seen yet.
func TestATopicThatIsMadeAgainIsReadFromItsFirstRecord(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	makeTopic(t, c, p.in, 2)
	makeTopic(t, c, p.out, 1)
	makeTopic(t, c, p.errors, 1)
	in := p.run(t, c, "source.kafka.start=latest")
	in.ready()
	put(t, c, p.in, 0, numbers(0, 50)...)
	in.emitted(50)
	waitFor(t, "all is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 50 }) // of a topic that is gone nothing can be
	p.books.delete(t, p.in)
	makeTopic(t, c, p.in, 3)
	for partition := range int32(3) {
		put(t, c, p.in, partition, numbers(100*int(partition+1), 20)...)
	}
	in.emitted(50 + 60)
	got := written(t, c, p.out)
	for partition := range 3 {
		for _, v := range numbers(100*(partition+1), 20) {
			if got[v] != 1 {
				t.Errorf("event %s of the new topic was written %d times", v, got[v])
			}
		}
	}
	if in.said("deleted and made again") == 0 || in.counted("enricher_stalls_total", "reason=topic") == 0 {
		t.Error("it was not said and counted")
	}
	if n := in.counted("enricher_restarts_total", "pipeline="+p.group); n != 0 {
		t.Errorf("the pipeline was started again %v times", n)
	}
	waitFor(t, "the new offsets are committed", func() bool { return offset(t, c, p.group, p.in, 2) == 20 })
	in.ready()
}

// The sink's topic is deleted and made again while the pipeline writes to it.
func TestASinkGoesOnWithATopicThatWasMadeAgain(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	makeTopic(t, c, p.in, 1)
	makeTopic(t, c, p.out, 1)
	makeTopic(t, c, p.errors, 1)
	in := p.run(t, c)
	put(t, c, p.in, 0, numbers(0, 50)...)
	in.emitted(50)
	// What it sends to the topic that is gone is refused once, with all that is under way.
	p.books.differs = differences{rewinds: between(1, 2), each: 150}
	p.books.delete(t, p.out)
	makeTopic(t, c, p.out, 2)
	for i := 50; i < 200; i += 10 { // the first of them may be written before the change is seen
		put(t, c, p.in, 0, numbers(i, 10)...)
	}
	in.emitted(200)
	waitFor(t, "all is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 200 })
	got := written(t, c, p.out)
	for _, v := range numbers(50, 150) {
		if got[v] == 0 {
			t.Errorf("event %s is lost", v)
		}
	}
	in.ready()
	if in.said("deleted and made again") == 0 || in.counted("enricher_stalls_total", "reason=topic") == 0 {
		t.Error("it was not said and counted")
	}
	if n := in.counted("enricher_restarts_total", "pipeline="+p.group); n != 0 {
		t.Errorf("the pipeline was started again %v times", n)
	}
}

// topics makes the topics of a test.
func (p places) topics(t *testing.T, c *cluster.Cluster, partitions int32, outConfigs ...string) {
	t.Helper()
	makeTopic(t, c, p.in, partitions)
	makeTopic(t, c, p.out, 1, outConfigs...)
	makeTopic(t, c, p.errors, 1)
}

// Retention takes records that were not read yet, before the first and while the worker is away.
func TestRecordsThatRetentionHasTakenAreCountedAndPassedOver(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	p.topics(t, c, 1)
	in := p.run(t, c)
	put(t, c, p.in, 0, numbers(0, 20)...)
	in.emitted(20)
	must(t, in.stop())
	put(t, c, p.in, 0, numbers(20, 40)...)
	deleteBefore(t, c, p.in, 0, 50)

	in = p.run(t, c)
	in.emitted(10)
	waitFor(t, "what is left is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 60 })
	if n := in.counted("enricher_source_skipped_total", "pipeline="+p.group); n != 30 {
		t.Errorf("%v records were counted as gone, want 30", n)
	}
	if in.said("offset out of range, going on elsewhere") != 1 || in.said("partition=0 offset=20 first=50 last=60") != 1 {
		t.Error("it was not said once, with the offsets")
	}
	in.ready()
	must(t, in.stop())

	put(t, c, p.in, 0, numbers(60, 10)...)
	deleteBefore(t, c, p.in, 0, 65)
	p.books.differs = differences{early: true}
	in = p.run(t, c, "source.kafka.out_of_range=fail")
	waitFor(t, "the pipeline ends", func() bool { return in.ended() })
	err := in.stop()
	var fatal *event.FatalError
	if !errors.As(err, &fatal) || !strings.Contains(err.Error(), "offset 60 is out of range: the log holds 65 to 70") {
		t.Errorf("under out_of_range: fail it ended with %v", err)
	}
	if n := in.counted("enricher_restarts_total", "pipeline="+p.group); n != 0 {
		t.Errorf("it was started again %v times", n)
	}
}

func deleteBefore(t *testing.T, c *cluster.Cluster, topic string, partition int32, at int64) {
	t.Helper()
	var to kadm.Offsets
	to.AddOffset(topic, partition, at, -1)
	done, err := c.Admin.DeleteRecords(t.Context(), to)
	must(t, errors.Join(err, done.Error()))
}

// An admin moves the group's offsets, which brokers take while no worker runs.
func TestOffsetsThatAnAdminResetsAreWhereItGoesOn(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	p.topics(t, c, 1)
	put(t, c, p.in, 0, numbers(0, 30)...)
	in := p.run(t, c)
	in.emitted(30)
	waitFor(t, "all is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 30 })
	if err := reset(t, c, p, 5); err == nil {
		t.Error("the broker took offsets from outside while a worker ran")
	}
	must(t, in.stop())
	for _, to := range []int64{10, 25} { // back, and on from there to nearly the end
		must(t, reset(t, c, p, to))
		in = p.run(t, c)
		in.emitted(30 - to)
		waitFor(t, "all is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 30 })
		if n := in.runs.Status().Read; n != 30-to {
			t.Errorf("from offset %d it read %d records, want %d", to, n, 30-to)
		}
		must(t, in.stop())
	}
	must(t, reset(t, c, p, 1000)) // behind the end of the log
	in = p.run(t, c)
	in.emitted(30)
	if in.said("offset out of range, going on elsewhere") != 1 {
		t.Error("an offset behind the end was not said")
	}
	waitFor(t, "all is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 30 })
	in.ready()
}

func reset(t *testing.T, c *cluster.Cluster, p places, to int64) error {
	t.Helper()
	var o kadm.Offsets
	o.AddOffset(p.in, 0, to, -1)
	return c.Admin.CommitAllOffsets(within(t, patience), p.group, o)
}

func TestPartitionsThatAreAddedAreReadFromTheirFirstRecord(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	p.topics(t, c, 1)
	in := p.run(t, c, "source.kafka.start=latest")
	in.ready()
	put(t, c, p.in, 0, numbers(0, 5)...)
	in.emitted(5)
	more, err := c.Admin.UpdatePartitions(t.Context(), 4, p.in)
	must(t, errors.Join(err, more.Error()))
	for partition := range int32(4) {
		put(t, c, p.in, partition, numbers(100*int(partition+1), 5)...)
	}
	in.emitted(25)
	for v, n := range written(t, c, p.out) {
		if n != 1 {
			t.Errorf("event %s was written %d times", v, n)
		}
	}
	in.ready()
}

// Two workers by mistake have one group.instance.id: each in turn is put out, and says why.
func TestTwoWorkersWithOneStaticIDSaySo(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	p.topics(t, c, 1)
	const id = `source.kafka.options["group.instance.id"]=one`
	first := p.run(t, c, id)
	put(t, c, p.in, 0, numbers(0, 5)...)
	first.emitted(5)
	waitFor(t, "all is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 5 }) // or it is repeated
	began := time.Now()
	second := p.run(t, c, id)
	waitFor(t, "the first was started again for it", func() bool { return first.counted("enricher_restarts_total", "reason=group") > 0 })
	if first.said(`another worker uses the same group.instance.id, \"one\": give each its own`) == 0 {
		t.Error("it was not said why")
	}
	must(t, second.stop())
	// They put each other out in turn for as long as both run, and each waits for 100 ms at least before it comes again.
	p.books.differs = differences{restarts: between(1, 2+2*int64(time.Since(began)/(100*time.Millisecond)))}
	put(t, c, p.in, 0, numbers(5, 5)...)
	waitFor(t, "the first has the partition again", func() bool { return offset(t, c, p.group, p.in, 0) == 10 })
	first.ready()
}

// Rights are taken away and given back, of the source, the group and the sink in turn.
func TestRightsThatAreTakenAwayAndGivenBackAreWaitedFor(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Security: cluster.Security{Users: map[string]string{"worker": "secret", "admin": "admin"}, ACLs: true}})
	p := newPlaces()
	p.topics(t, c, 1)
	rights := map[string]*kadm.ACLBuilder{
		"read":  kadm.NewACLs().Allow("User:worker").AllowHosts().Topics(p.in).Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral),
		"group": kadm.NewACLs().Allow("User:worker").AllowHosts().Groups(p.group).Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral),
		"write": kadm.NewACLs().Allow("User:worker").AllowHosts().Topics(p.out, p.errors).Operations(kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral),
	}
	grant := func(b *kadm.ACLBuilder) {
		made, err := c.Admin.CreateACLs(t.Context(), b)
		must(t, err)
		for _, r := range made {
			must(t, r.Err)
		}
	}
	for _, b := range rights {
		grant(b)
	}
	// Refused outputs take it back, and it tries again after 200 ms, and then after twice that each time.
	p.books.differs = differences{rewinds: between(1, 5), each: 5}
	in := p.runAs(t, c, "worker")
	put(t, c, p.in, 0, numbers(0, 5)...)
	in.emitted(5)
	n := 5
	for _, taken := range []struct{ right, words string }{
		{"read", p.in}, {"write", p.out}, {"group", "GROUP_AUTHORIZATION_FAILED"},
	} {
		began := time.Now()
		gone, err := c.Admin.DeleteACLs(t.Context(), rights[taken.right])
		must(t, err)
		for _, r := range gone {
			must(t, r.Err)
		}
		put(t, c, p.in, 0, numbers(n, 5)...)
		n += 5
		in.unready(taken.words, "AUTHORIZATION_FAILED")
		grant(rights[taken.right])
		waitFor(t, "all is committed after the right to "+taken.right+" was given back", func() bool { return offset(t, c, p.group, p.in, 0) == int64(n) })
		in.ready()
		if taken.right == "group" { // of which it is a member anew: what it could not commit it does again, and it tried every 100 ms
			d := &p.books.differs
			d.returned, d.repeated, d.failed = between(0, 5), between(0, 5), between(0, 1+int64(time.Since(began)/(100*time.Millisecond)))
		}
	}
	got := written(t, c, p.out)
	for i, v := range numbers(0, n) {
		if got[v] == 0 || got[v] > 1 && i < n-5 || got[v] > 2 {
			t.Errorf("event %s was written %d times, and without the right to the group the last 5 may be written twice", v, got[v])
		}
	}
}

// The topic's max.message.bytes is lowered while the pipeline runs.
func TestARecordThatTheSinksTopicDoesNotTakeIsAnErrorEvent(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	p.topics(t, c, 1, "max.message.bytes=2000")
	// What is refused together with others is sent again alone: each of the two that are too large takes it back once at most.
	p.books.differs = differences{rewinds: between(0, 2), each: 3}
	in := p.run(t, c)
	random := make([]byte, 5000) // which does not compress
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	large := func(n int) string { return fmt.Sprintf("%q", hex.EncodeToString(random[:n/2])) }
	put(t, c, p.in, 0, "1", large(5000), "2")
	in.emitted(2)
	waitFor(t, "the large one has left too", func() bool { return offset(t, c, p.group, p.in, 0) == 3 })
	value := "500"
	changed, err := c.Admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &value}}, p.out)
	must(t, err)
	for _, r := range changed {
		must(t, r.Err)
	}
	put(t, c, p.in, 0, "3", large(1000), "4") // the worker does not know yet
	waitFor(t, "all is committed", func() bool { return offset(t, c, p.group, p.in, 0) == 6 })
	got, failed := written(t, c, p.out), written(t, c, p.errors)
	for _, v := range []string{"1", "2", "3", "4"} {
		if got[v] == 0 {
			t.Errorf("event %s is lost", v)
		}
	}
	if failed[large(5000)] != 1 || failed[large(1000)] != 1 || len(failed) != 2 {
		t.Errorf("%d error events, want the two that are too large", len(failed))
	}
	in.ready()
}
