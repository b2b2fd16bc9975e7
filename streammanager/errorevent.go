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

// cutToFit shortens the value of an error event until the error sink takes it, and says so.
func (s *Stream) cutToFit(f *Failure) (Record, error) {
	in := f.Input
	whole := len(in.Value())
	for keep := whole / 2; ; keep /= 2 {
		cut := *f
		headers := append(withoutErrorHeaders(in.Headers()), event.Header{
			Key: errorHeaders + "truncated", Value: []byte(strconv.Itoa(whole)),
		})
		cut.Input = event.New(in.Position(), in.Key(), in.Value()[:keep], headers, in.Timestamp())
		if len(cut.Message) > 1024 {
			cut.Message = cut.Message[:1024]
		}
		rec, err := s.errorRecord(&cut)
		if err != nil {
			return rec, err
		}
		rec.Headers = append(rec.Headers[:len(rec.Headers):len(rec.Headers)], headers[len(headers)-1])
		if err = s.errorChecker.Check(&rec); err == nil {
			return rec, nil
		}
		if keep == 0 {
			return rec, fmt.Errorf("error event of %s does not fit the error sink even without its value: %w", where(in.Position()), errors.Unwrap(err))
		}
	}
}

func where(p event.Position) string {
	return fmt.Sprintf("topic %q partition %d offset %d", p.Topic, p.Partition, p.Offset)
}
