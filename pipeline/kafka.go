package pipeline

import (
	"errors"

	"github.com/a0c75104/enricher/streammanager"
)

// Embedded is the broker inside the process that pipelines with `brokers: embedded` share. The zero
// Embedded is ready for use; it starts with the first pipeline that needs it.
type Embedded struct{}

// Close ends the broker, if it was started.
func (e *Embedded) Close() error { return nil }

var errNoKafka = errors.New("this build has no kafka client")

func (a *assembly) start() error { return nil }

func (a *assembly) kafkaSource(*kafkaSource) (streammanager.Source, error) { return nil, errNoKafka }

func (a *assembly) kafkaSink(*kafkaSink) (streammanager.Sink, error) { return nil, errNoKafka }

// options lists the client settings.
func (d *documenter) options() {}
