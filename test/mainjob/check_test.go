//go:build unix

package mainjob_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// output is an enriched event in the output topic.
type output struct {
	id, key, seq int
	owner        string
	partition    int32
	offset       int64
}

// parseOutputs reads enriched events, and fails the test where one is not what it should be.
func parseOutputs(t *testing.T, records []*kgo.Record) []output {
	t.Helper()
	outputs := make([]output, len(records))
	for i, r := range records {
		var value struct {
			Load struct {
				ID, Key, Seq int
				Owner        string
			}
			Content struct {
				ID   int
				Text string
			}
		}
		if err := json.Unmarshal(r.Value, &value); err != nil {
			t.Fatalf("reading output %d/%d: %v", r.Partition, r.Offset, err)
		}
		id := value.Load.ID
		if value.Content.ID != id || value.Content.Text != fmt.Sprintf("content of event %d", id) {
			t.Fatalf("output %d/%d of event %d holds %+v, which is not its content", r.Partition, r.Offset, id, value.Content)
		}
		if want := fmt.Sprintf("page-%d", value.Load.Key); string(r.Key) != want {
			t.Fatalf("output %d/%d of event %d has the key %q, want %q", r.Partition, r.Offset, id, r.Key, want)
		}
		outputs[i] = output{
			id: id, key: value.Load.Key, seq: value.Load.Seq, owner: value.Load.Owner,
			partition: r.Partition, offset: r.Offset,
		}
	}
	return outputs
}

// delivery is what became of the loaded events.
type delivery struct {
	outputs    int
	lost       int // events without an output
	repeated   int // outputs of events that had one already
	disordered int // first outputs of an event behind one of a later event of its key
	moved      int // keys that are found in more than one output partition
}

func (d delivery) String() string {
	return fmt.Sprintf("outputs=%d lost=%d repeated=%d out_of_order=%d keys_in_two_partitions=%d",
		d.outputs, d.lost, d.repeated, d.disordered, d.moved)
}

// checkDelivered compares the output topic to what was loaded. It fails the test for lost events, for
// events behind later ones of their key, and for error events; how much is repeated is the caller's to judge.
func checkDelivered(t *testing.T, b *broker, events loaded) (delivery, []output) {
	t.Helper()
	outputs := parseOutputs(t, readAll(t, b, outputTopic))
	d := deliveryOf(events, outputs)
	if d.lost > 0 || d.disordered > 0 || d.moved > 0 {
		t.Errorf("delivered %v, want nothing lost, out of order or moved", d)
	}
	if n := count(t, b, errorTopic); n > 0 {
		t.Errorf("there are %d error events, the first being %v", n, readAll(t, b, errorTopic)[0])
	}
	return d, outputs
}

// deliveryOf counts. Outputs of a partition come in its order.
func deliveryOf(events loaded, outputs []output) delivery {
	d := delivery{outputs: len(outputs)}
	seen := make([]bool, len(events))
	next := map[int]int{} // by key: the sequence after the last first output
	home := map[int]int32{}
	for _, o := range outputs {
		if p, ok := home[o.key]; ok && p != o.partition {
			d.moved++
		}
		home[o.key] = o.partition
		if seen[o.id] {
			d.repeated++
			continue
		}
		seen[o.id] = true
		if o.seq < next[o.key] {
			d.disordered++
		}
		next[o.key] = max(next[o.key], o.seq+1)
	}
	for _, s := range seen {
		if !s {
			d.lost++
		}
	}
	return d
}

// byOwner splits outputs by the worker that made them.
func byOwner(outputs []output) map[string][]output {
	owners := map[string][]output{}
	for _, o := range outputs {
		owners[o.owner] = append(owners[o.owner], o)
	}
	return owners
}

func TestACheckFindsWhatIsLostRepeatedAndOutOfOrder(t *testing.T) {
	events := loaded{{key: 1, seq: 0}, {key: 1, seq: 1}, {key: 1, seq: 2}, {key: 2, seq: 0}}
	out := func(ids ...int) []output {
		var outputs []output
		for _, id := range ids {
			outputs = append(outputs, output{id: id, key: events[id].key, seq: events[id].seq})
		}
		return outputs
	}
	elsewhere := out(0, 1, 2, 3)
	elsewhere[1].partition = 1
	for _, c := range []struct {
		name    string
		outputs []output
		want    delivery
	}{
		{"in order", out(3, 0, 1, 2), delivery{outputs: 4}},
		{"lost", out(3, 0, 2), delivery{outputs: 3, lost: 1}},
		{"repeated from an earlier event on", out(0, 1, 0, 1, 2, 3), delivery{outputs: 6, repeated: 2}},
		{"out of order", out(0, 2, 1, 3), delivery{outputs: 4, disordered: 1}},
		{"moved there and back", elsewhere, delivery{outputs: 4, moved: 2}},
	} {
		if got := deliveryOf(events, c.outputs); got != c.want {
			t.Errorf("%s: counted %v, want %v", c.name, got, c.want)
		}
	}
	if got := byOwner([]output{{id: 1, owner: "a"}, {id: 2, owner: "b"}, {id: 3, owner: "a"}}); !slices.Equal(got["a"], []output{{id: 1, owner: "a"}, {id: 3, owner: "a"}}) {
		t.Errorf("found %v of owner a, want events 1 and 3", got["a"])
	}
}
