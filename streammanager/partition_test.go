package streammanager

import (
	"testing"
	"time"
)

// The loop takes a partition back while the source loses it and is given it once more: the assignment that goes on is
// the one that is read, in whatever order the two come to it.
func TestAPartitionThatIsGivenAnewWhileTheStreamGoesBackIsRead(t *testing.T) {
	for _, tt := range []struct {
		name      string
		givenLate bool
	}{
		{name: "the source was first"},
		{name: "the loop was first", givenLate: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := TopicPartition{"in", 0}
			a := newAssignment(repartition{})
			first := a.add(in, Position{Offset: 0})
			a.publish([]*partition{first})
			a.end(first)                            // the loop: the sink has failed
			given := a.add(in, Position{Offset: 5}) // the source: lost, and assigned
			back := a.add(in, Position{Offset: 0})  // the loop, which has not heard of that
			if tt.givenLate {
				a.publishRewound([]*partition{back})
				a.publish([]*partition{given})
			} else {
				a.publish([]*partition{given})
				a.publishRewound([]*partition{back})
			}
			a.end(back) // the loop: now it has
			if got := a.current(in); got != given {
				t.Errorf("the reader reads for %p, want the assignment that goes on, %p", got, given)
			}
		})
	}
}

type noPauser struct{}

func (noPauser) Pause(...TopicPartition)  {}
func (noPauser) Resume(...TopicPartition) {}

// balancing returns a loop that holds n partitions of the input, with records left, and n of the repartition topic.
func balancing(n int) *loop {
	s := &Stream{parts: parts{through: repartition{topic: "between"}}, pauser: noPauser{}}
	s.cfg = withDefaults(Config{Name: "x"})
	l := &loop{s: s, parts: map[*partition]struct{}{}}
	a := newAssignment(s.through)
	for i := range n {
		in, out := a.add(TopicPartition{"in", int32(i)}, Position{}), a.add(TopicPartition{"between", int32(i)}, Position{})
		in.seen = 1000
		l.parts[in], l.parts[out] = struct{}{}, struct{}{}
	}
	return l
}

func TestTheWorkOfATurnGrowsWithThePartitionsAndNotWithTheirSquare(t *testing.T) {
	fastest := func(n int) time.Duration {
		l, best := balancing(n), time.Hour
		for range 30 { // the fastest is the one that nothing came between
			from := time.Now()
			l.balance()
			best = min(best, time.Since(from))
		}
		return best
	}
	if few, many := fastest(50), fastest(1000); many > 100*few {
		t.Errorf("with 20 times the partitions it took %v and not %v, want about 20 times, not 400", many, few)
	}
}

func BenchmarkATurnsLookAtThePartitions(b *testing.B) {
	l := balancing(128)
	for b.Loop() {
		l.balance()
	}
}
