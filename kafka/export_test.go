package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
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
