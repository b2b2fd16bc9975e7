//go:build unix

package job

import (
	"encoding/json"
	"fmt"
)

// Output is an enriched event in the output topic.
type Output struct {
	ID, Key, Seq int
	Owner        string // name of the worker that made it
	Partition    int32
	Offset       int64
}

// ParseOutput reads an enriched event. What is not the event's own content is an error.
func ParseOutput(partition int32, offset int64, key, value []byte) (Output, error) {
	var text struct {
		Load struct {
			ID, Key, Seq int
			Owner        string
		}
		Content struct {
			ID   int
			Text string
		}
	}
	if err := json.Unmarshal(value, &text); err != nil {
		return Output{}, fmt.Errorf("reading output %d/%d: %w", partition, offset, err)
	}
	id := text.Load.ID
	if text.Content.ID != id || text.Content.Text != fmt.Sprintf("content of event %d", id) {
		return Output{}, fmt.Errorf("output %d/%d of event %d holds %+v, which is not its content", partition, offset, id, text.Content)
	}
	if want := fmt.Sprintf("page-%d", text.Load.Key); string(key) != want {
		return Output{}, fmt.Errorf("output %d/%d of event %d has the key %q, want %q", partition, offset, id, key, want)
	}
	return Output{
		ID: id, Key: text.Load.Key, Seq: text.Load.Seq, Owner: text.Load.Owner, Partition: partition, Offset: offset,
	}, nil
}

// Delivery is what became of the loaded events.
type Delivery struct {
	Outputs    int
	Lost       int // events without an output
	Repeated   int // outputs of events that had one already
	Disordered int // first outputs of an event behind one of a later event of its key
	Moved      int // keys that are found in more than one output partition
}

func (d Delivery) String() string {
	return fmt.Sprintf("outputs=%d lost=%d repeated=%d out_of_order=%d keys_in_two_partitions=%d",
		d.Outputs, d.Lost, d.Repeated, d.Disordered, d.Moved)
}

// DeliveryOf counts. Outputs of a partition come in its order. Events whose id failed reports have their end
// elsewhere, as error events; it may be nil.
func DeliveryOf(events Loaded, outputs []Output, failed map[int]bool) Delivery {
	d := Delivery{Outputs: len(outputs)}
	seen := make([]bool, len(events))
	next := map[int]int{} // by key: the sequence after the last first output
	home := map[int]int32{}
	for _, o := range outputs {
		if p, ok := home[o.Key]; ok && p != o.Partition {
			d.Moved++
		}
		home[o.Key] = o.Partition
		if seen[o.ID] {
			d.Repeated++
			continue
		}
		seen[o.ID] = true
		if o.Seq < next[o.Key] {
			d.Disordered++
		}
		next[o.Key] = max(next[o.Key], o.Seq+1)
	}
	for id, s := range seen {
		if !s && !failed[id] {
			d.Lost++
		}
	}
	return d
}

// ByOwner splits outputs by the worker that made them.
func ByOwner(outputs []Output) map[string][]Output {
	owners := map[string][]Output{}
	for _, o := range outputs {
		owners[o.Owner] = append(owners[o.Owner], o)
	}
	return owners
}
