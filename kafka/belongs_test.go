package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// of says in a record of the repartition topic whose it is.
func of(group string) []kgo.RecordHeader {
	return []kgo.RecordHeader{{Key: "enricher.repartition.group", Value: []byte(group)}}
}

// refused polls until the source ends, and fails the test unless it does so for want before any record came.
func (r *record) refused(t *testing.T, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := r.src.Poll(ctx, 10)
	var fatal *event.FatalError
	if !errors.As(err, &fatal) || !strings.Contains(err.Error(), want) || len(got.Records) > 0 {
		t.Errorf("polling: %d records and %v, want none and an end that says %q", len(got.Records), err, want)
	}
}

const ofG = `topic "between" belongs to group "g": name another repartition.topic for "again"`

func TestARepartitionTopicOfAnotherGroupIsRefusedBeforeAnythingIsRead(t *testing.T) {
	for _, tc := range []struct {
		name string
		rec  *kgo.Record // what is in the topic
		left bool        // the first group has committed offsets of it
		hide bool        // from this user
		want string
	}{
		{"its records say so", &kgo.Record{Headers: of("g")}, false, false, ofG},
		{"its records say so, groups may not be seen", &kgo.Record{Headers: of("g")}, true, true, ofG},
		{"the other group has come so far in it, of records that say nothing", &kgo.Record{}, true, false, ofG},
		{"the other group has finished it", nil, true, false, ofG},
		{"records of before that say nothing are taken", &kgo.Record{}, false, false, ""},
		{"its own, after its offsets were forgotten", &kgo.Record{Headers: of("again")}, false, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, cl, adm := fake(t, 1)
			if tc.left {
				first := open(t, c, leading(3))
				first.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return len(held) == 4 })
				first.src.Close(context.Background())
			} else if err := c.CreateTopic(between, 3, map[string]string{"retention.ms": "-1"}); err != nil {
				t.Fatal(err)
			}
			write(t, cl, "in", 0, 0, 1)
			if tc.rec != nil {
				tc.rec.Topic, tc.rec.Partition, tc.rec.Value = between, 2, []byte("x")
				if err := cl.ProduceSync(t.Context(), tc.rec).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if tc.hide {
				refuse(c, kmsg.ListGroups, kerr.ClusterAuthorizationFailed, -1)
			}
			again := open(t, c, leading(3), func(cfg *kafka.SourceConfig) { cfg.Group = "again" })
			if tc.want == "" {
				again.poll(t, 2)
				return
			}
			again.refused(t, tc.want)
			if held := again.held(); len(held) > 0 {
				t.Errorf("it began %v", held)
			}
			if has, err := adm.FetchOffsets(t.Context(), "again"); err == nil && len(has) > 0 {
				t.Errorf("it has committed %v", has)
			}
		})
	}
}

func TestARecordOfAnotherGroupInTheRepartitionTopicEndsTheSource(t *testing.T) {
	c, cl, _ := fake(t, 1)
	r := open(t, c, leading(1))
	r.until(t, "it holds both topics", func(_ string, held map[tp]int64) bool { return len(held) == 2 })
	for _, mine := range []*kgo.Record{{Value: []byte("old")}, {Value: []byte("new"), Headers: append(of("g"), of("theirs")...)}} {
		mine.Topic = between
		if err := cl.ProduceSync(t.Context(), mine).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	got := r.poll(t, 2)
	if text(got) != "old new" || fmt.Sprint(got[0].Headers) != "[]" || len(got[1].Headers) != 1 || string(got[1].Headers[0].Value) != "theirs" {
		t.Errorf("polled %q with headers %v and %v, want the group taken off and no more", text(got), got[0].Headers, got[1].Headers)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: between, Value: []byte("mine"), Headers: of("g")},
		&kgo.Record{Topic: between, Value: []byte("theirs"), Headers: of("again")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	want := `topic "between" belongs to group "again": name another repartition.topic for "g"`
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		polled, err := r.src.Poll(ctx, 10)
		if strings.Contains(text(polled.Records), "theirs") {
			t.Fatalf("polled %q", text(polled.Records))
		}
		if err != nil {
			break
		}
	}
	r.refused(t, want)
}

func TestRecordsOfTheRepartitionTopicSayTheirGroupWithinItsLimit(t *testing.T) {
	c, cl, _ := fake(t, 0)
	const most = 2000
	if err := c.CreateTopic(between, 1, map[string]string{"max.message.bytes": fmt.Sprint(most)}); err != nil {
		t.Fatal(err)
	}
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) {
		cfg.Topic, cfg.AnySize, cfg.Group = between, true, strings.Repeat("g", 100)
		cfg.Options["compression.type"] = "none"
	})
	own := []event.Header{{Key: "h", Value: []byte("v")}}
	fits := 0
	for n := most - 400; n <= most; n++ {
		if w.Check(&streammanager.Record{Value: value(n).Value, Headers: own}) == nil {
			fits = n
		}
	}
	if err := w.send(t, streammanager.Record{Value: value(fits).Value, Headers: own})[0]; err != nil {
		t.Fatalf("a record that passed the check was refused: %v", err)
	}
	if err := w.send(t, streammanager.Record{Value: value(fits + 1).Value, Headers: own})[0]; err == nil && fits < most-240 {
		t.Errorf("the largest value that passes has %d bytes, and one more is taken", fits)
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{between: {0: kgo.NewOffset().AtStart()}})
	got := cl.PollRecords(t.Context(), 1).Records()[0].Headers
	if len(got) != 2 || got[0].Key != "enricher.repartition.group" || len(got[0].Value) != 100 || got[1].Key != "h" {
		t.Errorf("it has the headers %v", got)
	}
}
