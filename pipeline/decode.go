package pipeline

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/jq"
)

// decoder fills declared structs from a tree and gathers what is wrong.
type decoder struct {
	resolver
	specs    []functions.Spec
	problems Problems
	faulty   map[string]bool  // paths of which nothing can be built
	unset    bool             // a value names a variable that is not set
	values   map[string]*node // by path
	keys     map[string]*node // by path
}

// custom is the ability of a declared type to read its own node and to describe itself.
type custom interface {
	decode(d *decoder, n *node, path string)
	// schema returns the type's JSON Schema, and the words for it in the table of keys.
	schema(s *schemer) (map[string]any, string)
}

// switched is the ability of a struct to be written as true or false too.
type switched interface{ Switch(on bool) }

// extra takes the keys of a map that its struct does not declare. It reports whether it knew the key.
type extra func(key, val *node, path string) bool

func newDecoder(r resolver, specs []functions.Spec) *decoder {
	return &decoder{
		resolver: r, specs: specs, faulty: map[string]bool{}, values: map[string]*node{}, keys: map[string]*node{},
	}
}

// at reports a problem of path with the place of n.
func (d *decoder) at(n *node, offset int, path, format string, args ...any) {
	line, col := n.place(offset)
	d.mark(path)
	d.problems = append(d.problems, Problem{
		File: n.src.name, Line: line, Col: col, Path: path, Message: n.mask(fmt.Sprintf(format, args...)), order: n.src.order,
	})
}

// problem reports a problem of the value at path, or of what holds it where the key was left out. A map
// or list stands where its key does: what is wrong with it as a whole is at none of its lines.
func (d *decoder) problem(path, format string, args ...any) {
	if n := d.values[path]; n != nil {
		if k := d.keys[path]; k != nil && n.kind != yaml.ScalarNode && k.src == n.src {
			n = k
		}
		d.at(n, -1, path, format, args...)
		return
	}
	for parent := path; ; {
		parent = up(parent)
		n := d.keys[parent]
		if n == nil {
			n = d.values[parent]
		}
		if n != nil {
			d.at(n, -1, path, format, args...)
			return
		}
	}
}

// up returns the path that holds path; "" is the root.
func up(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// mark notes that nothing can be built of the value at path, nor of what holds it.
func (d *decoder) mark(path string) {
	for ; !d.faulty[path]; path = up(path) {
		d.faulty[path] = true
	}
}

// fault reports whether the value at path, or one within it, has a problem or names a variable that is
// not set: then nothing can be built of it.
func (d *decoder) fault(path string) bool { return d.faulty[path] }

// fill reads n into v.
func (d *decoder) fill(n *node, v reflect.Value, path string, tag reflect.StructTag) {
	d.values[path] = n
	if n.isNull() {
		d.at(n, -1, path, "has no value: write one, or leave the key out")
		return
	}
	if c, ok := v.Addr().Interface().(custom); ok {
		c.decode(d, n, path)
		return
	}
	if u, ok := v.Addr().Interface().(yaml.Unmarshaler); ok {
		d.unmarshal(n, u, path)
		return
	}
	if isText(v.Type()) {
		d.scalar(n, v, path, tag)
		return
	}
	if s, ok := v.Addr().Interface().(switched); ok && n.kind == yaml.ScalarNode {
		on := false
		d.scalar(n, reflect.ValueOf(&on).Elem(), path, "")
		s.Switch(on)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.fill(n, v.Elem(), path, tag)
	case reflect.Struct:
		if why := tag.Get("why"); why != "" && n.kind == yaml.ScalarNode {
			d.at(n, -1, path, "%s", why)
			return
		}
		d.structure(n, v, path, nil)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Interface:
		d.scalarOnly(n, path, "a single value")
	default:
		d.scalar(n, v, path, tag)
	}
}

// text resolves the scalar n and reports whether it has a text to be read: it has none where something
// is wrong, a variable is not set, or all it names is empty, which leaves the key at its default.
func (d *decoder) text(n *node, path string) bool {
	for _, err := range d.resolve(n) {
		d.at(n, -1, path, "%v", err)
	}
	if n.unset {
		d.unset = true
		d.mark(path)
		return false
	}
	return !d.fault(path) && (n.text != "" || !n.replaced())
}

// scalarOnly reports whether n is a single value, and a problem where not.
func (d *decoder) scalarOnly(n *node, path, want string) bool {
	if n.kind != yaml.ScalarNode {
		d.at(n, -1, path, "want %s, not %s", want, n.what())
		return false
	}
	return d.text(n, path)
}

// list reads a list, or text whose elements are separated by commas.
func (d *decoder) list(n *node, v reflect.Value, path string) {
	t := v.Type().Elem()
	if n.kind == yaml.ScalarNode && (isText(t) || t.Kind() == reflect.String || t.Kind() == reflect.Int) {
		n = d.split(n, path)
		if n == nil {
			return
		}
	}
	if n.kind != yaml.SequenceNode {
		d.at(n, -1, path, "want %s, not %s", wanted(v.Type()), n.what())
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.vals), len(n.vals))
	for i, c := range n.vals {
		d.fill(c, out.Index(i), index(path, i), "")
	}
	v.Set(out)
}

// split makes a list of the text of n, nil where it has none.
func (d *decoder) split(n *node, path string) *node {
	if !d.text(n, path) {
		return nil
	}
	out := &node{src: n.src, line: n.line, col: n.col, kind: yaml.SequenceNode}
	for _, s := range strings.Split(n.text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			c := *n
			c.text, c.tag = s, "!!str"
			c.parts = nil
			for _, p := range n.parts { // what an element shows is still a value from outside
				if p.name != "" {
					c.parts = append(c.parts, part{name: p.name, value: s})
				}
			}
			out.vals = append(out.vals, &c)
		}
	}
	return out
}

func (d *decoder) mapping(n *node, v reflect.Value, path string) {
	if n.kind != yaml.MappingNode {
		d.at(n, -1, path, "want a map, not %s", n.what())
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.keys))
	for i, k := range n.keys {
		at := join(path, k.text)
		d.keys[at] = k
		e := reflect.New(v.Type().Elem()).Elem()
		d.fill(n.vals[i], e, at, "")
		out.SetMapIndex(reflect.ValueOf(k.text).Convert(v.Type().Key()), e)
	}
	v.Set(out)
}

// structure reads the declared keys of a map; those it does not declare go to more.
func (d *decoder) structure(n *node, v reflect.Value, path string, more extra) {
	if n.kind != yaml.MappingNode {
		d.at(n, -1, path, "want a map with the keys %s, not %s", strings.Join(keysOf(v.Type()), ", "), n.what())
		return
	}
	given := map[string]bool{}
	byKey := map[string]field{}
	for _, f := range fieldsOf(v) {
		byKey[f.key] = f
	}
	for i, k := range n.keys {
		at := join(path, k.text)
		d.keys[at] = k
		if f, ok := byKey[k.text]; ok {
			given[k.text] = true
			d.fill(n.vals[i], f.v, at, f.tag)
			continue
		}
		if more != nil && more(k, n.vals[i], at) {
			continue
		}
		d.at(k, -1, at, "unknown key%s", suggestion(k.text, keysOf(v.Type())))
	}
	for _, f := range fieldsOf(v) {
		if !given[f.key] {
			d.absent(f.v, f.tag, join(path, f.key))
		}
	}
	d.validate(v, path)
}

// absent gives v its default, or reports that it is required.
func (d *decoder) absent(v reflect.Value, tag reflect.StructTag, path string) {
	if tag.Get("required") == "true" {
		d.problem(path, "is required")
		return
	}
	if def, ok := tag.Lookup("default"); ok {
		if err := parseText(v, def, ""); err != nil {
			d.problem(path, "reading the default %q: %v", def, err)
		}
		return
	}
	if v.Kind() != reflect.Struct || isText(v.Type()) {
		return
	}
	for _, f := range fieldsOf(v) {
		if f.tag.Get("required") != "true" { // within a map that was left out nothing is required
			d.absent(f.v, f.tag, join(path, f.key))
		}
	}
}

// validate calls a struct's own check.
func (d *decoder) validate(v reflect.Value, path string) {
	c, ok := v.Addr().Interface().(functions.Validator)
	if !ok || d.fault(path) && path != "" {
		return
	}
	if err := c.Validate(); err != nil {
		d.optionProblem(path, err)
	}
}

// optionProblem reports err, or each of several, at the option it names, below path.
func (d *decoder) optionProblem(path string, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			d.optionProblem(path, one)
		}
		return
	}
	if o, ok := errors.AsType[*functions.OptionError](err); ok {
		path, err = d.option(path, o.Option), o.Err
		if k := d.keys[path]; k != nil && o.Key {
			d.at(k, -1, path, "%v", err)
			return
		}
	}
	n := d.values[path]
	if s, ok := errors.AsType[*jq.SyntaxError](err); ok && n != nil {
		d.at(n, s.Offset, path, "%v", err)
		return
	}
	d.problem(path, "%v", err)
}

// option is the path of the option below path that an OptionError names. A plain name in brackets is one
// that join writes behind a dot.
func (d *decoder) option(path, option string) string {
	outer, key, ok := strings.Cut(option, `["`)
	if key, last := strings.CutSuffix(key, `"]`); ok && last && plainKey.MatchString(key) {
		option = join(outer, key)
	}
	if strings.HasPrefix(option, "[") {
		return path + option
	}
	return path + "." + option
}

// errReplaced stands for an error whose text could show a value from outside the file.
var errReplaced = errors.New("with its ${…} replaced this is not valid")

// unmarshal hands the node to a type that reads its YAML itself.
func (d *decoder) unmarshal(n *node, u yaml.Unmarshaler, path string) {
	if !d.resolveAll(n, path) {
		return
	}
	err := u.UnmarshalYAML(n.yaml())
	if err == nil {
		hide(reflect.ValueOf(u).Elem(), n)
		return
	}
	if o, ok := errors.AsType[*functions.OptionError](err); ok {
		if part := d.values[d.option(path, o.Option)]; part != nil {
			if !o.Key && part.anyReplaced() {
				err = &functions.OptionError{Option: o.Option, Err: errReplaced}
			}
			d.optionProblem(path, err)
			return
		}
	}
	if n.anyReplaced() {
		err = errReplaced
	}
	if n.kind == yaml.ScalarNode {
		if s, ok := errors.AsType[*jq.SyntaxError](err); ok {
			d.at(n, s.Offset, path, "%v", err)
			return
		}
	}
	if t, ok := errors.AsType[*yaml.TypeError](err); ok {
		for _, msg := range t.Errors {
			d.at(n, -1, path, "%s", msg)
		}
		return
	}
	d.optionProblem(path, err)
}

// resolveAll resolves all scalars below n and notes their places.
func (d *decoder) resolveAll(n *node, path string) bool {
	d.values[path] = n
	if n.kind == yaml.ScalarNode {
		return n.isNull() || d.text(n, path) || !d.fault(path)
	}
	ok := true
	for i, c := range n.vals {
		at := index(path, i)
		if n.kind == yaml.MappingNode {
			at = join(path, n.keys[i].text)
			d.keys[at] = n.keys[i]
		}
		ok = d.resolveAll(c, at) && ok
	}
	return ok
}

func (n *node) anyReplaced() bool {
	return n.replaced() || slices.ContainsFunc(n.vals, (*node).anyReplaced)
}

// yaml turns the node back into one of the YAML library.
func (n *node) yaml() *yaml.Node {
	out := &yaml.Node{Kind: n.kind, Tag: n.tag, Value: n.text, Style: n.style, Line: n.line, Column: n.col}
	for i, c := range n.vals {
		if n.kind == yaml.MappingNode {
			k := n.keys[i]
			out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: k.text, Line: k.line, Column: k.col})
		}
		out.Content = append(out.Content, c.yaml())
	}
	return out
}
