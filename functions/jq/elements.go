package jq

import (
	"slices"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// Elements say what expressions look at of an array's elements: what is at some paths of each, or possibly all. An
// expression gives the same result, or fails with the same message, on an array whose elements are cut down to that. Only
// what makes a value invalid, such as a member twice, goes unseen where it is cut off. The zero value is for expressions
// that look into no element.
type Elements struct {
	whole bool
	paths [][]string // the names along each; none leads on from another
	tree  members    // of paths
}

// members is an object's members that are looked at, or all that is at path.
type members struct {
	path event.Path
	name []byte     // as JSON, with the colon
	kids []*members // none: all
}

// elementsOf finds out what q looks at where "." is an array.
func elementsOf(q *gojq.Query) Elements {
	var l looker
	out, ok := l.query(q, []spot{{lists: 1}})
	if !ok || !l.need(out) {
		return Elements{whole: true}
	}
	paths := l.needed
	for _, p := range l.passed {
		// That p can be followed shows where a longer path is looked at, or all that it leads through. Else p must be there.
		longer := func(q []string) bool { return len(q) > len(p) && begins(q, p) }
		if !slices.ContainsFunc(l.needed, func(n []string) bool { return begins(p, n) || longer(n) }) && !slices.ContainsFunc(l.passed, longer) {
			paths = append(paths, p)
		}
	}
	return newElements(paths)
}

// begins reports whether path begins with start.
func begins(path, start []string) bool {
	return len(path) >= len(start) && slices.Equal(path[:len(start)], start)
}

func newElements(paths [][]string) Elements {
	var e Elements
	slices.SortFunc(paths, slices.Compare[[]string]) // what others lead on from comes before them
	for _, p := range paths {
		if n := len(e.paths); n > 0 && begins(p, e.paths[n-1]) {
			continue
		}
		if len(e.paths) == maxLocal || !e.tree.add(p, 0) {
			return Elements{whole: true}
		}
		e.paths = append(e.paths, p)
	}
	return e
}

// add adds the path of names, of which b is the place of the first so many.
func (b *members) add(names []string, depth int) bool {
	if depth == len(names) {
		return true
	}
	name, err := marshal(names[depth])
	if err != nil {
		return false
	}
	name = append(name, ':')
	if n := len(b.kids); n > 0 && slices.Equal(b.kids[n-1].name, name) {
		return b.kids[n-1].add(names, depth+1)
	}
	steps := make([]any, depth+1)
	for i := range steps {
		steps[i] = names[i]
	}
	path, err := event.ParsePath(pathText(steps))
	if err != nil {
		return false
	}
	kid := &members{path: path, name: name}
	b.kids = append(b.kids, kid)
	return kid.add(names, depth+1)
}

// And says what is looked at by expressions of e and of f.
func (e Elements) And(f Elements) Elements {
	if e.whole || f.whole {
		return Elements{whole: true}
	}
	return newElements(slices.Concat(e.paths, f.paths))
}

// Paths returns the paths of an element that are looked at; "." stands for all of it.
func (e Elements) Paths() []event.Path {
	if e.whole {
		return []event.Path{root}
	}
	return e.tree.leaves(nil)
}

func (b *members) leaves(paths []event.Path) []event.Path {
	for _, k := range b.kids {
		if len(k.kids) == 0 {
			paths = append(paths, k.path)
		}
		paths = k.leaves(paths)
	}
	return paths
}

// Append appends what is looked at of ev's value, as an element of an array.
func (e Elements) Append(dst []byte, ev *event.Event) []byte {
	if !e.whole {
		if out, ok := e.tree.append(dst, ev); ok {
			return out
		}
	}
	return append(dst, ev.Value()...)
}

// append appends an object with the members of b. It is not ok where a path leads through what is no object.
func (b *members) append(dst []byte, ev *event.Event) (_ []byte, ok bool) {
	dst = append(dst, '{')
	first := true
	for _, k := range b.kids {
		var raw []byte
		if len(k.kids) == 0 {
			var err error
			if raw, err = ev.Get(k.path); err != nil {
				return nil, false
			}
			if raw == nil {
				continue
			}
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, k.name...), raw...)
		if len(k.kids) > 0 {
			if dst, ok = k.append(dst, ev); !ok {
				return nil, false
			}
		}
	}
	return append(dst, '}'), true
}

// Elements says what the expression looks at where the value is an array.
func (e *Expr) Elements() Elements { return e.elements }

// Elements says what the template looks at where the value is an array.
func (t *Template) Elements() Elements {
	var all Elements
	for _, p := range t.parts {
		if p.expr != nil {
			all = all.And(p.expr.elements)
		}
	}
	return all
}
