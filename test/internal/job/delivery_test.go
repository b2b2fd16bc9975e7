//go:build unix

package job_test

import (
	"slices"
	"testing"

	"github.com/a0c75104/enricher/test/internal/job"
)

func TestDeliveryCountsWhatIsLostRepeatedAndOutOfOrder(t *testing.T) {
	events := job.Loaded{{Key: 1, Seq: 0}, {Key: 1, Seq: 1}, {Key: 1, Seq: 2}, {Key: 2, Seq: 0}}
	out := func(ids ...int) []job.Output {
		var outputs []job.Output
		for _, id := range ids {
			outputs = append(outputs, job.Output{ID: id, Key: events[id].Key, Seq: events[id].Seq})
		}
		return outputs
	}
	elsewhere := out(0, 1, 2, 3)
	elsewhere[1].Partition = 1
	for _, c := range []struct {
		name    string
		outputs []job.Output
		failed  map[int]bool
		want    job.Delivery
	}{
		{name: "in order", outputs: out(3, 0, 1, 2), want: job.Delivery{Outputs: 4}},
		{name: "lost", outputs: out(3, 0, 2), want: job.Delivery{Outputs: 3, Lost: 1}},
		{name: "failed", outputs: out(3, 0, 2), failed: map[int]bool{1: true}, want: job.Delivery{Outputs: 3}},
		{name: "repeated from an earlier event on", outputs: out(0, 1, 0, 1, 2, 3), want: job.Delivery{Outputs: 6, Repeated: 2}},
		{name: "out of order", outputs: out(0, 2, 1, 3), want: job.Delivery{Outputs: 4, Disordered: 1}},
		{name: "moved there and back", outputs: elsewhere, want: job.Delivery{Outputs: 4, Moved: 2}},
	} {
		if got := job.DeliveryOf(events, c.outputs, c.failed); got != c.want {
			t.Errorf("%s: counted %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOutputsAreSplitByTheWorkerThatMadeThem(t *testing.T) {
	got := job.ByOwner([]job.Output{{ID: 1, Owner: "a"}, {ID: 2, Owner: "b"}, {ID: 3, Owner: "a"}})
	if want := []job.Output{{ID: 1, Owner: "a"}, {ID: 3, Owner: "a"}}; !slices.Equal(got["a"], want) {
		t.Errorf("found %v of owner a, want %v", got["a"], want)
	}
}
