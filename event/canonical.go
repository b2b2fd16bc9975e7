package event

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// maxCanonicalDepth bounds the nesting of a key: sorting copies each level once more.
const maxCanonicalDepth = 128

var errDeepKey = errors.New("it is nested too deeply for a key")

// AppendCanonical appends raw in the spelling by which keys are compared: strings unescaped and
// spelled one way, numbers as spelled, no white space, object members sorted.
func AppendCanonical(dst, raw []byte) ([]byte, error) {
	s := scanner{b: raw}
	sp, ok := s.text(nil, 0)
	if !ok {
		return nil, fmt.Errorf("spelling a value canonically: %w", s.failure())
	}
	c := canonical{scanner: s}
	dst, _ = c.value(dst, sp.start, 1)
	if c.deep {
		return nil, fmt.Errorf("spelling a value canonically: %w", errDeepKey)
	}
	return dst, nil
}

// canonical walks over a valid text.
type canonical struct {
	scanner
	deep bool // the text is nested too deeply, and what was appended is worth nothing
}

func (c *canonical) value(dst []byte, i, depth int) ([]byte, int) {
	if depth > maxCanonicalDepth {
		c.deep = true
		return dst, c.scanner.value(nil, i, 0)
	}
	switch c.b[i] {
	case '"':
		return c.str(dst, i)
	case '{':
		return c.object(dst, i, depth)
	case '[':
		return c.array(dst, i, depth)
	}
	end := c.scanner.value(nil, i, 0)
	return append(dst, c.b[i:end]...), end
}

// str appends a string. One without an escape is canonical: what must be escaped was.
func (c *canonical) str(dst []byte, i int) ([]byte, int) {
	end := c.scanner.str(i)
	if !c.escaped {
		return append(dst, c.b[i:end]...), end
	}
	dst = append(dst, '"')
	for i++; i < end-1; {
		r, size := character(c.b[i : end-1])
		dst = appendCharacter(dst, r)
		i += size
	}
	return append(dst, '"'), end
}

func (c *canonical) array(dst []byte, i, depth int) ([]byte, int) {
	dst = append(dst, '[')
	i = c.space(i + 1)
	for c.b[i] != ']' {
		if c.b[i] == ',' {
			dst = append(dst, ',')
			i = c.space(i + 1)
		}
		dst, i = c.value(dst, i, depth+1)
		i = c.space(i)
	}
	return append(dst, ']'), i + 1
}

// entry is one member of an object: its canonical text, of which the first bytes are the name.
type entry struct {
	text []byte
	name int
}

// object appends an object with its members sorted. Members of the same name keep their order.
func (c *canonical) object(dst []byte, i, depth int) ([]byte, int) {
	var entries []entry
	i = c.space(i + 1)
	for c.b[i] != '}' {
		if c.b[i] == ',' {
			i = c.space(i + 1)
		}
		var m entry
		m.text, i = c.str(nil, i)
		m.name = len(m.text)
		m.text = append(m.text, ':')
		m.text, i = c.value(m.text, c.space(c.space(i)+1), depth+1)
		entries = append(entries, m)
		i = c.space(i)
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		// Without the closing quote, which would sort after some characters.
		x, y := a.text[:a.name-1], b.text[:b.name-1]
		return cmp.Or(bytes.Compare(x, y), cmp.Compare(a.name, b.name))
	})
	dst = append(dst, '{')
	for n, m := range entries {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.text...)
	}
	return append(dst, '}'), i + 1
}
