package event

import (
	"slices"
	"time"
)

// Position says where an event was read. Epoch counts the assignments of the partition to this
// worker: a result that carries an ended epoch is neither emitted nor marked.
type Position struct {
	Topic     string
	Partition int32
	Offset    int64
	Epoch     int64
}

// Header is one record header. Equal names may follow each other and keep their order.
type Header struct {
	Key   string
	Value []byte
}

// Event is one record on its way. Its methods are not safe for concurrent use; the stream hands every
// function an Event of its own.
type Event struct {
	key       []byte
	value     []byte
	headers   []Header
	timestamp time.Time
	pos       Position

	doc      document // what is known of the value as JSON
	attempts *Attempts
}

// New returns an event over the given parts. It takes them over: the caller does not write to them
// afterwards. A nil value is a tombstone, a nil key is no key.
func New(pos Position, key, value []byte, headers []Header, timestamp time.Time) *Event {
	return &Event{pos: pos, key: key, value: value, headers: headers, timestamp: timestamp}
}

// Key returns the record key, nil if it has none. The caller does not write to it.
func (e *Event) Key() []byte { return e.key }

// SetKey replaces the record key and takes key over; nil removes it.
func (e *Event) SetKey(key []byte) { e.key = key }

// Value returns the value, nil for a tombstone. The caller does not write to it.
func (e *Event) Value() []byte { return e.value }

// SetValue replaces the value and takes value over; nil makes the event a tombstone.
func (e *Event) SetValue(value []byte) {
	e.value = value
	e.doc.reset()
}

// Tombstone reports whether the value is null (not merely empty).
func (e *Event) Tombstone() bool { return e.value == nil }

// Headers returns the headers in order. The caller does not write to them.
func (e *Event) Headers() []Header { return e.headers }

// SetHeaders replaces all headers and takes the slice over.
func (e *Event) SetHeaders(headers []Header) { e.headers = headers }

// Header returns the last header of that name.
func (e *Event) Header(name string) ([]byte, bool) {
	for _, h := range slices.Backward(e.headers) {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// Timestamp returns the record's time.
func (e *Event) Timestamp() time.Time { return e.timestamp }

// SetTimestamp replaces the record's time.
func (e *Event) SetTimestamp(t time.Time) { e.timestamp = t }

// Position returns where the event was read. Events that a function derives keep the position of
// their input.
func (e *Event) Position() Position { return e.pos }

// Size returns the bytes that the event counts in the limits: key, value and headers.
func (e *Event) Size() int {
	n := len(e.key) + len(e.value)
	for _, h := range e.headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// Clone returns a copy that shares no bytes with e. Position and attempts are the same.
func (e *Event) Clone() *Event {
	c := e.Share()
	c.key = cloneBytes(e.key)
	c.value = cloneBytes(e.value)
	c.headers = slices.Clone(e.headers)
	for i := range c.headers {
		c.headers[i].Value = cloneBytes(c.headers[i].Value)
	}
	return c
}

// Share returns a second Event over the same bytes. Setting something on one does not change the
// other; writing into the bytes would, so it is for callers that only use Event's methods.
func (e *Event) Share() *Event {
	c := *e
	c.doc = e.doc.share()
	return &c
}

func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
