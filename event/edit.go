package event

import (
	"fmt"
)

// maxPadding bounds the nulls that Set puts before a new element, so that one index cannot fill the
// memory.
const maxPadding = 10000

// Set writes the JSON text raw at p, making missing objects and arrays on the way as jq does: null
// counts as missing, and an array is filled with nulls up to a new element. All other bytes of the
// value stay as they are. A path through any other scalar is a Reject of type Expression. Set keeps
// nothing of raw.
func (e *Event) Set(p Path, raw []byte) error {
	s := scanner{b: raw}
	sp, ok := s.text(nil, len(p.steps))
	if !ok {
		return fmt.Errorf("setting %s: %w", p, s.failure())
	}
	raw = raw[sp.start:sp.end]
	if p.Root() {
		e.SetValue(cloneBytes(raw))
		return nil
	}
	at, before, after, err := e.place(p)
	if err != nil {
		return err
	}
	size := len(before) + len(raw) + len(after)
	value := make([]byte, 0, len(e.value)-(at.end-at.start)+size)
	value = append(append(value, e.value[:at.start]...), before...)
	value = append(append(value, raw...), after...)
	e.value = append(value, e.value[at.end:]...)
	e.doc.moved(p, at, size)
	start := at.start + len(before)
	e.doc.note(p, span{start, start + len(raw)})
	return nil
}

// place returns which bytes of the value give way to what is set at p, and what goes before and after
// it there.
func (e *Event) place(p Path) (at span, before, after []byte, err error) {
	if sp, ok := e.doc.known(p); ok && sp.found() {
		return sp, nil, nil, nil
	}
	steps, sp, err := e.locate(p)
	if err != nil || steps == len(p.steps) {
		return sp, nil, nil, err
	}
	rest := p.steps[steps:]
	have := 0 // elements that are there already
	switch e.value[sp.start] {
	case '{':
		sp, before = e.roomIn(sp)
		before = append(AppendString(before, rest[0].name), ':')
		rest = rest[1:]
	case '[':
		have = e.elements(sp)
		sp, before = e.roomIn(sp)
		if before, err = pad(before, p, rest[0].index-have); err != nil {
			return sp, nil, nil, err
		}
		rest = rest[1:]
	}
	for _, s := range rest {
		if !s.isIdx {
			before = append(AppendString(append(before, '{'), s.name), ':')
			continue
		}
		if before, err = pad(append(before, '['), p, s.index); err != nil {
			return sp, nil, nil, err
		}
	}
	for i := len(rest) - 1; i >= 0; i-- {
		if rest[i].isIdx {
			after = append(after, ']')
		} else {
			after = append(after, '}')
		}
	}
	return sp, before, after, nil
}

func pad(dst []byte, p Path, nulls int) ([]byte, error) {
	if nulls > maxPadding {
		return nil, Rejectf(Expression, "setting %s: it lies %d elements behind the end of its array, more than %d",
			p, nulls, maxPadding)
	}
	for range nulls {
		dst = append(dst, "null,"...)
	}
	return dst, nil
}

// roomIn returns where a new last entry of the object or array at sp goes and the comma before it, if
// it needs one.
func (e *Event) roomIn(sp span) (span, []byte) {
	last := e.backOver(sp.end - 2)
	if last == sp.start {
		return span{last + 1, last + 1}, nil
	}
	return span{last + 1, last + 1}, []byte{','}
}

// backOver returns the last place up to i that holds no white space.
func (e *Event) backOver(i int) int {
	for e.value[i] == ' ' || e.value[i] == '\n' || e.value[i] == '\r' || e.value[i] == '\t' {
		i--
	}
	return i
}

// elements counts those of the array at sp.
func (e *Event) elements(sp span) int {
	s := scanner{b: e.value}
	i, n := s.space(sp.start+1), 0
	for i < sp.end-1 {
		n++
		i = s.space(s.value(nil, i, 0)) + 1 // over the comma or the bracket
		i = s.space(i)
	}
	return n
}

// Delete removes the member or element at p; a missing one is no error. Of the root it leaves null, as
// jq does.
func (e *Event) Delete(p Path) error {
	if p.Root() {
		return e.Set(p, []byte("null"))
	}
	sp, ok := e.doc.known(p)
	if !ok || !sp.found() {
		steps, at, err := e.locate(p)
		if err != nil || steps < len(p.steps) {
			return err
		}
		sp = at
	}
	cut := e.entry(p, sp)
	value := make([]byte, 0, len(e.value)-(cut.end-cut.start))
	e.value = append(append(value, e.value[:cut.start]...), e.value[cut.end:]...)
	e.doc.moved(p, cut, 0)
	return nil
}

// entry returns what has to go with the value at sp: its name and one comma.
func (e *Event) entry(p Path, sp span) span {
	start := sp.start
	if !p.steps[len(p.steps)-1].isIdx {
		start = e.nameBefore(start)
	}
	s := scanner{b: e.value}
	if next := s.space(sp.end); e.value[next] == ',' {
		return span{start, s.space(next + 1)}
	}
	if prev := e.backOver(start - 1); e.value[prev] == ',' {
		return span{e.backOver(prev-1) + 1, sp.end}
	}
	return span{start, sp.end}
}

// nameBefore returns where the name of the member starts whose value starts at i. Within the name
// every quote has a backslash before it.
func (e *Event) nameBefore(i int) int {
	colon := e.backOver(i - 1)
	i = e.backOver(colon-1) - 1
	for e.value[i] != '"' || e.value[i-1] == '\\' {
		i--
	}
	return i
}

// moved keeps what is still known after size bytes took the place of those at cut, for an edit at p.
func (d *document) moved(p Path, cut span, size int) {
	if d.ps == nil {
		return
	}
	grown := size - (cut.end - cut.start)
	spans := d.spans(len(d.ps.list))
	for i, q := range d.ps.list {
		sp := &spans[i]
		switch relate(p.steps, q.steps) {
		case apart:
			if sp.found() && sp.start >= cut.end {
				sp.start += grown
				sp.end += grown
			}
		case above:
			if sp.found() {
				sp.end += grown
			} else {
				*sp = unknown
			}
		case near:
			*sp = unknown
		}
	}
}

type relation int

const (
	apart relation = iota // no edit at one changes what is at the other
	above                 // the other path leads to a value that holds the edited one
	near                  // what is at the other path may have changed
)

// relate says how q lies to an edit at p.
func relate(p, q []step) relation {
	for i, s := range q {
		switch {
		case i == len(p):
			return near
		case s == p[i]:
		case s.isIdx || p[i].isIdx: // elements move, and null may have become an object
			return near
		default:
			return apart
		}
	}
	if len(q) < len(p) {
		return above
	}
	return near
}
