package streammanager_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// naming is a sink that finds the topic and the time of each record, or refuses to.
type naming struct{ *memSink }

func (s naming) Prepare(ev *event.Event) (streammanager.Record, error) {
	if string(ev.Key()) == "bad" {
		return streammanager.Record{}, event.Rejectf(event.MissingField, "no topic")
	}
	return streammanager.Record{Topic: "of " + string(ev.Key()), Key: ev.Key(), Value: ev.Value(), Timestamp: time.Unix(7, 0)}, nil
}

// A tombstone skips the functions; where it goes is the sink's affair as of any other event.
func TestATombstoneGoesWhereTheSinkSays(t *testing.T) {
	for name, steps := range map[string][]streammanager.Step{
		"a chain with calls":    {try(pass)},
		"a chain without calls": nil,
	} {
		for _, keyed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sink := &memSink{}
					h := newHarness(t, true, streammanager.Config{Workers: 2}, func(b *streammanager.Builder) {
						b.Process(steps...).To(naming{sink})
						if keyed { // the key is read from the value: tombstones are barriers
							b.PartitionBy(func(_ context.Context, ev *event.Event) (streammanager.Key, error) {
								return streammanager.Key{Value: string(ev.Value())}, nil
							})
						}
					})
					for _, v := range [][2]string{{"a", "1"}, {"a", "-"}, {"bad", "-"}, {"b", "-"}, {"b", "2"}} {
						h.src.add(0, v[0], v[1])
					}
					h.finish(t)
					equal(t, "error events", h.errs.values(), []string{"null"})
					if len(sink.got) != 4 {
						t.Fatalf("%d records, want 4", len(sink.got))
					}
					for _, r := range sink.got {
						if r.Topic != "of "+string(r.Key) || !r.Timestamp.Equal(time.Unix(7, 0)) {
							t.Errorf("key %q, value %q went to topic %q with time %v", r.Key, r.Value, r.Topic, r.Timestamp)
						}
					}
				})
			})
		}
	}
}
