package streammanager_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

func TestWhatARecordCarriesIsWhatTheStreamSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Unwrap(func(_ context.Context, rec *streammanager.Record) (streammanager.Record, bool) {
				inner := streammanager.Record{
					Topic: "first", Partition: 7, Offset: 100 + rec.Offset, Key: []byte("inner"), Value: rec.Value,
					Headers: []event.Header{{Key: "h", Value: rec.Key}}, Timestamp: time.UnixMilli(12_345),
				}
				if string(rec.Value) == "panic" {
					panic("no")
				}
				return inner, string(rec.Value) != "skip"
			})
			b.Process(streammanager.Step{Name: "see", Func: event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				pos := ev.Position()
				seen = append(seen, strings.Join([]string{pos.Topic, string(ev.Key()), string(ev.Value()), ev.Headers()[0].Key, ev.Timestamp().UTC().Format(time.RFC3339Nano)}, " "))
				if string(ev.Value()) == "bad" {
					return nil, event.Reject("bad", errors.New("bad"))
				}
				return []*event.Event{ev}, nil
			})})
		})
		h.src.add(0, "outer", "good")
		h.src.add(0, "outer", "skip")
		h.src.add(0, "outer", "bad")
		h.src.add(0, "outer", "panic")
		h.src.add(0, "outer", "skip")
		h.finish(t)
		equal(t, "seen", seen, []string{
			"first inner good h 1970-01-01T00:00:12.345Z",
			"first inner bad h 1970-01-01T00:00:12.345Z",
		})
		h.offsets(t, 5)
		if s := h.stream.Status(); s.Read != 3 || s.Emitted != 1 || s.Errors != 2 || s.Dropped != 0 {
			t.Errorf("status: got %+v, want 3 read, 1 emitted, 2 errors: what is left out is none that was read", s)
		}
		var types []string
		for i := range h.errs.got {
			e, err := streammanager.ReadError(&h.errs.got[i])
			if err != nil {
				t.Fatal(err)
			}
			types = append(types, string(e.Type)+" "+e.Origin.Topic)
		}
		slices.Sort(types) // their keys differ
		equal(t, "error events", types, []string{"bad first", "panic in"})
	})
}

func TestUnwrapIsRefusedBesideRepartition(t *testing.T) {
	_, err := streammanager.New(streammanager.Config{Name: "x"}).From(newMemSource(true)).To(&memSink{}).
		PartitionBy(func(context.Context, *event.Event) (streammanager.Key, error) { return streammanager.Key{}, nil }).
		Repartition("between", &memSink{}).
		Unwrap(func(_ context.Context, rec *streammanager.Record) (streammanager.Record, bool) { return *rec, true }).Build()
	if err == nil || !strings.Contains(err.Error(), "leave out Repartition") {
		t.Errorf("got %v", err)
	}
}

func TestAnErrorEventIsReadBackByteForByte(t *testing.T) {
	for _, c := range []struct {
		name       string
		key, value []byte
		headers    []event.Header
	}{
		{name: "all", key: []byte("k\x00\xff"), value: []byte(`{"a": 1.0}`), headers: []event.Header{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "", Value: []byte{}}}},
		{name: "null value and key"},
		{name: "empty value and key", key: []byte{}, value: []byte{}},
		{name: "headers of a failure before", value: []byte("x"), headers: []event.Header{{Key: "enricher.error.type", Value: []byte("old")}, {Key: "b", Value: []byte("2")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := event.New(event.Position{Topic: "in", Partition: 3, Offset: 1 << 40}, c.key, c.value, c.headers, time.UnixMilli(1_700_000_000_123))
			at := time.Date(2026, 3, 1, 10, 0, 0, 123_456_789, time.UTC)
			ev, err := streammanager.RecordFormat(&streammanager.Failure{Input: in, Type: "not_found", Function: "f", Message: "m", Attempts: 2, Time: at, Pipeline: "p"})
			if err != nil {
				t.Fatal(err)
			}
			rec := streammanager.Record{Topic: "err", Offset: 9, Key: ev.Key(), Value: ev.Value(), Headers: ev.Headers(), Timestamp: ev.Timestamp()}
			got, err := streammanager.ReadError(&rec)
			if err != nil {
				t.Fatal(err)
			}
			o := got.Origin
			if string(o.Key) != string(c.key) || (o.Key == nil) != (c.key == nil) || string(o.Value) != string(c.value) || (o.Value == nil) != (c.value == nil) {
				t.Errorf("got key %q value %q, want %q %q", o.Key, o.Value, c.key, c.value)
			}
			want := slices.DeleteFunc(slices.Clone(c.headers), func(h event.Header) bool { return strings.HasPrefix(h.Key, "enricher.error.") })
			if !slices.EqualFunc(o.Headers, want, func(a, b event.Header) bool {
				return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
			}) {
				t.Errorf("headers: got %v, want %v", o.Headers, want)
			}
			if o.Topic != "in" || o.Partition != 3 || o.Offset != 1<<40 || !o.Timestamp.Equal(in.Timestamp()) {
				t.Errorf("place: got %+v", o)
			}
			if got.Type != "not_found" || got.Function != "f" || got.Pipeline != "p" || !got.Time.Equal(at) || got.Truncated {
				t.Errorf("got %+v", got)
			}
		})
	}
	for _, c := range []struct{ name, header, value string }{{"no header", "", ""}, {"bad number", "enricher.error.offset", "x"}} {
		in := event.New(event.Position{}, nil, nil, nil, time.Now())
		ev, _ := streammanager.RecordFormat(&streammanager.Failure{Input: in, Time: time.Now()})
		rec := streammanager.Record{Headers: append(ev.Headers(), event.Header{Key: c.header, Value: []byte(c.value)})}
		if c.header == "" {
			rec.Headers = nil
		}
		if _, err := streammanager.ReadError(&rec); err == nil {
			t.Errorf("%s: a record that is no error event was taken for one", c.name)
		}
	}
}

func TestAKeyOnTwoPartitionsIsWarnedOfWithThePartitionsThatAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Unwrap(func(_ context.Context, rec *streammanager.Record) (streammanager.Record, bool) {
				return streammanager.Record{Topic: "first", Partition: 7, Offset: 70, Key: rec.Key, Value: rec.Value, Timestamp: time.Now()}, true
			})
			b.Process(takes(time.Second))
		})
		h.src.logs[tp{"in", 0}], h.src.logs[tp{"in", 1}] = nil, nil // assigned, and empty
		stop := h.serve(t)
		h.src.addTo(tp{"in", 0}, "key", "1")
		synctest.Wait()
		h.src.addTo(tp{"in", 1}, "key", "2")
		time.Sleep(time.Minute)
		stop()
		log := strings.ReplaceAll(h.logged(), `\"`, "")
		if !strings.Contains(log, `first="topic in partition 0" second="topic in partition 1 offset 0"`) {
			t.Errorf("logged:\n%s", log)
		}
	})
}
