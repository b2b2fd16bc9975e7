package streammanager

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
)

// errorHeaders is the prefix of the headers of an error event.
const errorHeaders = "enricher.error."

// failure describes the error event that err makes of u.
func (s *Stream) failure(u *unit, err error, function string, attempts, status int) *Failure {
	r := event.AsReject(err)
	if r.Status != 0 {
		status = r.Status
	}
	message := "unknown error"
	if r.Err != nil {
		message = r.Err.Error()
	}
	return &Failure{
		Input: u.ev, Type: r.Type, Function: function, Message: message,
		Attempts: attempts, Status: status, Time: time.Now(), Pipeline: s.cfg.Name,
	}
}

// RecordFormat is the error event's usual form: key, value and headers as they came, and headers that
// say what went wrong.
func RecordFormat(f *Failure) (*event.Event, error) {
	in := f.Input
	pos := in.Position()
	headers := withoutErrorHeaders(in.Headers())
	add := func(name, value string) {
		headers = append(headers, event.Header{Key: errorHeaders + name, Value: []byte(value)})
	}
	add("type", string(f.Type))
	add("message", f.Message)
	add("function", f.Function)
	add("attempts", strconv.Itoa(f.Attempts))
	if f.Status != 0 {
		add("status", strconv.Itoa(f.Status))
	}
	add("topic", pos.Topic)
	add("partition", strconv.Itoa(int(pos.Partition)))
	add("offset", strconv.FormatInt(pos.Offset, 10))
	add("timestamp", strconv.FormatInt(in.Timestamp().UnixMilli(), 10))
	add("time", f.Time.UTC().Format(time.RFC3339Nano))
	add("pipeline", f.Pipeline)
	return event.New(pos, in.Key(), in.Value(), headers, f.Time), nil
}

// withoutErrorHeaders copies headers, leaving out those of an earlier failure.
func withoutErrorHeaders(headers []event.Header) []event.Header {
	kept := make([]event.Header, 0, len(headers)+11)
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, errorHeaders) {
			kept = append(kept, h)
		}
	}
	return kept
}

func hasErrorHeaders(headers []event.Header) bool {
	for _, h := range headers {
		if strings.HasPrefix(h.Key, errorHeaders) {
			return true
		}
	}
	return false
}

// errorRecord makes the record of an error event. A format that panics is an error like any other.
func (s *Stream) errorRecord(f *Failure) (rec Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("format of error events panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("formatting the error event: panic: %v", p)
		}
	}()
	ev, err := s.errorFormat(f)
	if err != nil {
		return Record{}, fmt.Errorf("formatting the error event: %w", err)
	}
	if s.errorPreparer != nil {
		rec, err := s.errorPreparer.Prepare(ev)
		if err != nil {
			return Record{}, fmt.Errorf("preparing the error event: %w", err)
		}
		return rec, nil
	}
	return recordOf(ev), nil
}

// cutToFit shortens an error event until the error sink takes it, and says so: first the value, then the
// headers go, then the key is shortened.
func (s *Stream) cutToFit(f *Failure) (Record, error) {
	in := f.Input
	whole := event.Header{Key: errorHeaders + "truncated", Value: []byte(strconv.Itoa(len(in.Value())))}
	key, value, headers := in.Key(), in.Value(), withoutErrorHeaders(in.Headers())
	cut := *f
	if len(cut.Message) > 1024 {
		cut.Message = strings.ToValidUTF8(cut.Message[:1024], "")
	}
	for {
		switch {
		case len(value) > 0:
			value = value[:len(value)/2]
		case len(headers) > 0:
			headers = nil
			cut.Message += " (the headers of the event did not fit)"
		case len(key) > 0:
			if len(key) == len(in.Key()) {
				cut.Message += " (the key of the event did not fit)"
			}
			key = key[:len(key)/2]
		default:
			return Record{}, errors.New("nothing of the event fits the error sink, not even the headers that say what failed")
		}
		cut.Input = event.New(in.Position(), key, value, headers, in.Timestamp())
		rec, err := s.errorRecord(&cut)
		if err != nil {
			return rec, err
		}
		rec.Headers = append(rec.Headers[:len(rec.Headers):len(rec.Headers)], whole)
		if s.errorChecker.Check(&rec) == nil {
			return rec, nil
		}
	}
}

func where(p event.Position) string {
	return fmt.Sprintf("topic %q partition %d offset %d", p.Topic, p.Partition, p.Offset)
}
