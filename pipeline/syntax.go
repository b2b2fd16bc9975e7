package pipeline

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var (
	yamlLine = regexp.MustCompile(`^line (\d+): `)
	// fromParser matches the errors of the YAML package's parser, which counts lines from 0. Those of its
	// scanner count from 1.
	fromParser = regexp.MustCompile(`^(did not find expected (key|'-' indicator|',' or|node content|<)|found undefined tag)`)
)

// hints says what to do about those errors of the YAML parser that people run into.
var hints = []struct{ text, hint string }{
	{"mapping values are not allowed", "a text that holds \": \" must be quoted, or written under |; a key must be indented as those beside it"},
	{"unknown escape character", "inside double quotes a backslash is doubled: write the text in single quotes, or under |"},
	{"cannot start any token", "a text that begins with @, ` or % must be quoted, or written under |"},
	{"did not find expected whitespace or line break", "a text that begins with ! must be quoted, or written under |"},
	{"tag", "a text that begins with ! must be quoted, or written under |"},
	{"alias", "a text that begins with * must be quoted, or written under |"},
	{"anchor", "a text that begins with & must be quoted, or written under |"},
	{"expected alphabetic or numeric character", "a text that begins with * or & must be quoted, or written under |"},
	{"found a tab character", "indent with spaces, not with tabs"},
	{"did not find expected ',' or", "a bracket that is opened here is not closed, or a comma is missing within it"},
	{"did not find expected key", "this line is indented otherwise than those beside it, or a quote on it or above it is not closed; a text that begins with a quote must be quoted as a whole"},
	{"did not find expected '-' indicator", "this line is indented otherwise than those beside it"},
	{"unexpected end of stream", "a quote that is opened here is not closed"},
}

// syntax reports an error of the YAML parser, which tells its line only within its text.
func (b *builder) syntax(err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	lines := strings.Split(b.src.text, "\n")
	line := 1
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
		if fromParser.MatchString(msg) {
			line++
		}
	}
	line = min(max(line, 1), len(lines))
	if strings.HasPrefix(msg, "did not find expected key") || strings.HasPrefix(msg, "did not find expected '-'") {
		line = firstFailing(lines, line, msg)
	}
	col := indent(lines[line-1]) + 1
	hint := hintFor(msg)
	switch {
	case strings.HasPrefix(msg, "did not find expected ',' or"):
		if at, c, ok := flowReference(lines, line); ok {
			line, col, hint = at, c, "inside { } and [ ] a reference must be quoted: write \"${NAME}\""
		}
	case strings.Contains(msg, "cannot start any token") && strings.HasPrefix(strings.TrimLeft(lines[line-1], " "), "\t"):
		hint = hintFor("found a tab character")
	}
	if hint != "" {
		msg += " (" + hint + ")"
	}
	b.problems = append(b.problems, Problem{File: b.src.name, Line: line, Col: col, Message: "reading YAML: " + msg, order: b.src.order})
}

func hintFor(msg string) string {
	for _, h := range hints {
		if strings.Contains(msg, h.text) {
			return h.hint
		}
	}
	return ""
}

// indent counts the blanks before the text of a line.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// maxReread bounds the lines of which a file is read again and again to find one.
const maxReread = 1000

// firstFailing returns the first line with which reading fails as msg says. For a map or list in block
// style the YAML package tells where that begins, which may be the top of the file.
func firstFailing(lines []string, from int, msg string) int {
	if len(lines) > maxReread {
		return from
	}
	for n := from; n < len(lines); n++ {
		var doc yaml.Node
		err := yaml.Unmarshal([]byte(strings.Join(lines[:n], "\n")), &doc)
		if err != nil && strings.HasSuffix(err.Error(), msg) {
			return n
		}
	}
	return from
}

// flowReference finds a ${ that stands unquoted within the brackets that are opened on the given line:
// there its brace begins a map.
func flowReference(lines []string, line int) (at, col int, ok bool) {
	depth, quote := 0, rune(0)
	for n := line; n <= len(lines); n++ {
		text := lines[n-1]
		for i, c := range text {
			switch {
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case c == '"' || c == '\'':
				quote = c
			case strings.HasPrefix(text[i:], "${") && depth > 0:
				return n, utf8.RuneCountInString(text[:i]) + 1, true
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				if depth--; depth == 0 {
					return 0, 0, false
				}
			}
		}
	}
	return 0, 0, false
}
