package pipeline_test

import (
	"strings"
	"testing"

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
