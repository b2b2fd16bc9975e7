package pipeline_test

import (
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
