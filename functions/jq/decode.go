package jq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/a0c75104/enricher/event"
)

// decode turns one valid JSON text into gojq's values. Numbers stay as spelled. A member that occurs
// twice is an error, since a program that reads or writes the whole value would lose one of them.
func decode(raw []byte) (any, error) {
	v, _, err := decodeHalves(raw)
	return v, err
}

// decodeHalves is decode that says whether a string holds half of a surrogate pair.
func decodeHalves(raw []byte) (v any, lone bool, err error) {
	d := decoder{b: raw}
	v, err = d.value()
	if err != nil {
		return nil, false, event.Reject(event.InvalidEvent, err)
	}
	return v, d.lone, nil
}

// What decoded values take beside the bytes of their text, at most.
const (
	perValue  = 80  // its place in a list or an object, its text's header, and what these keep free to grow
	perObject = 320 // an object's table
)

// DecodedSize is what the values of a JSON text take in memory at most, where an expression needs more of it than a
// path. What is punctuation within strings counts too.
func DecodedSize(text []byte) int64 {
	count := func(c byte) int64 { return int64(bytes.Count(text, []byte{c})) }
	return int64(len(text)) + perValue*(1+count(',')+count(':')+count('[')) + perObject*count('{')
}

type decoder struct {
	b    []byte
	i    int
	lone bool // a string holds half of a surrogate pair
}

// space skips white space and returns the next byte, 0 at the end.
func (d *decoder) space() byte {
	for d.i < len(d.b) {
		switch c := d.b[d.i]; c {
		case ' ', '\t', '\n', '\r':
			d.i++
		default:
			return c
		}
	}
	return 0
}

func (d *decoder) value() (any, error) {
	switch c := d.space(); c {
	case '{':
		return d.object()
	case '[':
		return d.array()
	case '"':
		return d.text()
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.word("null")
	default:
		start := d.i
		for d.i < len(d.b) && strings.IndexByte("+-.0123456789Ee", d.b[d.i]) >= 0 {
			d.i++
		}
		if start == d.i {
			return nil, d.bad()
		}
		return json.Number(d.b[start:d.i]), nil
	}
}

func (d *decoder) word(w string) error {
	if !bytes.HasPrefix(d.b[d.i:], []byte(w)) {
		return d.bad()
	}
	d.i += len(w)
	return nil
}

func (d *decoder) object() (any, error) {
	m := map[string]any{}
	d.i++
	if d.space() == '}' {
		d.i++
		return m, nil
	}
	for {
		if d.space() != '"' {
			return nil, d.bad()
		}
		k, err := d.text()
		if err != nil {
			return nil, err
		}
		if d.space() != ':' {
			return nil, d.bad()
		}
		d.i++
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		if _, ok := m[k]; ok {
			return nil, fmt.Errorf("member %q occurs twice in one object", k)
		}
		m[k] = v
		if done, err := d.next('}'); done || err != nil {
			return m, err
		}
	}
}

func (d *decoder) array() (any, error) {
	a := []any{}
	d.i++
	if d.space() == ']' {
		d.i++
		return a, nil
	}
	for {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		a = append(a, v)
		if done, err := d.next(']'); done || err != nil {
			return a, err
		}
	}
}

// next goes past a comma, or past the closing byte end, which it reports.
func (d *decoder) next(end byte) (bool, error) {
	c := d.space()
	if c != end && c != ',' {
		return false, d.bad()
	}
	d.i++
	return c == end, nil
}

func (d *decoder) text() (string, error) {
	start := d.i
	for d.i++; d.i < len(d.b); d.i++ {
		switch d.b[d.i] {
		case '\\':
			d.i++
		case '"':
			d.i++
			s, lone, err := unquoteHalves(d.b[start:d.i])
			d.lone = d.lone || lone
			return s, err
		}
	}
	return "", d.bad()
}

func (d *decoder) bad() error { return fmt.Errorf("not a JSON text at byte %d", d.i) }
