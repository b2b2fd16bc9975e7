package kafka

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/a0c75104/enricher/streammanager"
)

// Options of the client library that the source and the sink would be opened with.

func (s *Source) ClientOptions() []kgo.Opt { return s.opts(context.Background()) }

func (s *Sink) ClientOptions() []kgo.Opt {
	return s.opts(context.Background(), s.newLimits(context.Background()))
}

// LogsIn is how s logs in.
func (s *SASL) LogsIn() sasl.Mechanism { return s.mechanism() }

// Client is the library's, behind the back of an open source.
func (s *Source) Client() *kgo.Client { return s.cl }

// RecordIn reports whether batches hold a record at or behind an offset.
var RecordIn = recordIn

// Suspect has a guard see the same stand still in one look after each of waits, and returns for how long it takes that to
// be so, and in how many looks.
func Suspect(unit time.Duration, sleep func(time.Duration), waits ...time.Duration) (still time.Duration, looks int) {
	g := &guard{s: &Source{t: &troubles{}}, unit: unit, suspected: map[suspect]*suspicion{}}
	for _, wait := range waits {
		sleep(wait)
		g.begin()
		var sus *suspicion
		sus, still = g.suspect(suspect{what: streammanager.StallMember}, 1)
		looks = sus.looks
		g.end()
	}
	return still, looks
}

// AskRefetch is what the guard asks Poll for.
func (s *Source) AskRefetch(at streammanager.TopicPartition, next int64) { s.askRefetch(at, next) }

// NoteTrouble notes that no broker answers, and returns what is wrong then.
func NoteTrouble(log *slog.Logger, err error) error {
	t := newTroubles(log, &Connection{})
	t.note(trouble{kind: troubleCluster}, err)
	return t.worst(troubleCluster)
}
