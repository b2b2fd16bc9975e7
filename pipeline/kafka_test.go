package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/pipeline"
)

func TestAClientSettingOfTheOtherSideIsTaken(t *testing.T) {
	text := "name: p\nkafka: {brokers: [h:9092]}\nsource: {kafka: {topics: [a]}}\nsink: {kafka: {topic: b, options: {fetch.max.bytes: 2048}}}\n"
	for _, set := range []string{`source.kafka.options["linger.ms"]=5`, `sink.kafka.options["session.timeout.ms"]=9000`} {
		if _, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{Set: []string{set}}); err != nil {
			t.Errorf("--set %s:\n%v", set, err)
		}
	}
	if _, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{Set: []string{`source.kafka.options["linger.ms"]=soon`}}); err == nil {
		t.Error("a value that is no number was taken")
	}
}

func TestATokenFileAloneIsALogin(t *testing.T) {
	mustLoad(t, "name: p\nkafka: {brokers: [h:9092], sasl: {mechanism: OAUTHBEARER, token_file: /run/token}}\nsource: {kafka: {topics: [a]}}\nsink: {file: {path: out}}\n")
}

func TestASinkThatAnExpressionMatchesInPartIsNoLoop(t *testing.T) {
	mustLoad(t, "name: p\nkafka: {brokers: [h:9092]}\nsource: {kafka: {topics: /a/}}\nsink: {kafka: {topic: a.enriched}}\n")
}

func TestAPathInAnotherProgramsSpellingIsCorrected(t *testing.T) {
	text := "name: p\nkafka: {brokers: [h:9092]}\nsource: {kafka: {topics: [a]}}\nprocess:\n  - jq: .a = 1\nsink: {kafka: {topic: b}}\n"
	for set, want := range map[string]string{
		"kafka.options.linger.ms=5":             `write kafka.options["linger.ms"]`,
		"source.kafka.options.fetch.max.bytes=": `write source.kafka.options["fetch.max.bytes"]`,
		"process.0.jq=.b = 1":                   `write process[0].jq`,
		"process.0=null":                        `write process[0]`,
	} {
		if _, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{Set: []string{set}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: got %v, want it to say: %s", set, err, want)
		}
	}
}

func TestATopicThatAnEventNamesIsRejectedWhereItCannotBe(t *testing.T) {
	const (
		names  = "name: p\nkafka: {brokers: [h:9092]}\nsource: {kafka: {topics: [in, back]}}\nsink: {kafka: {topic: '\\(.t)'}}\n"
		regexp = "name: p\nkafka: {brokers: [h:9092]}\nsource: {kafka: {topics: /in.*/}}\nsink: {kafka: {topic: '\\(.t)'}}\n"
		other  = "name: p\nsource: {kafka: {brokers: [a:1], topics: [in]}}\nsink: {kafka: {brokers: [b:1], topic: '\\(.t)'}}\n"
		same   = "name: p\nsource: {kafka: {brokers: [a:1], topics: [in]}}\nsink: {kafka: {brokers: [b:1, A:1], topic: '\\(.t)'}}\n"
		lines  = "name: p\nsource: {file: {path: '-'}}\nsink: {kafka: {brokers: [b:1], topic: '\\(.t)'}}\n"
	)
	for _, tt := range []struct{ name, text, topic, want string }{
		{"another topic is taken", names, "out", ""},
		{"a topic of the source", names, "in", "the source reads"},
		{"another topic of the source", names, "back", "the source reads"},
		{"a topic that the source's expression matches", regexp, "in.2", "the source reads"},
		{"a topic that the expression matches in part is taken", regexp, "my.in.2", ""},
		{"the same name in another cluster is taken", other, "in", ""},
		{"a cluster that has a broker in common is the same", same, "in", "the source reads"},
		{"a file is no topic", lines, "in", ""},
		{"no name", names, "a b", "no name of a topic"},
		{"a directory", names, "..", "no name of a topic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			topic, err := pipeline.TopicOf(mustLoad(t, tt.text), valued(`{"t":"`+tt.topic+`"}`))
			if tt.want == "" {
				if err != nil || topic != tt.topic {
					t.Errorf("got %q, %v, want %q", topic, err, tt.topic)
				}
				return
			}
			r, ok := errors.AsType[*event.RejectError](err)
			if !ok || r.Type != event.Rejected || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, %v, want rejected: %s", topic, err, tt.want)
			}
		})
	}
}

func TestAnEventThatNamesATopicOfItsSourceGoesRoundOnce(t *testing.T) {
	fill := mustLoad(t, "name: fill\nkafka: {brokers: embedded}\nsource: {file: {path: '-'}}\nsink: {kafka: {topic: in}}\n")
	loop := mustLoad(t, "name: loop\nkafka: {brokers: embedded}\nsource: {kafka: {topics: [in]}}\nsink: {kafka: {topic: '\\(.t)'}}\n"+
		"error_sink: {file: {path: '-'}}\n")
	embedded := &pipeline.Embedded{}
	defer embedded.Close()
	if err := embedded.Prepare(fill, loop); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := fill.Run(ctx, pipeline.Deps{Logger: quiet, Embedded: embedded, Stdin: strings.NewReader(`{"t":"in"}` + "\n")}); err != nil {
		t.Fatal(err)
	}
	if got := runUntil(t, loop, 1, pipeline.Deps{Embedded: embedded}); got[0] != `{"t":"in"}` {
		t.Errorf("the error event is %s", got[0])
	}
}

func TestWhatIsWrongForAllEndsOfAPipelineIsSaidOnce(t *testing.T) {
	p := mustLoad(t, "name: p\nkafka: {brokers: [h:9092]}\nsource: {kafka: {topics: [a]}}\nsink: {kafka: {topic: b}}\nerror_sink: {kafka: {topic: c}}\n")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		refused := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Run(ctx, pipeline.Deps{Logger: slog.New(slog.NewTextHandler(&log, nil)), Dialer: refused}); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "connection refused"); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, log.String())
		}
	})
}

func TestAnEventThatNamesATopicThatDoesNotExistHoldsUpNoOther(t *testing.T) {
	t.Parallel() // it takes as long as the topic is waited for
	p := mustLoad(t, "name: p\nsource: {file: {path: '-'}}\nsink: {kafka: {brokers: embedded, topic: '\\(.t)'}}\nerror_sink: {file: {path: '-'}}\n")
	names := mustLoad(t, "name: q\nsource: {file: {path: x}}\nsink: {kafka: {brokers: embedded, topic: out}}\n")
	embedded := &pipeline.Embedded{}
	defer embedded.Close()
	if err := embedded.Prepare(p, names); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	in := strings.NewReader(`{"t":"nowhere"}` + "\n" + `{"t":"out"}` + "\n")
	if err := p.Run(ctx, pipeline.Deps{Logger: quiet, Stdin: in, Stdout: &out, Embedded: embedded}); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil || out.String() != `{"t":"nowhere"}`+"\n" {
		t.Errorf("the error sink has %q, the context is %v", out.String(), ctx.Err())
	}
}
