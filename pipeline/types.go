package pipeline

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/jq"
	"github.com/a0c75104/enricher/kafka"
)

// value is the text of a client setting, which may be written as text, number or boolean.
type value string

// start says where to begin.
type start struct {
	At    value `yaml:"at" required:"true" doc:"where to begin, as start says"`
	Force bool  `yaml:"force" default:"false" doc:"begins there, once, although the group has committed an offset that does not lie between start and until; without it that is an error; one that lies between is kept"`
}

func (s *start) decode(d *decoder, n *node, path string) {
	if n.kind == yaml.ScalarNode {
		d.scalar(n, reflect.ValueOf(&s.At).Elem(), path, "")
		return
	}
	type plain start
	v := plain(*s)
	d.structure(n, reflect.ValueOf(&v).Elem(), path, nil)
	*s = start(v)
}

func (s *start) schema(sc *schemer) (map[string]any, string) {
	type plain start
	o, _ := sc.of(reflect.TypeFor[plain](), "")
	at, _ := sc.of(reflect.TypeFor[value](), "")
	return anyOf(at, o), "earliest, latest, a time, or map"
}

// topics is a list of topics, or a regular expression.
type topics struct {
	Names  []string
	Regexp string
}

func (t *topics) decode(d *decoder, n *node, path string) {
	if n.kind == yaml.ScalarNode && d.text(n, path) && strings.HasPrefix(n.text, "/") {
		expr, ok := strings.CutSuffix(n.text[1:], "/")
		if !ok || n.text == "/" {
			d.at(n, -1, path, "a regular expression stands between two slashes")
			return
		}
		if _, err := regexp.Compile(expr); err != nil {
			d.at(n, -1, path, "%v", err)
		}
		t.Regexp = expr
		return
	}
	d.list(n, reflect.ValueOf(&t.Names).Elem(), path)
	if len(t.Names) == 0 && !d.fault(path) {
		d.at(n, -1, path, "names no topic")
	}
	for i, name := range t.Names {
		if err := kafka.CheckTopic(name); err != nil && !d.fault(index(path, i)) {
			at := index(path, i)
			if d.values[at] == nil {
				at = path
			}
			d.problem(at, "%v; a regular expression stands alone between slashes", err)
		}
	}
}

// matcher returns what tells whether a topic is one of t.
func (t *topics) matcher() func(topic string) bool {
	if t.Regexp == "" {
		return func(topic string) bool { return slices.Contains(t.Names, topic) }
	}
	return regexp.MustCompile("^(?:" + t.Regexp + ")$").MatchString // the whole name, as the client matches
}

func (t *topics) schema(*schemer) (map[string]any, string) {
	return anyOf(list(text()), text()), "list of text, or /regular expression/"
}

// partitionBy says what orders events.
type partitionBy struct {
	Fields  []functions.Path `yaml:"fields" required:"true" doc:"the paths whose values make the key"`
	Missing string           `yaml:"missing" default:"error" enum:"error|keyless|drop" doc:"what becomes of an event where one is missing or null"`
	set     bool
}

func (p *partitionBy) decode(d *decoder, n *node, path string) {
	p.set = true
	if n.kind == yaml.MappingNode {
		type plain partitionBy
		v := plain(*p)
		d.structure(n, reflect.ValueOf(&v).Elem(), path, nil)
		*p = partitionBy(v)
		path = join(path, "fields")
	} else {
		p.Missing = "error"
		if !p.notPaths(d, n, path) {
			d.list(n, reflect.ValueOf(&p.Fields).Elem(), path)
		}
	}
	if len(p.Fields) == 0 && !d.fault(path) {
		d.problem(path, "names no path; leave partition_by out to order by the record key")
	}
}

// notPaths reports a single expression where paths are wanted.
func (p *partitionBy) notPaths(d *decoder, n *node, path string) bool {
	if n.kind != yaml.ScalarNode || n.isNull() || !d.text(n, path) || strings.Contains(n.text, ",") {
		return false
	}
	e, err := jq.Compile(n.text)
	if err != nil {
		return false
	}
	if _, bare := e.Path(); bare {
		return false
	}
	cure := "such as [.a, .b]"
	if read := e.Paths(); len(read) > 0 && !n.replaced() {
		names := make([]string, len(read))
		for i, r := range read {
			names[i] = r.String()
		}
		cure = "[" + strings.Join(names, ", ") + "]"
	}
	d.at(n, -1, path, "want paths, not an expression: the values at several make the key together, write a list of them, %s", cure)
	return true
}

func (p *partitionBy) schema(s *schemer) (map[string]any, string) {
	type plain partitionBy
	o, _ := s.of(reflect.TypeFor[plain](), "")
	return anyOf(text(), list(text()), o), "path, list of paths, or map"
}

// item is one function of the chain with what stands beside it.
type item struct {
	itemKeys
	path    string
	spec    functions.Spec
	options any
	found   bool
}

type itemKeys struct {
	Name    string             `yaml:"name" doc:"stands in error events and metrics; left out: the place, such as process[0].http"`
	When    functions.Expr     `yaml:"when" doc:"an event for which it is false passes on untouched"`
	Timeout functions.Duration `yaml:"timeout" doc:"bound of one call of a Go function, 60s unless given; http has its own"`
}

const maxName = 200

func (it *item) decode(d *decoder, n *node, path string) {
	it.path = path
	if n.kind != yaml.MappingNode {
		d.at(n, -1, path, "want a map with one function, such as `- jq: .a = 1`, not %s", n.what())
		return
	}
	var used []string
	d.structure(n, reflect.ValueOf(&it.itemKeys).Elem(), path, func(k, val *node, at string) bool {
		for _, spec := range d.specs {
			if spec.Name() == k.text {
				used = append(used, k.text)
				it.function(d, spec, k, val, at)
				return true
			}
		}
		known := d.functionNames()
		if s := suggestion(k.text, append(keysOf(reflect.TypeFor[itemKeys]()), known...)); s != "" {
			d.at(k, -1, at, "unknown key%s", s)
		} else {
			d.at(k, -1, at, "unknown key; the functions are %s; is it a function of your own program? Then give this file to that program", strings.Join(known, ", "))
		}
		used = append(used, "")
		return true
	})
	switch {
	case len(used) == 0:
		d.at(n, -1, path, "names no function; the functions are %s", strings.Join(d.functionNames(), ", "))
	case len(used) > 1 && used[0] != "" && used[1] != "":
		d.at(n, -1, path, "names several functions, %s: give each an item of its own", strings.Join(used, " and "))
	}
	if len(it.Name) > maxName {
		d.problem(join(path, "name"), "is longer than %d characters", maxName)
	}
}

func (it *item) function(d *decoder, spec functions.Spec, key, val *node, path string) {
	d.keys[path] = key
	it.spec, it.options, it.found = spec, spec.NewOptions(), true
	d.fill(val, reflect.ValueOf(it.options).Elem(), path, "")
}

// place is the path of the item's function: process[1].http.
func (it *item) place() string { return join(it.path, it.spec.Name()) }

// label stands in error events and metrics.
func (it *item) label() string {
	if it.Name != "" {
		return it.Name
	}
	return it.place()
}

func (d *decoder) functionNames() []string {
	var out []string
	for _, s := range d.specs {
		out = append(out, s.Name())
	}
	return out
}

func (it *item) schema(s *schemer) (map[string]any, string) {
	o, _ := s.of(reflect.TypeFor[itemKeys](), "")
	props := o["properties"].(map[string]any)
	var one []any
	for _, spec := range s.specs {
		p, _ := s.of(reflect.TypeOf(spec.NewOptions()).Elem(), "")
		props[spec.Name()] = described(p, spec.Doc())
		one = append(one, map[string]any{"required": []any{spec.Name()}})
	}
	if len(one) > 0 {
		o["oneOf"] = one
	}
	return o, "map"
}
