package event

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a value, as encoding/json does: the scanner recurses.
const maxDepth = 10000

// span is where the value of a path lies. Its end is above 0 exactly if the path was found.
type span struct{ start, end int }

// What a span says of a path that was not found.
var (
	missing = span{}
	broken  = span{start: -1} // the path leads through a value that cannot be indexed so
	unknown = span{start: -2} // an edit may have changed it
)

func (s span) found() bool { return s.end > 0 }

// scanner reads one JSON text strictly by RFC 8259. On the way it notes where the paths of a trie lie
// and refuses a second member of the same name along one of them. Its methods take the place where
// something starts and return the place after it, or -1 once they have noted what is wrong.
type scanner struct {
	b       []byte
	spans   []span // by the place of the path; nil where nothing is looked for
	seen    uint64 // bit i: the step with number i was met
	more    []uint64
	escaped bool // the string read last holds an escape

	at     int // where the text is wrong
	reason string
}

// text reads the whole text, whose value lies depth levels deep in another, and returns where the
// value starts and ends.
func (s *scanner) text(t *trie, depth int) (span, bool) {
	var root *node
	if t != nil && t.paths > 0 {
		root = t.root
		if t.nodes > 64 {
			s.more = make([]uint64, t.nodes/64+1)
		}
	}
	start := s.space(0)
	if start == len(s.b) {
		s.fail(start, "there is no value")
		return span{}, false
	}
	end := s.value(root, start, depth)
	if end < 0 {
		return span{}, false
	}
	if i := s.space(end); i != len(s.b) {
		s.fail(i, "something follows the value")
		return span{}, false
	}
	return span{start, end}, true
}

// twice is the reason for a name that stands again in the object, at the place of the second.
const twice = "a name that is read or set stands twice in one object"

func (s *scanner) fail(i int, reason string) int {
	s.at, s.reason = i, reason
	return -1
}

// failure returns what a method noted before it returned -1. It formats without fmt, through which s
// and its spans would escape to the heap.
func (s *scanner) failure() error {
	if s.reason == twice { // such a text is JSON
		name := s.b[s.at:s.str(s.at)]
		return errors.New("the name " + strings.ToValidUTF8(string(clip(name)), "…") + " stands twice in one object, again at byte " + strconv.Itoa(s.at) + ", and is read or set")
	}
	return errors.New("not JSON at byte " + strconv.Itoa(s.at) + ": " + s.reason)
}

// peek returns the byte at i, 0 after the end: no token starts with it.
func (s *scanner) peek(i int) byte {
	if i < len(s.b) {
		return s.b[i]
	}
	return 0
}

func (s *scanner) space(i int) int {
	for i < len(s.b) && s.b[i] <= ' ' && (s.b[i] == ' ' || s.b[i] == '\n' || s.b[i] == '\r' || s.b[i] == '\t') {
		i++
	}
	return i
}

func (s *scanner) value(n *node, i, depth int) int {
	if n != nil {
		return s.tracked(n, i, depth)
	}
	switch c := s.peek(i); c {
	case '"':
		return s.str(i)
	case '{':
		return s.object(nil, i, depth+1)
	case '[':
		return s.array(nil, i, depth+1)
	default:
		return s.scalar(i, c)
	}
}

// tracked reads a value that paths lead to.
func (s *scanner) tracked(n *node, i, depth int) int {
	end := 0
	switch c := s.peek(i); c {
	case '{':
		s.breakOff(n.elements)
		end = s.object(n, i, depth+1)
	case '[':
		s.breakOff(n.members)
		end = s.array(n, i, depth+1)
	case 'n':
		end = s.scalar(i, c)
	default:
		s.breakOff(n.elements)
		s.breakOff(n.members)
		end = s.value(nil, i, depth)
	}
	if n.place >= 0 && end > 0 {
		s.spans[n.place] = span{i, end}
	}
	return end
}

// breakOff notes that no path through nodes can be followed.
func (s *scanner) breakOff(nodes []*node) {
	for _, n := range nodes {
		if n.place >= 0 {
			s.spans[n.place] = broken
		}
		s.breakOff(n.members)
		s.breakOff(n.elements)
	}
}

func (s *scanner) object(n *node, i, depth int) int {
	if depth > maxDepth {
		return s.fail(i, "it is nested too deeply")
	}
	i = s.space(i + 1)
	if s.peek(i) == '}' {
		return i + 1
	}
	for {
		if s.peek(i) != '"' {
			return s.fail(i, "a name in double quotes is missing")
		}
		name := i
		if i = s.str(i); i < 0 {
			return -1
		}
		var kid *node
		if n != nil {
			if kid = n.member(s.b[name+1:i-1], s.escaped); kid != nil && s.again(kid.number) {
				return s.fail(name, twice)
			}
		}
		if i = s.space(i); s.peek(i) != ':' {
			return s.fail(i, "a colon is missing")
		}
		if i = s.value(kid, s.space(i+1), depth); i < 0 {
			return -1
		}
		i = s.space(i)
		switch s.peek(i) {
		case ',':
			i = s.space(i + 1)
		case '}':
			return i + 1
		default:
			return s.fail(i, "a comma or closing brace is missing")
		}
	}
}

// again notes that the step of that number was met and reports whether it was before. A trie's node
// is met at most once in a text without such a repetition, so one note per text is enough.
func (s *scanner) again(number int) bool {
	word := &s.seen
	if s.more != nil {
		word = &s.more[number/64]
	}
	bit := uint64(1) << (number % 64)
	met := *word&bit != 0
	*word |= bit
	return met
}

func (s *scanner) array(n *node, i, depth int) int {
	if depth > maxDepth {
		return s.fail(i, "it is nested too deeply")
	}
	i = s.space(i + 1)
	if s.peek(i) == ']' {
		return i + 1
	}
	var wanted []*node // ascending, from the next one on
	if n != nil {
		wanted = n.elements
	}
	for index := 0; ; index++ {
		var kid *node
		if len(wanted) > 0 && wanted[0].step.index == index {
			kid, wanted = wanted[0], wanted[1:]
		}
		if i = s.value(kid, i, depth); i < 0 {
			return -1
		}
		i = s.space(i)
		switch s.peek(i) {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1
		default:
			return s.fail(i, "a comma or closing bracket is missing")
		}
	}
}

func (s *scanner) scalar(i int, first byte) int {
	switch first {
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number(i)
	}
	return s.fail(i, "a value is missing")
}

func (s *scanner) literal(i int, word string) int {
	if len(s.b)-i < len(word) || string(s.b[i:i+len(word)]) != word {
		return s.fail(i, "a value is misspelled")
	}
	return i + len(word)
}

func (s *scanner) number(i int) int {
	if s.b[i] == '-' {
		i++
	}
	if s.peek(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return -1
	}
	if s.peek(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if s.peek(i)|0x20 == 'e' {
		i++
		if c := s.peek(i); c == '+' || c == '-' {
			i++
		}
		return s.digits(i)
	}
	return i
}

// digits reads one digit or more.
func (s *scanner) digits(i int) int {
	if !digit(s.peek(i)) {
		return s.fail(i, "a digit is missing")
	}
	for i < len(s.b) && digit(s.b[i]) {
		i++
	}
	return i
}

// str reads a string from its opening quote.
func (s *scanner) str(i int) int {
	s.escaped = false
	i++
	for {
		i = plain(s.b, i)
		if i == len(s.b) {
			return s.fail(i, "a string is not closed")
		}
		switch c := s.b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			s.escaped = true
			if i = s.escape(i); i < 0 {
				return -1
			}
		case c < ' ':
			return s.fail(i, "a control character stands unescaped in a string")
		default:
			if i = s.wide(i); i < 0 {
				return -1
			}
		}
	}
}

// wide reads a run of characters outside ASCII. Most have two bytes, or three of which the first
// allows any other two; those are read without decoding.
func (s *scanner) wide(i int) int {
	for i < len(s.b) && s.b[i] >= utf8.RuneSelf {
		c := s.b[i]
		if 0xC2 <= c && c <= 0xDF && s.peek(i+1)&0xC0 == 0x80 {
			i += 2
			continue
		}
		if 0xE1 <= c && c <= 0xEF && c != 0xED && s.peek(i+1)&0xC0 == 0x80 && s.peek(i+2)&0xC0 == 0x80 {
			i += 3
			continue
		}
		r, size := utf8.DecodeRune(s.b[i:])
		if r == utf8.RuneError && size == 1 {
			return s.fail(i, "a string is not valid UTF-8")
		}
		i += size
	}
	return i
}

// escape reads one escape from its backslash. Halves of surrogate pairs need no partner.
func (s *scanner) escape(i int) int {
	switch s.peek(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if _, ok := hex4(s.b, i+2); ok {
			return i + 6
		}
	}
	return s.fail(i, "an escape is misspelled")
}

// plain returns the first place from i on that holds a quote, a backslash, a control character or a
// byte outside ASCII, or the end of b. It looks at eight bytes at once: in each term below, the lowest
// set top bit marks the first byte that matches or lies outside ASCII.
func plain(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for len(b)-i >= 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^('"'*ones), w^('\\'*ones)
		stop := (w | (w - ' '*ones) | (quote - ones) | (slash - ones)) & tops
		if stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte, i int) (rune, bool) {
	if len(b)-i < 4 {
		return 0, false
	}
	r := rune(0)
	for _, c := range b[i : i+4] {
		switch {
		case digit(c):
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = (c | 0x20) - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
