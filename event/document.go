package event

import (
	"fmt"
	"slices"
)

// fewPaths is how many paths an Event keeps track of without an allocation.
const fewPaths = 8

// document is what is known of an event's value as JSON. It holds offsets only, so it stays true for a
// copy of the bytes.
type document struct {
	ps   *Paths // the value is valid and these are found; nil: nothing is known
	few  [fewPaths]span
	many []span // instead of few where ps has more
}

func (d *document) reset() { d.ps = nil }

// share returns d for another event, so that neither sees what the other finds.
func (d *document) share() document {
	c := *d
	c.many = slices.Clone(d.many)
	return c
}

// spans returns room for n spans.
func (d *document) spans(n int) []span {
	if n <= fewPaths {
		return d.few[:n]
	}
	if cap(d.many) < n {
		d.many = make([]span, n)
	}
	d.many = d.many[:n]
	return d.many
}

// known returns where p lies, if that is known without reading.
func (d *document) known(p Path) (span, bool) {
	if d.ps == nil {
		return unknown, false
	}
	place, ok := d.ps.places[p.String()]
	if !ok {
		return unknown, false
	}
	sp := d.spans(len(d.ps.list))[place]
	return sp, sp != unknown
}

// note keeps where p lies, if p is among the paths that are kept.
func (d *document) note(p Path, sp span) {
	if d.ps == nil {
		return
	}
	if place, ok := d.ps.places[p.String()]; ok {
		d.spans(len(d.ps.list))[place] = sp
	}
}

// Check validates the value as one JSON text and finds the paths of ps in the same pass. An invalid
// value is a Reject of type InvalidEvent, and so is one in which a member along a path of ps stands
// twice. Later calls of Get for a path of ps read no bytes. A nil ps only validates.
func (e *Event) Check(ps *Paths) error {
	if ps == nil {
		ps = noPaths
	}
	if e.doc.ps == ps {
		return nil
	}
	if e.Tombstone() {
		return Rejectf(InvalidEvent, "reading the value: it is null")
	}
	s := scanner{b: e.value, spans: e.doc.spans(len(ps.list))}
	clear(s.spans)
	e.doc.ps = nil
	if _, ok := s.text(ps.trie, 0); !ok {
		return Reject(InvalidEvent, fmt.Errorf("reading the value: %w", s.failure()))
	}
	e.doc.ps = ps
	return nil
}

// Get returns the JSON text at p, nil where jq would give null for a missing field. The caller does
// not write to it. A path through a scalar is a Reject of type Expression, an invalid value one of
// type InvalidEvent.
func (e *Event) Get(p Path) ([]byte, error) {
	if sp, ok := e.doc.known(p); ok && sp != broken {
		return e.bytes(sp), nil
	}
	steps, sp, err := e.locate(p)
	if err != nil {
		return nil, err
	}
	if steps < len(p.steps) {
		sp = missing
	}
	e.doc.note(p, sp)
	return e.bytes(sp), nil
}

func (e *Event) bytes(sp span) []byte {
	if !sp.found() {
		return nil
	}
	return e.value[sp.start:sp.end:sp.end]
}

// locate follows p as far as the value has it. It returns the number of steps and the span of the
// value reached. The next step, if any, could be made there: the value is null, an object without the
// member or an array without the element.
func (e *Event) locate(p Path) (int, span, error) {
	if e.Tombstone() {
		return 0, missing, Rejectf(InvalidEvent, "reading %s: the value is null", p)
	}
	var room [fewPaths]span
	spans := room[:]
	if len(p.steps) < fewPaths {
		spans = spans[:len(p.steps)+1]
	} else {
		spans = make([]span, len(p.steps)+1)
	}
	s := scanner{b: e.value, spans: spans}
	if _, ok := s.text(p.trie(), 0); !ok {
		return 0, missing, Reject(InvalidEvent, fmt.Errorf("reading %s: %w", p, s.failure()))
	}
	steps := len(p.steps)
	for !spans[steps].found() {
		steps--
	}
	sp := spans[steps]
	if steps < len(p.steps) && spans[steps+1] == broken {
		return 0, missing, Rejectf(Expression, "reading %s: cannot index %s with %s",
			p, kind(e.value[sp.start]), p.steps[steps].key())
	}
	return steps, sp, nil
}

// kind names the type of the value that starts with c, as jq does.
func kind(c byte) string {
	switch c {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		return "number"
	}
}
