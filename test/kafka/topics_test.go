//go:build unix

package kafka_test

import (
	"testing"
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
	deleteTopic(t, c, p.in)
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
	if in.said("deleted and made again") == 0 || in.counted("enricher_stalls_total", "reason", "topic") == 0 {
		t.Error("it was not said and counted")
	}
	if n := in.counted("enricher_restarts_total", "pipeline", p.group); n != 0 {
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
	deleteTopic(t, c, p.out)
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
	if in.said("deleted and made again") == 0 || in.counted("enricher_stalls_total", "reason", "topic") == 0 {
		t.Error("it was not said and counted")
	}
	if n := in.counted("enricher_restarts_total", "pipeline", p.group); n != 0 {
		t.Errorf("the pipeline was started again %v times", n)
	}
}
