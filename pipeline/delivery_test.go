package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/pipeline"
)

const onceFile = `name: once
kafka: {brokers: embedded}
delivery: exactly_once
instance: w1
source: {kafka: {topics: [in]}}
process:
  - jq: if .n == 3 then error("three") else .m = .n + 1 end
sink: {kafka: {topic: out}}
error_sink: {kafka: {topic: errors}}
`

func TestAFileThatAsksForExactlyOnceRunsInTransactions(t *testing.T) {
	fill := mustLoad(t, "name: fill\nkafka: {brokers: embedded}\nsource: {file: {path: '-'}}\nsink: {kafka: {topic: in}}\n")
	once := mustLoad(t, onceFile)
	show := mustLoad(t, "name: show\nkafka: {brokers: embedded}\nsource: {kafka: {topics: [out, errors]}}\nsink: {file: {path: '-'}}\n")
	embedded := &pipeline.Embedded{}
	defer embedded.Close()
	if err := embedded.Prepare(fill, once, show); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var in strings.Builder
	for n := range 10 {
		fmt.Fprintf(&in, "{\"n\":%d}\n", n)
	}
	if err := fill.Run(ctx, pipeline.Deps{Logger: quiet, Embedded: embedded, Stdin: strings.NewReader(in.String())}); err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- once.Run(working, pipeline.Deps{Logger: quiet, Embedded: embedded}) }()
	got := runUntil(t, show, 10, pipeline.Deps{Embedded: embedded})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	seen := map[string]int{}
	for _, line := range got {
		seen[line]++
	}
	for n := range 10 {
		want := fmt.Sprintf(`{"m":%d,"n":%d}`, n+1, n)
		if n == 3 {
			want = `{"n":3}`
		}
		if seen[want] != 1 {
			t.Errorf("%s is seen %d times in %q", want, seen[want], got)
		}
	}
}

func TestWithExactlyOnceCallsAreShort(t *testing.T) {
	text := onceFile + "x: 1\n"
	text = strings.Replace(strings.TrimSuffix(text, "x: 1\n"), "process:\n", "process:\n  - http: {url: 'http://127.0.0.1:1/', into: .a}\n", 1)
	p := mustLoad(t, text)
	if got := pipeline.TotalTimeout(p, 0); got != 20*time.Second {
		t.Errorf("total_timeout is %v where it is left out, want 20s", got)
	}
	for _, c := range []struct {
		ms, calls int
		want      time.Duration
	}{{10000, 1, 3330 * time.Millisecond}, {60000, 2, 10 * time.Second}, {120000, 2, 20 * time.Second}, {600000, 3, 20 * time.Second}} {
		file := strings.Replace(text, "kafka: {topic: out}", fmt.Sprintf("kafka: {topic: out, options: {transaction.timeout.ms: %d}}", c.ms), 1)
		file = strings.Replace(file, "process:\n", "process:\n"+strings.Repeat("  - http: {url: 'http://127.0.0.1:1/', into: .b}\n", c.calls-1), 1)
		if got := pipeline.TotalTimeout(mustLoad(t, file), 0); got != c.want {
			t.Errorf("total_timeout is %v with %d calls in a transaction of %dms, want %v: together a third of it, so that a call that hangs fails before the transaction is aborted at half",
				got, c.calls, c.ms, c.want)
		}
	}
	p = mustLoad(t, strings.Replace(text, "delivery: exactly_once\n", "", 1))
	if got := pipeline.TotalTimeout(p, 0); got != time.Minute {
		t.Errorf("total_timeout is %v at least once, want 60s", got)
	}
}

func TestTheTransactionalIDIsTheGroupAndTheInstance(t *testing.T) {
	for change, want := range map[string]string{
		"":                      "once-w1",
		`source.kafka.group=g`:  "g-w1",
		`transactional_id=mine`: "mine",
	} {
		var set []string
		if change != "" {
			set = []string{change}
		}
		p, err := pipeline.Load(write(t, "p.yaml", onceFile), pipeline.Options{Set: set})
		if err != nil {
			t.Fatal(err)
		}
		if got := pipeline.TransactionalID(p); got != want {
			t.Errorf("with %q it is %q, want %q", change, got, want)
		}
	}
}
