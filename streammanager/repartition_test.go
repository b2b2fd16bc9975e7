package streammanager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

func TestAnEventIsWhatItWasAfterTheRepartitionTopic(t *testing.T) {
	at := time.UnixMilli(1_600_000_000_123)
	origin := func(name string) string { return "enricher.repartition." + name }
	headers := []event.Header{
		{Key: "a", Value: []byte{0, 255}},
		{Key: "a", Value: nil},
		{Key: "a", Value: []byte{}},
		{Key: "", Value: []byte("x")},
		{Key: origin("topic"), Value: []byte("mine")},
		{Key: origin("key"), Value: []byte("mine too")},
	}
	for _, c := range []struct {
		name    string
		key     []byte
		headers []event.Header
	}{
		{"with a key and headers", []byte{0, 1, 255}, headers},
		{"an empty key stays one", []byte{}, nil},
		{"without a key there is none", nil, headers},
		{"without a key and headers", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen *event.Event
				h, hop := newHop(t, streammanager.Config{}, func(b *streammanager.Builder) {
					b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
						seen = ev
						return []*event.Event{ev}, nil
					}))
				})
				rec := streammanager.Record{Topic: "in", Partition: 7, Offset: 0, Key: c.key, Value: []byte("k:v"), Headers: c.headers, Timestamp: at}
				h.src.logs[tp{"in", 7}] = []streammanager.Record{rec}
				stop := h.serve(t)
				time.Sleep(5 * time.Second)
				stop()
				moved := 0
				for p := range hop.parts {
					for _, r := range h.src.logs[tp{between, p}] {
						moved++
						if string(r.Key) != "k" || string(r.Value) != "k:v" || r.Timestamp.Equal(at) {
							t.Errorf("in the repartition topic: key %q value %q stamped %v, want the key of the event, its value, and now", r.Key, r.Value, r.Timestamp)
						}
					}
				}
				if moved != 1 || len(h.sink.got) != 1 {
					t.Fatalf("%d records in the repartition topic and %d in the sink, want one each", moved, len(h.sink.got))
				}
				pos := seen.Position()
				if pos.Topic != "in" || pos.Partition != 7 || pos.Offset != 0 || !seen.Timestamp().Equal(at) {
					t.Errorf("a function sees %+v at %v", pos, seen.Timestamp())
				}
				got := h.sink.got[0]
				if (got.Key == nil) != (c.key == nil) || !bytes.Equal(got.Key, c.key) || !got.Timestamp.Equal(at) {
					t.Errorf("key %v at %v, want %v at %v", got.Key, got.Timestamp, c.key, at)
				}
				same := slices.EqualFunc(got.Headers, c.headers, func(a, b event.Header) bool {
					return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
				})
				if !same {
					t.Errorf("headers %q, want %q", got.Headers, c.headers)
				}
			})
		})
	}
}

func TestAKeyOnTwoPartitionsKeepsItsOrderOverTheRepartitionTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls notes
		h, _ := newHop(t, streammanager.Config{Order: streammanager.OrderKeySerial}, func(b *streammanager.Builder) {
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				calls.add(string(ev.Value()))
				time.Sleep(50 * time.Millisecond)
				return []*event.Event{ev}, nil
			}))
		})
		for i := range 60 {
			h.src.add(int32(i%2), "-", fmt.Sprintf("k%d:%02d", i%4/2, i))
		}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		stop()
		if len(h.sink.values()) != 60 {
			t.Fatalf("%d outputs, want 60", len(h.sink.values()))
		}
		h.offsets(t, 30, 30)
		last := map[string]string{}
		for _, v := range h.sink.values() {
			key, rest, _ := strings.Cut(v, ":")
			n, _ := strconv.Atoi(rest)
			key = fmt.Sprint(key, n%2) // the partition that it came from
			if v <= last[key] {
				t.Errorf("%s left after %s", v, last[key])
			}
			last[key] = v
		}
		if strings.Contains(h.logged(), "two partitions") {
			t.Error("a key on two partitions was warned of, although its order holds")
		}
	})
}

func TestATombstoneLeavesBetweenWhatIsBeforeAndBehindItInItsPartition(t *testing.T) {
	for name, step := range map[string]streammanager.Step{"with calls": takes(3 * time.Second), "without": {Func: event.FuncOf(pass), Inline: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHop(t, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(step) })
				for _, v := range []string{"a:1", "b:1", "-", "-", "a:2", "c:2", "-", "b:3"} {
					h.src.add(0, "key", v)
				}
				h.src.add(1, "-", "d:1")
				stop := h.serve(t)
				time.Sleep(time.Minute)
				stop()
				var got []string
				for _, v := range h.sink.values() {
					if v == "null" {
						got = append(got, v)
						continue
					}
					if !strings.HasPrefix(v, "d") {
						got = append(got, v[2:])
					}
				}
				equal(t, "order of the groups", got, []string{"1", "1", "null", "null", "2", "2", "null", "3"})
				h.offsets(t, 8, 1)
				for _, r := range h.sink.got {
					if r.Value == nil && string(r.Key) != "key" {
						t.Errorf("the key of a tombstone is %q, want the one that it had", r.Key)
					}
				}
			})
		})
	}
}

func TestEachHopMakesTheErrorEventsOfItsOwnAndAllNameTheOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h, hop := newHop(t, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) {
			b.Filter(func(_ context.Context, ev *event.Event) (bool, error) {
				if string(ev.Value()) == "k:panic" {
					return false, errors.New("filter failed")
				}
				return string(ev.Value()) != "k:dropped", nil
			})
			b.Process(try(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
				if string(ev.Value()) == "k:bad" {
					return nil, event.Reject("bad", errTest)
				}
				return []*event.Event{ev, ev}, nil
			}))
		})
		hop.check = func(r *streammanager.Record) error {
			if string(r.Value) == "k:large" {
				return event.Rejectf(event.TooLarge, "too much")
			}
			return nil
		}
		for _, v := range []string{"k:good", "k:panic", "k:dropped", "!:", "k:bad", "k:large", "~:keyless"} {
			h.src.add(4, "-", v)
		}
		foreign := streammanager.Record{Topic: between, Value: []byte("k:foreign")}
		h.src.logs[tp{between, 0}] = []streammanager.Record{foreign}
		stop := h.serve(t)
		time.Sleep(time.Minute)
		stop()
		var got []string
		for n, r := range h.errs.got {
			at := func(name string) string { return h.errs.header(n, "enricher.error."+name) }
			got = append(got, fmt.Sprintf("%s %s %s %s/%s/%s", r.Value, at("type"), at("function"), at("topic"), at("partition"), at("offset")))
			if slices.ContainsFunc(r.Headers, func(hd event.Header) bool { return strings.HasPrefix(hd.Key, "enricher.repartition.") }) {
				t.Errorf("%s has headers of the repartition topic: %q", r.Value, r.Headers)
			}
		}
		slices.Sort(got)
		equal(t, "error events", got, []string{
			"!: missing_key partition_by in/4/3",
			"k:bad bad call in/4/4",
			"k:foreign invalid_event repartition between/0/0",
			"k:large too_large repartition in/4/5",
			"k:panic function filter in/4/1",
		})
		out := h.sink.values()
		slices.Sort(out)
		equal(t, "outputs", out, []string{"k:good", "k:good", "~:keyless", "~:keyless"})
		if st := h.stream.Status(); st.Read != 7 || st.Emitted != 2 || st.Dropped != 1 || st.Errors != 5 || st.Outputs != 4 {
			t.Errorf("counts: %+v, want each event once and real outputs alone", st)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
			# HELP enricher_repartitioned_total Events written to the repartition topic.
			# TYPE enricher_repartitioned_total counter
			enricher_repartitioned_total{pipeline="test"} 3
			# HELP enricher_events_read_total Events read from the source.
			# TYPE enricher_events_read_total counter
			enricher_events_read_total{pipeline="test",topic="in"} 7
		`), "enricher_repartitioned_total", "enricher_events_read_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatTheRepartitionTopicRefusesIsReadAgainInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, hop := newHop(t, streammanager.Config{}, func(b *streammanager.Builder) { b.Process(takes(time.Second)) })
		until := time.Now().Add(10 * time.Second)
		hop.refuse = func(r *streammanager.Record) error {
			if string(r.Value) == "k:03" && time.Now().Before(until) {
				return errTest
			}
			return nil
		}
		for i := range 10 {
			h.src.add(0, "-", fmt.Sprintf("k:%02d", i))
		}
		stop := h.serve(t)
		time.Sleep(5 * time.Second)
		if got := h.src.offset(0); got > 3 {
			t.Errorf("committed %d while the topic refuses the fourth event, want at most 3", got)
		}
		if err := h.stream.Status().Ready; err == nil {
			t.Error("ready, although the repartition topic refuses events")
		}
		time.Sleep(time.Hour)
		stop()
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("k:%02d", i))
		}
		got := h.sink.values()
		equal(t, "outputs", slices.Compact(got), want)
		h.offsets(t, 10)
		if n := hop.behind(); n != 0 {
			t.Errorf("%d records of the repartition topic are not committed", n)
		}
	})
}

func TestSlowCallsBehindTheRepartitionTopicDoNotHoldUpTheInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, hop := newHop(t, streammanager.Config{Workers: 2, Limits: streammanager.Limits{InFlightEvents: 40}}, func(b *streammanager.Builder) {
			b.Process(takes(time.Minute))
		})
		for i := range 4000 {
			h.src.add(0, "-", fmt.Sprintf("k%d:%d", i%50, i))
		}
		stop := h.start(t)
		time.Sleep(30 * time.Second)
		if got := h.src.offset(0); got != 4000 {
			t.Errorf("%d of 4000 events are in the repartition topic after half a minute: other workers would wait for them", got)
		}
		if st := h.stream.Status(); st.InFlightEvents > 40 {
			t.Errorf("%d events in flight, want at most 40", st.InFlightEvents)
		}
		if n := hop.behind(); n != 4000 {
			t.Errorf("%d records of the repartition topic are not committed, want all", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
	})
}

func TestARepartitionTopicNeedsAllItsParts(t *testing.T) {
	full := func() *streammanager.Builder {
		return streammanager.New(streammanager.Config{Name: "n"}).From(newMemSource(true)).To(&memSink{}).PartitionBy(byField)
	}
	for name, c := range map[string]struct {
		b    *streammanager.Builder
		want string
	}{
		"no sink":  {full().Repartition(between, nil), "it takes a topic and the sink"},
		"no topic": {full().Repartition("", &memSink{}), "it takes a topic and the sink"},
		"no key":   {full().PartitionBy(nil).Repartition(between, &memSink{}), "what orders events"},
		"no abilities": {
			full().From(struct{ streammanager.Source }{newMemSource(true)}).Repartition(between, &memSink{}),
			"must be able to commit, rewind, pause and settle",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.b.Build(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("building: %v, want %q", err, c.want)
			}
		})
	}
}
