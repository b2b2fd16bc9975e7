package pipeline

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ReadDeclared reads the YAML file at path into v, a pointer to a struct, as strictly as a pipeline file and by the same
// tags. ${…} stays as it is written. The error is Problems, all that is wrong at once.
func ReadDeclared(path string, v any) (Places, error) {
	root, problems := readFile(&source{name: path, keys: strings.Join(keysOf(reflect.TypeOf(v).Elem()), ": and ") + ":"})
	if root == nil {
		return Places{}, problems.sorted()
	}
	d := newDecoder(resolver{literal: true}, nil)
	d.values[""] = root
	d.structure(root, reflect.ValueOf(v).Elem(), "", nil)
	if problems = append(problems, d.problems...); len(problems) > 0 {
		return Places{}, problems.sorted()
	}
	return Places{d}, nil
}

// Places tells where the values of a file stand.
type Places struct{ d *decoder }

// Problem is one of the value at path, such as cases[0].now.
func (p Places) Problem(path, format string, args ...any) Problem {
	d := &decoder{values: p.d.values, keys: p.d.keys, faulty: map[string]bool{}}
	d.problem(path, "%s", fmt.Sprintf(format, args...))
	return d.problems[0]
}

// At returns the file, line and column of the value at path, or of what holds it.
func (p Places) At(path string) string {
	at := p.Problem(path, "")
	return fmt.Sprintf("%s:%d:%d", at.File, at.Line, at.Col)
}

// Hide replaces in text what the ${…} of the file stood for by their names, as in all messages about it. Variables that
// are named excepted, and defaults, which stand in the file.
func (p *Pipeline) Hide(text string, except ...string) string {
	var parts []part
	var gather func(n *node)
	gather = func(n *node) {
		for _, part := range n.parts {
			open := slices.ContainsFunc(except, part.refers) || strings.HasSuffix(part.name, ":-"+part.value+"}")
			if !open && part.name != "" && part.value != "" {
				parts = append(parts, part)
			}
		}
		for _, c := range n.vals {
			gather(c)
		}
	}
	gather(p.read.values[""])
	// All at once, so that nothing is looked for in a name; of two that begin at one place the longer is meant.
	slices.SortStableFunc(parts, func(a, b part) int { return len(b.value) - len(a.value) })
	var pairs []string
	for _, part := range parts {
		quoted := strconv.Quote(part.value)
		pairs = append(pairs, quoted, part.name)
		if len(part.value) > 2 {
			pairs = append(pairs, part.value, part.name, quoted[1:len(quoted)-1], part.name, url.QueryEscape(part.value), part.name, url.PathEscape(part.value), part.name)
		}
	}
	text = strings.NewReplacer(pairs...).Replace(text)
	for _, part := range parts {
		text = maskCut(text, part)
	}
	return text
}

// refers reports whether p is ${name}, with or without a default.
func (p part) refers(name string) bool {
	ref := p.name
	return ref == "${"+name+"}" || len(ref) > len(name)+4 && ref[:len(name)+4] == "${"+name+":-"
}
