package pipeline

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// overlay lays over on top of base: maps key by key, everything else replaced. A key without a value
// takes it out of base.
func overlay(base, over *node) {
	for i, k := range over.keys {
		val, old := over.vals[i], base.get(k.text)
		switch {
		case val.isNull() && old != nil:
			base.remove(k.text)
		case old != nil && old.kind == yaml.MappingNode && val.kind == yaml.MappingNode:
			overlay(old, val)
		default:
			base.set(k, val)
		}
	}
}

// step is one step of a path: a key of a map or an index of a list.
type step struct {
	key   string
	index int
	isIdx bool
}

var stepPattern = regexp.MustCompile(`^(?:\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,6})\]|\[("(?:[^"\\]|\\.)*")\])`)

// dottedIndex is an element of a list as other programs write it: process.0.jq.
var dottedIndex = regexp.MustCompile(`^\.(\d+)\b`)

// parsePath reads a path as problems write it: source.kafka.options["linger.ms"], process[0].jq.
func parsePath(text string) ([]step, error) {
	var out []step
	rest := text
	for rest != "" {
		m := stepPattern.FindStringSubmatch(rest)
		if len(out) > 0 && dottedIndex.MatchString(rest) {
			done := text[:len(text)-len(rest)]
			return nil, fmt.Errorf("%q is no path: an element of a list stands in brackets, write %s", text, done+dottedIndex.ReplaceAllString(rest, "[$1]"))
		}
		if m == nil || len(out) == 0 && (rest[0] == '.' || m[2] != "") {
			return nil, fmt.Errorf("%q is no path: write keys joined by dots, such as source.kafka.options[\"linger.ms\"]", text)
		}
		switch {
		case m[1] != "":
			if len(out) > 0 && rest[0] != '.' {
				return nil, fmt.Errorf("%q is no path: a dot is missing before %q", text, m[1])
			}
			out = append(out, step{key: m[1]})
		case m[2] != "":
			i, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, fmt.Errorf("reading the index %q: %w", m[2], err)
			}
			out = append(out, step{index: i, isIdx: true})
		default:
			key, err := strconv.Unquote(m[3])
			if err != nil {
				return nil, fmt.Errorf("reading the key %s: %w", m[3], err)
			}
			out = append(out, step{key: key})
		}
		rest = rest[len(m[0]):]
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the path is empty")
	}
	return out, nil
}

// quotedSetting returns the path of a client setting whose dots were taken for steps, such as
// kafka.options.linger.ms, as it must be written; "" where steps are none.
func quotedSetting(steps []step) string {
	path := ""
	for i, s := range steps {
		if s.isIdx {
			return ""
		}
		path = join(path, s.key)
		if i == 0 || s.key != "options" || steps[i-1].key != "kafka" || len(steps) < i+3 {
			continue
		}
		var names []string
		for _, rest := range steps[i+1:] {
			if rest.isIdx {
				return ""
			}
			names = append(names, rest.key)
		}
		return join(path, strings.Join(names, "."))
	}
	return ""
}

// setValue lays one path=value over the tree. A value that begins with [ or { and is YAML is taken as
// such; null takes the key out; everything else is text, to be typed by its key.
func setValue(root *node, arg string, order int) Problems {
	path, value, ok := strings.Cut(arg, "=")
	src := &source{name: "--set " + path, order: order}
	bad := func(format string, args ...any) Problems {
		return Problems{{File: src.name, Message: fmt.Sprintf(format, args...), order: order}}
	}
	if !ok {
		return bad("want path=value")
	}
	if !utf8.ValidString(arg) {
		src.name = strings.ToValidUTF8(src.name, "\uFFFD")
		return bad("%v", errNotText)
	}
	steps, err := parsePath(path)
	if err != nil {
		return bad("%v", err)
	}
	if cure := quotedSetting(steps); cure != "" {
		return bad("a client setting is one key: write %s", cure)
	}
	val, problems := flagValue(src, value)
	if problems != nil {
		return problems
	}
	n := root
	for i, s := range steps {
		last := i == len(steps)-1
		switch {
		case s.isIdx && n.kind != yaml.SequenceNode:
			return bad("[%d] lies in %s, not a list", s.index, n.what())
		case s.isIdx && s.index >= len(n.vals):
			return bad("there is no [%d]: the list has %d elements", s.index, len(n.vals))
		case s.isIdx && last:
			n.vals[s.index] = val
		case s.isIdx:
			n = n.vals[s.index]
		case n.kind != yaml.MappingNode:
			return bad("%q lies in %s, not a map", s.key, n.what())
		case last && val.isNull():
			n.remove(s.key)
		case last:
			n.set(&node{src: src, kind: yaml.ScalarNode, text: s.key}, val)
		default:
			next := n.get(s.key)
			if next == nil || next.isNull() {
				if steps[i+1].isIdx {
					return bad("there is no [%d]: %s is not given", steps[i+1].index, s.key)
				}
				next = &node{src: src, kind: yaml.MappingNode}
				n.set(&node{src: src, kind: yaml.ScalarNode, text: s.key}, next)
			}
			n = next
		}
	}
	return nil
}

func flagValue(src *source, value string) (*node, Problems) {
	var doc yaml.Node
	if strings.HasPrefix(value, "[") || strings.HasPrefix(value, "{") {
		if yaml.Unmarshal([]byte(value), &doc) == nil && len(doc.Content) == 1 {
			b := &builder{src: src, open: map[*yaml.Node]bool{}}
			n := b.build(doc.Content[0], "")
			for i := range b.problems {
				b.problems[i].Line, b.problems[i].Col = 0, 0
			}
			n.unplace()
			return n, b.problems
		}
	}
	n := &node{src: src, kind: yaml.ScalarNode, tag: "!!str", text: value}
	if value == "null" {
		n.tag = "!!null"
	}
	return n, nil
}

// unplace forgets lines and columns: in a flag they mean nothing.
func (n *node) unplace() {
	if n == nil {
		return
	}
	n.line, n.col = 0, 0
	for _, k := range n.keys {
		k.unplace()
	}
	for _, v := range n.vals {
		v.unplace()
	}
}
