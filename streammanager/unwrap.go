package streammanager

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
)

// Unwrap has open find the event that a record of the source carries: with the key, value, headers, time and
// place that it had when it was first read. That is what filter, functions, sinks and error events get to see, while
// positions are those of the record. Where keep is false there is none for this stream: the record is finished at
// once, and is none that was read. open runs in the reader, one call at a time; what it returns may share the bytes
// of rec. A panic of it is an error event.
func (b *Builder) Unwrap(open func(ctx context.Context, rec *Record) (inner Record, keep bool)) *Builder {
	b.unwrap = open
	return b
}

// checkUnwrap finds what cannot be had together.
func (b *Builder) checkUnwrap() []error {
	if b.unwrap == nil || b.through.topic == "" {
		return nil
	}
	return []error{errors.New("unwrap: what goes through a repartition topic carries an event already: leave out Repartition")}
}

// opened returns what rec carries.
func (s *Stream) opened(ctx context.Context, rec *Record) (inner Record, keep bool, err error) {
	inner = *rec
	keep, err = s.guardBool(func() (yes bool, _ error) {
		inner, yes = s.unwrap(ctx, rec)
		return yes, nil
	})
	return inner, keep, err
}

// ErrorRecord is an error event that RecordFormat made, read back.
type ErrorRecord struct {
	Origin    Record // the event as it was read at first; its bytes are those of the record
	Type      event.Type
	Function  string
	Time      time.Time // of the failure
	Pipeline  string
	Truncated bool // Origin is not whole
}

// ReadError reads the record of an error event. An error means that it is none.
func ReadError(rec *Record) (ErrorRecord, error) {
	said := map[string]string{}
	e := ErrorRecord{Origin: Record{Key: rec.Key, Value: rec.Value, Headers: withoutErrorHeaders(rec.Headers)}}
	for _, h := range rec.Headers {
		if name, ok := strings.CutPrefix(h.Key, errorHeaders); ok {
			said[name] = string(h.Value)
		}
	}
	for _, name := range []string{"type", "topic", "partition", "offset", "timestamp", "time", "pipeline"} {
		if _, ok := said[name]; !ok {
			return ErrorRecord{}, fmt.Errorf("reading an error event: it has no header %s%s", errorHeaders, name)
		}
	}
	partition, err1 := strconv.ParseInt(said["partition"], 10, 32)
	offset, err2 := strconv.ParseInt(said["offset"], 10, 64)
	millis, err3 := strconv.ParseInt(said["timestamp"], 10, 64)
	at, err4 := time.Parse(time.RFC3339, said["time"])
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return ErrorRecord{}, fmt.Errorf("reading the headers of an error event: %w", err)
	}
	e.Origin.Topic, e.Origin.Partition, e.Origin.Offset = said["topic"], int32(partition), offset
	e.Origin.Timestamp = time.UnixMilli(millis)
	e.Type, e.Function, e.Time, e.Pipeline = event.Type(said["type"]), said["function"], at, said["pipeline"]
	_, e.Truncated = said["truncated"]
	return e, nil
}
