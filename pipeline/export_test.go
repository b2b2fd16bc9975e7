package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
	"github.com/a0c75104/enricher/streammanager"
)

// PlatformFormat is the error format of format: event_platform.
var PlatformFormat = platformFormat

// KeyOf returns the key of ev by partition_by.
func KeyOf(ev *event.Event, missing string, paths ...string) (streammanager.Key, error) {
	p := partitionBy{Missing: missing}
	for _, text := range paths {
		var f functions.Path
		if err := f.UnmarshalText([]byte(text)); err != nil {
			return streammanager.Key{}, err
		}
		p.Fields = append(p.Fields, f)
	}
	return p.keyOf(context.Background(), ev)
}

// RawKey returns the record key of ev by sink.kafka.key.
func RawKey(text string, ev *event.Event) ([]byte, error) {
	var e functions.Expr
	if err := e.UnmarshalText([]byte(text)); err != nil {
		return nil, err
	}
	return rawKey(context.Background(), e, ev)
}

// TopicOf returns the topic of ev by sink.kafka.topic of p.
func TopicOf(p *Pipeline, ev *event.Event) (string, error) {
	a := &assembly{p: p}
	k := p.cfg.Sink.Kafka
	return topicOf(context.Background(), k.Topic, ev, a.sourceReads(k))
}

// TotalTimeout is that of the n-th item, which is http.
func TotalTimeout(p *Pipeline, n int) time.Duration {
	return p.cfg.Process[n].options.(*asynchttp.Options).TotalTimeout.Duration()
}

// TransactionalID is the name of p's transactions.
func TransactionalID(p *Pipeline) string { return p.cfg.transactionalID() }

// GroupOfRepartition is whose records p writes to its repartition topic, and which group reads them.
func GroupOfRepartition(p *Pipeline) (written, read string, err error) {
	a := &assembly{p: p, log: slog.New(slog.DiscardHandler), dry: true}
	sink, err1 := a.repartitionSinkConfig()
	src, err2 := a.kafkaSourceConfig(p.cfg.Source.Kafka)
	return sink.Group, src.Group, errors.Join(err1, err2)
}

// Judge names what a replay makes of a record, and gives the event in it.
func (r *Replay) Judge(rec *streammanager.Record) (streammanager.Record, string, error) {
	e, v, err := r.choice.judge(context.Background(), rec)
	return e.Origin, [...]string{"chosen", "passed", "of others", "cut", "foreign", "unanswered"}[v], err
}

// Open finds the event in a record, as the stream asks for it.
func (r *Replay) Open(rec *streammanager.Record) (streammanager.Record, bool) {
	return r.open(context.Background(), rec)
}

// ErrorRecord makes the record of an error event, as the stream does.
func ErrorRecord(f *streammanager.Failure, platform bool) (streammanager.Record, error) {
	format := streammanager.ErrorFormat(streammanager.RecordFormat)
	if platform {
		format = platformFormat("errors")
	}
	ev, err := format(f)
	if err != nil {
		return streammanager.Record{}, err
	}
	return streammanager.Record{Topic: "e", Key: ev.Key(), Value: ev.Value(), Headers: ev.Headers(), Timestamp: ev.Timestamp()}, nil
}

// LogTo has r log to log.
func (r *Replay) LogTo(log *slog.Logger) { r.log = log }
