package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/pipeline"
)

func TestAFileLeadsItsEventsThroughATopicAndTheyStayWhatTheyWere(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) {
			fill := mustLoad(t, "name: fill\nkafka: {brokers: embedded}\nsource: {file: {path: '-'}}\nsink: {kafka: {topic: in, key: .n}}\n")
			job := mustLoad(t, "name: job\nkafka: {brokers: embedded}\ninstance: w1\ndelivery: "+delivery+`
source: {kafka: {topics: [in]}}
filter: .n != 4
partition_by: {fields: [.k], missing: error}
repartition: {topic: between, partitions: 4}
process:
  - jq: if .n == 3 then error("three") else .m = [$topic, $key, $headers] end
sink: {kafka: {topic: out}}
error_sink: {kafka: {topic: errors}}
`)
			show := mustLoad(t, "name: show\nkafka: {brokers: embedded}\nsource: {kafka: {topics: [out, errors]}}\nprocess:\n"+
				"  - jq: .e = [$headers[\"enricher.error.topic\"], $headers[\"enricher.error.function\"]] | .key = $key\nsink: {file: {path: '-'}}\n")
			embedded := &pipeline.Embedded{}
			defer embedded.Close()
			if err := embedded.Prepare(fill, job, show); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var in strings.Builder
			for n := range 10 {
				fmt.Fprintf(&in, "{\"n\":%d,\"k\":%d}\n", n, n%2)
			}
			in.WriteString("{\"n\":10}\n")
			if err := fill.Run(ctx, pipeline.Deps{Logger: quiet, Embedded: embedded, Stdin: strings.NewReader(in.String())}); err != nil {
				t.Fatal(err)
			}
			working, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- job.Run(working, pipeline.Deps{Logger: quiet, Embedded: embedded}) }()
			seen := map[string]int{}
			for _, line := range runUntil(t, show, 10, pipeline.Deps{Embedded: embedded}) {
				seen[line]++
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for n := range 11 {
				want, times := fmt.Sprintf(`{"k":%d,"m":["in","%d",{}],"n":%d,"e":[null,null],"key":"%d"}`, n%2, n, n, n), 1
				switch n {
				case 3:
					want = `{"n":3,"k":1,"e":["in","process[0].jq"],"key":"3"}`
				case 4:
					times = 0
				case 10:
					want = `{"n":10,"e":["in","partition_by"],"key":"10"}`
				}
				if seen[want] != times {
					t.Errorf("%s is seen %d times, want %d, in %v", want, seen[want], times, seen)
				}
			}
		})
	}
}

func TestARepartitionTopicIsOfTheGroupThatReadsIt(t *testing.T) {
	for group, line := range map[string]string{"job": "", "other": ", group: other"} {
		p := mustLoad(t, "name: job\nkafka: {brokers: [\"127.0.0.1:1\"]}\nsource: {kafka: {topics: [in]"+line+
			"}}\npartition_by: .k\nrepartition: {topic: between, partitions: 4}\nsink: {kafka: {topic: out}}\n")
		if written, read, err := pipeline.GroupOfRepartition(p); err != nil || written != group || read != group {
			t.Errorf("records are written as those of %q and read by %q, want %q: %v", written, read, group, err)
		}
	}
}
