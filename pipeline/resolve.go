package pipeline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// part is one ${…} within a scalar: where it stood, where its value stands, and the value.
type part struct {
	name           string // as it was written, ${NAME}
	rawFrom, rawTo int
	from, to       int
	value          string
}

// maxFileValue bounds what ${file:PATH} reads.
const maxFileValue = 1 << 20

var (
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// errUnset says that a variable has neither a value nor a default.
	errUnset = errors.New("is not set and has no default: set it, or write ${NAME:-default}")
)

// resolver replaces ${NAME}, ${NAME:-default} and ${file:PATH} in scalars. $${ stands for ${.
type resolver struct {
	getenv     func(string) (string, bool)
	allowUnset bool
	literal    bool // ${…} is text like any other
}

// resolve replaces what n's text names, once. Errors name the reference and never a value.
func (r *resolver) resolve(n *node) []error {
	if n.resolved || n.kind != yaml.ScalarNode {
		return nil
	}
	n.resolved = true
	if r.literal || !strings.Contains(n.text, "${") {
		return nil
	}
	var (
		out  strings.Builder
		errs []error
		raw  = n.text
	)
	for at := 0; at < len(raw); {
		switch {
		case strings.HasPrefix(raw[at:], "$${"):
			n.parts = append(n.parts, part{name: "", rawFrom: at, rawTo: at + 3, from: out.Len(), to: out.Len() + 2})
			out.WriteString("${")
			at += 3
		case strings.HasPrefix(raw[at:], "${"):
			end := strings.IndexByte(raw[at:], '}')
			if end < 0 {
				return append(errs, errors.New("${ without }: write $${ for the text ${"))
			}
			name := raw[at : at+end+1]
			value, err := r.value(name[2:end])
			if errors.Is(err, errUnset) && r.allowUnset {
				n.unset, err = true, nil
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %w", name, err))
			}
			from := out.Len()
			out.WriteString(value)
			n.parts = append(n.parts, part{name: name, rawFrom: at, rawTo: at + end + 1, from: from, to: out.Len(), value: value})
			at += end + 1
		default:
			out.WriteByte(raw[at])
			at++
		}
	}
	n.text = out.String()
	return errs
}

// errNotText is the answer to bytes that no file could hold. They would not survive being quoted, so no
// message could hide them either.
var errNotText = errors.New("holds bytes that are not UTF-8: a value is text, as the file is")

// value is what ref stands for. It is text, as the file around it is.
func (r *resolver) value(ref string) (string, error) {
	v, err := r.raw(ref)
	if err == nil && !utf8.ValidString(v) {
		return "", errNotText
	}
	return v, err
}

func (r *resolver) raw(ref string) (string, error) {
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		return readValue(path)
	}
	name, def, hasDefault := strings.Cut(ref, ":-")
	if !variable.MatchString(name) {
		return "", errors.New("is no reference: write ${NAME}, ${NAME:-default} or ${file:PATH}, and $${ for the text ${")
	}
	v, ok := r.getenv(name)
	switch {
	case hasDefault && v == "":
		return def, nil
	case !ok:
		return "", errUnset
	default:
		return v, nil
	}
}

func readValue(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", pathless(err))
	}
	defer func() { _ = f.Close() }()                          // read only: nothing can be lost
	raw, err := io.ReadAll(io.LimitReader(f, maxFileValue+1)) // what a device says of its size is no bound
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", pathless(err))
	}
	if len(raw) > maxFileValue {
		return "", fmt.Errorf("is larger than %d bytes", maxFileValue)
	}
	text := strings.TrimSuffix(string(raw), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}

// replaced reports whether any of n's text came from outside the file.
func (n *node) replaced() bool {
	for _, p := range n.parts {
		if p.name != "" {
			return true
		}
	}
	return false
}

// mask hides in msg the values that n got from outside the file.
func (n *node) mask(msg string) string {
	for _, p := range n.parts {
		if p.name == "" || p.value == "" {
			continue
		}
		quoted := strconv.Quote(p.value)
		msg = strings.ReplaceAll(msg, quoted, p.name)
		if len(p.value) > 2 {
			msg = strings.ReplaceAll(msg, p.value, p.name)
			msg = strings.ReplaceAll(msg, quoted[1:len(quoted)-1], p.name)
		}
		msg = maskCut(msg, p)
	}
	return msg
}

// maskCut hides the value where a message shows its beginning and dots, as those of jq do.
func maskCut(msg string, p part) string {
	for _, dots := range []string{"...", " ...", "…"} {
		if !strings.Contains(msg, dots) {
			continue
		}
		for n := min(len(p.value)-1, 200); n > 2; n-- {
			msg = strings.ReplaceAll(msg, p.value[:n]+dots, p.name)
		}
	}
	return msg
}

// maskAll is mask for all that n holds.
func (n *node) maskAll(msg string) string {
	msg = n.mask(msg)
	for _, c := range n.vals {
		msg = c.maskAll(msg)
	}
	return msg
}

// place returns line and column of the byte at offset in n's text.
func (n *node) place(offset int) (line, col int) {
	if n.line == 0 || offset < 0 {
		return n.line, n.col
	}
	return n.align(n.raw(offset))
}

// raw returns the offset in the text before ${…} was replaced.
func (n *node) raw(offset int) int {
	shift := 0
	for _, p := range n.parts {
		switch {
		case offset < p.from:
			return offset + shift
		case offset < p.to:
			return p.rawFrom
		}
		shift = p.rawTo - p.to
	}
	return offset + shift
}

// align walks over the source of the scalar beside its text, which differ in quotes, escapes,
// indentation and folded lines, up to offset in the text.
func (n *node) align(offset int) (line, col int) {
	src, text := n.src.text, n.rawText()
	at := lineStart(src, n.line)
	at += runesLen(src[at:], n.col-1)
	at = n.content(at)
	space := func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
	escapes := n.style&yaml.DoubleQuotedStyle != 0
	skip := func() {
		for at < len(src) {
			switch {
			case space(src[at]):
				at++
			case escapes && src[at] == '\\' && at+1 < len(src) && strings.IndexByte("ntr \n", src[at+1]) >= 0:
				at += 2
			default:
				return
			}
		}
	}
	i := 0
	for i < min(offset, len(text)) {
		if space(text[i]) {
			for i < min(offset, len(text)) && space(text[i]) {
				i++
			}
			skip()
			continue
		}
		skip()
		if at >= len(src) {
			break
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		i += size
		at += n.spelled(src[at:], size)
	}
	if i < len(text) && !space(text[i]) {
		skip()
	}
	at = min(at, len(src))
	start := strings.LastIndexByte(src[:at], '\n') + 1
	return strings.Count(src[:at], "\n") + 1, utf8.RuneCountInString(src[start:at]) + 1
}

// rawText is the scalar's text before ${…} was replaced.
func (n *node) rawText() string {
	var out strings.Builder
	at := 0
	for _, p := range n.parts {
		out.WriteString(n.text[at:p.from])
		if p.name == "" {
			out.WriteString("$${")
		} else {
			out.WriteString(p.name)
		}
		at = p.to
	}
	out.WriteString(n.text[at:])
	return out.String()
}

// content returns where the text of the scalar begins that is written at the given place.
func (n *node) content(at int) int {
	src := n.src.text
	if at < len(src) && src[at] == '&' { // an anchor stands before it
		for at < len(src) && !unicode.IsSpace(rune(src[at])) {
			at++
		}
		for at < len(src) && unicode.IsSpace(rune(src[at])) {
			at++
		}
	}
	switch {
	case n.style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		if nl := strings.IndexByte(src[at:], '\n'); nl >= 0 {
			return at + nl + 1
		}
	case n.style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return min(at+1, len(src))
	}
	return at
}

// spelled returns how many bytes the source needs for the next character, which has size bytes.
func (n *node) spelled(src string, size int) int {
	switch {
	case n.style&yaml.SingleQuotedStyle != 0 && strings.HasPrefix(src, "''"):
		return 2
	case n.style&yaml.DoubleQuotedStyle != 0 && len(src) > 1 && src[0] == '\\':
		switch src[1] {
		case 'x':
			return 4
		case 'u':
			return 6
		case 'U':
			return 10
		}
		return 2
	}
	return size
}

func lineStart(text string, line int) int {
	at := 0
	for range line - 1 {
		nl := strings.IndexByte(text[at:], '\n')
		if nl < 0 {
			return at
		}
		at += nl + 1
	}
	return at
}

// runesLen returns the bytes of the first n characters.
func runesLen(text string, n int) int {
	at := 0
	for range n {
		if at >= len(text) {
			break
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}
