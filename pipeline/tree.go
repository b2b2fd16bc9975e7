package pipeline

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds the tree after anchors are expanded: a few lines of YAML can stand for millions.
const maxNodes = 100_000

// source is a text that nodes come from.
type source struct {
	name  string
	text  string
	order int    // the file is 0, overlays and flags follow
	keys  string // what it has, where it is no pipeline file
}

// such returns what a file of src's kind has.
func (s *source) such() (keys, holds string) {
	if s.keys != "" {
		return s.keys, "one"
	}
	return "name: and source:", "one pipeline, give each a file of its own"
}

// node is one value of the tree. Anchors and merge keys are expanded; each place has a node of its own.
type node struct {
	src       *source
	line, col int // 0 where the value came from a flag
	kind      yaml.Kind
	tag       string
	style     yaml.Style
	text      string  // of a scalar
	keys      []*node // of a map
	vals      []*node // of a map or list

	resolved bool
	parts    []part // what ${…} became
	unset    bool   // names a variable that is not set
}

// isNull reports whether the value was left empty.
func (n *node) isNull() bool {
	return n.kind == yaml.ScalarNode && n.tag == "!!null" && n.style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
}

// get returns the value of a key of a map, nil if there is none.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i, k := range n.keys {
		if k.text == key {
			return n.vals[i]
		}
	}
	return nil
}

// set replaces or adds a key.
func (n *node) set(key, val *node) {
	for i, k := range n.keys {
		if k.text == key.text {
			n.keys[i], n.vals[i] = key, val
			return
		}
	}
	n.keys, n.vals = append(n.keys, key), append(n.vals, val)
}

// remove takes a key out.
func (n *node) remove(key string) {
	for i, k := range n.keys {
		if k.text == key {
			n.keys = append(n.keys[:i:i], n.keys[i+1:]...)
			n.vals = append(n.vals[:i:i], n.vals[i+1:]...)
			return
		}
	}
}

// what names the kind of the value for a message.
func (n *node) what() string {
	switch n.kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// join returns the path of a key below path.
func join(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// builder makes a tree of one YAML document.
type builder struct {
	src      *source
	problems Problems
	nodes    int
	open     map[*yaml.Node]bool // anchors that are being expanded
}

// parse reads one document. The tree is nil where the text is no YAML or not a map.
func parse(src *source) (*node, Problems) {
	b := &builder{src: src, open: map[*yaml.Node]bool{}}
	doc := b.document()
	if doc == nil {
		return nil, b.problems
	}
	root := b.build(doc, "")
	if b.nodes > maxNodes {
		return nil, b.problems // of a tree that breaks off nothing else can be said
	}
	if root != nil && root.kind != yaml.MappingNode {
		keys, _ := b.src.such()
		b.problem(doc, "", "want a map of keys, such as %s", keys)
		root = nil
	}
	return root, b.problems
}

func (b *builder) document() *yaml.Node {
	var doc, second yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(b.src.text))
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		b.problems = append(b.problems, Problem{File: b.src.name, Line: 1, Col: 1, Message: "the file is empty", order: b.src.order})
		return nil
	case err != nil:
		b.syntax(err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		_, holds := b.src.such()
		b.problem(&second, "", "a second document: a file holds %s", holds)
	case !errors.Is(err, io.EOF):
		b.syntax(err)
		return nil
	}
	return doc.Content[0]
}

func (b *builder) problem(n *yaml.Node, path, format string, args ...any) {
	b.problems = append(b.problems, Problem{
		File: b.src.name, Line: max(n.Line, 1), Col: max(n.Column, 1), Path: path, Message: fmt.Sprintf(format, args...), order: b.src.order,
	})
}

// build turns n into a node, nil where that is not possible.
func (b *builder) build(n *yaml.Node, path string) *node {
	if b.nodes++; b.nodes > maxNodes {
		if b.nodes == maxNodes+1 {
			b.problem(n, path, "the file stands for more than %d values once its anchors are expanded", maxNodes)
		}
		return nil
	}
	if n.Kind == yaml.AliasNode {
		return b.alias(n, path)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		b.problem(n, path, "%s is read as a YAML tag, and tags are not used here: quote a text that begins with !", n.Tag)
		return nil
	}
	out := &node{src: b.src, line: n.Line, col: n.Column, kind: n.Kind, tag: n.ShortTag(), style: n.Style, text: n.Value}
	if n.Anchor != "" {
		b.open[n] = true
		defer delete(b.open, n)
	}
	switch n.Kind {
	case yaml.MappingNode:
		b.mapping(n, out, path)
	case yaml.SequenceNode:
		for i, c := range n.Content {
			if v := b.build(c, index(path, i)); v != nil {
				out.vals = append(out.vals, v)
			}
		}
	}
	return out
}

func (b *builder) alias(n *yaml.Node, path string) *node {
	if b.open[n.Alias] {
		b.problem(n, path, "the anchor %q contains itself", n.Value)
		return nil
	}
	b.open[n.Alias] = true
	defer delete(b.open, n.Alias)
	return b.build(n.Alias, path)
}

func (b *builder) mapping(n *yaml.Node, out *node, path string) {
	var merges []*node
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode || k.Style&yaml.TaggedStyle != 0 {
			b.problem(k, path, "a key is a single text; quote it where it begins with {, [, ? or !")
			continue
		}
		if k.ShortTag() == "!!merge" {
			merges = append(merges, b.merge(v, path)...)
			continue
		}
		at := join(path, k.Value)
		if line, ok := seen[k.Value]; ok {
			b.problem(k, at, "the key is given twice, first on line %d", line)
			continue
		}
		seen[k.Value] = k.Line
		if val := b.build(v, at); val != nil {
			key := &node{src: b.src, line: k.Line, col: k.Column, kind: k.Kind, text: k.Value}
			out.keys, out.vals = append(out.keys, key), append(out.vals, val)
		}
	}
	for _, m := range merges { // an earlier map wins over a later one, the map itself over all
		for i, k := range m.keys {
			if out.get(k.text) == nil {
				out.set(k, m.vals[i])
			}
		}
	}
}

// merge returns the maps that a merge key names.
func (b *builder) merge(v *yaml.Node, path string) []*node {
	m := b.build(v, below(path, "<<"))
	switch {
	case m == nil:
		return nil
	case m.kind == yaml.MappingNode:
		return []*node{m}
	case m.kind != yaml.SequenceNode:
		b.problem(v, below(path, "<<"), "want a map or a list of maps to merge, not %s", m.what())
		return nil
	}
	var out []*node
	for _, c := range m.vals {
		if c.kind != yaml.MappingNode {
			b.problem(v, below(path, "<<"), "want a map or a list of maps to merge, not a list with %s", c.what())
			continue
		}
		out = append(out, c)
	}
	return out
}

// below returns the path of a key that is written plainly although it is no plain word.
func below(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
