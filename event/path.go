package event

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Path is a plain path as jq writes it: .a.b, .a["b-c"], .a[0]; "." is the root, and so is the zero
// Path.
type Path struct {
	text  string
	steps []step
	own   *trie // finds the path and every path above it: place k is that of the first k steps
}

type step struct {
	name  string
	index int // used where name is not
	isIdx bool
}

// key returns the step as error messages of jq spell it.
func (s step) key() string {
	if s.isIdx {
		return "number"
	}
	return strconv.Quote(s.name)
}

// ParsePath compiles a plain path. Its error means that text is no plain path; it may still be a jq
// program.
func ParsePath(text string) (Path, error) {
	steps, err := parseSteps(strings.TrimSpace(text))
	if err != nil {
		return Path{}, fmt.Errorf("parsing path %q: not a plain path: %w", text, err)
	}
	p := Path{text: spell(steps), steps: steps}
	above := make([][]step, len(steps)+1)
	for k := range above {
		above[k] = steps[:k]
	}
	p.own = newTrie(above)
	return p, nil
}

// String returns the path in its canonical spelling.
func (p Path) String() string {
	if p.text == "" {
		return "."
	}
	return p.text
}

// Root reports whether the path is ".", the whole value.
func (p Path) Root() bool { return len(p.steps) == 0 }

func (p Path) trie() *trie {
	if p.own == nil {
		return rootTrie
	}
	return p.own
}

func parseSteps(text string) ([]step, error) {
	if !strings.HasPrefix(text, ".") {
		return nil, errors.New("it does not start with a dot")
	}
	if text == "." {
		return nil, nil
	}
	var steps []step
	for rest := text; rest != ""; {
		if len(steps) == maxDepth {
			return nil, fmt.Errorf("it has more than %d steps", maxDepth)
		}
		if rest[0] != '.' && (rest[0] != '[' || len(steps) == 0) {
			return nil, fmt.Errorf("%q does not start a step", rest)
		}
		s, left, err := parseStep(strings.TrimPrefix(rest, "."))
		if err != nil {
			return nil, err
		}
		steps, rest = append(steps, s), left
	}
	return steps, nil
}

// parseStep reads one step without its dot and returns what follows it.
func parseStep(text string) (s step, rest string, err error) {
	switch {
	case text == "":
		return s, "", errors.New("a name is missing after the last dot")
	case text[0] == '"':
		s.name, rest, err = parseQuoted(text)
		return s, rest, err
	case text[0] == '[':
		return parseBracket(text[1:])
	}
	n := 0
	for n < len(text) && (letter(text[n]) || n > 0 && digit(text[n])) {
		n++
	}
	if n == 0 {
		return s, "", fmt.Errorf("%q is no name; write [\"…\"] around it", text)
	}
	return step{name: text[:n]}, text[n:], nil
}

func parseBracket(text string) (s step, rest string, err error) {
	if strings.HasPrefix(text, `"`) {
		s.name, rest, err = parseQuoted(text)
	} else {
		s.isIdx = true
		s.index, rest, err = parseIndex(text)
	}
	if err != nil {
		return s, "", err
	}
	rest, ok := strings.CutPrefix(rest, "]")
	if !ok {
		return s, "", errors.New("a bracket is not closed after one name or index")
	}
	return s, rest, nil
}

func parseIndex(text string) (index int, rest string, err error) {
	n := 0
	for n < len(text) && digit(text[n]) {
		n++
	}
	switch {
	case strings.HasPrefix(text, "-"):
		return 0, "", errors.New("an index is negative")
	case n == 0 || n > 1 && text[0] == '0':
		return 0, "", errors.New("a bracket holds neither a quoted name nor a whole number")
	}
	// 32 bits, so that a path means the same on every machine.
	i, err := strconv.ParseInt(text[:n], 10, 32)
	if err != nil {
		return 0, "", fmt.Errorf("the index %s is too large", text[:n])
	}
	return int(i), text[n:], nil
}

// parseQuoted reads a name in double quotes. An interpolation of jq, \(…), is no escape of JSON, so
// it is refused here.
func parseQuoted(text string) (name, rest string, err error) {
	s := scanner{b: []byte(text)}
	end := s.str(0)
	if end < 0 {
		return "", "", fmt.Errorf("reading a quoted name: %w", s.failure())
	}
	name, err = Unquote([]byte(text[:end]))
	return name, text[end:], err
}

func spell(steps []step) string {
	if len(steps) == 0 {
		return "."
	}
	var b []byte
	for i, s := range steps {
		switch {
		case !s.isIdx && identifier(s.name):
			b = append(append(b, '.'), s.name...)
			continue
		case i == 0:
			b = append(b, '.')
		}
		b = append(b, '[')
		if s.isIdx {
			b = strconv.AppendInt(b, int64(s.index), 10)
		} else {
			b = AppendString(b, s.name)
		}
		b = append(b, ']')
	}
	return string(b)
}

func identifier(s string) bool {
	for i := range len(s) {
		if !letter(s[i]) && (i == 0 || !digit(s[i])) {
			return false
		}
	}
	return s != ""
}

func letter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }
func digit(c byte) bool  { return '0' <= c && c <= '9' }
