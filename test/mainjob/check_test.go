//go:build unix

package mainjob_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// parseOutputs reads enriched events, and fails the test where one is not what it should be.
func parseOutputs(t *testing.T, records []*kgo.Record) []job.Output {
	t.Helper()
	outputs := make([]job.Output, len(records))
	for i, r := range records {
		var err error
		outputs[i], err = job.ParseOutput(r.Partition, r.Offset, r.Key, r.Value)
		must(t, err)
	}
	return outputs
}

// checkDelivered compares the output topic to what was loaded. It fails the test for lost events, for
// events behind later ones of their key, and for error events; how much is repeated is the caller's to judge.
func checkDelivered(t *testing.T, b *broker, events job.Loaded) (job.Delivery, []job.Output) {
	t.Helper()
	outputs := parseOutputs(t, readAll(t, b, outputTopic))
	d := job.DeliveryOf(events, outputs, nil)
	if d.Lost > 0 || d.Disordered > 0 || d.Moved > 0 {
		t.Errorf("delivered %v, want nothing lost, out of order or moved", d)
	}
	if n := count(t, b, errorTopic); n > 0 {
		t.Errorf("there are %d error events, the first being %v", n, readAll(t, b, errorTopic)[0])
	}
	return d, outputs
}
