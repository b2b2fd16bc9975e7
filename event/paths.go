package event

import (
	"cmp"
	"slices"
)

// Paths is the set of paths that a pipeline reads, found together in one pass. It is immutable.
type Paths struct {
	list   []Path
	places map[string]int // by canonical spelling
	trie   *trie          // place i is that of list[i]
}

// NewPaths returns the set of the given paths.
func NewPaths(paths ...Path) *Paths {
	ps := &Paths{places: make(map[string]int, len(paths))}
	var steps [][]step
	for _, p := range paths {
		if _, ok := ps.places[p.String()]; ok {
			continue
		}
		ps.places[p.String()] = len(ps.list)
		ps.list = append(ps.list, p)
		steps = append(steps, p.steps)
	}
	ps.trie = newTrie(steps)
	return ps
}

// Len returns the number of distinct paths.
func (ps *Paths) Len() int { return len(ps.list) }

// trie holds a set of paths by their steps, so that one pass over a value finds all of them. It is
// immutable and shared by all events.
type trie struct {
	root  *node
	paths int
	nodes int
}

var (
	rootTrie = newTrie([][]step{nil})
	noPaths  = NewPaths()
)

// node is one step of the paths in a trie.
type node struct {
	step     step
	number   int     // in the trie; a scan notes by it which members it has met
	place    int     // of the path that ends here, -1 if none does
	members  []*node // steps on by name
	elements []*node // steps on by index, ascending
	lengths  uint64  // bit min(n, 63) is set where a name of n bytes is among members
}

func newTrie(paths [][]step) *trie {
	t := &trie{root: &node{place: -1}, paths: len(paths), nodes: 1}
	for place, steps := range paths {
		n := t.root
		for _, s := range steps {
			n = t.next(n, s)
		}
		n.place = place
	}
	return t
}

// next returns the node one step on, making it if need be.
func (t *trie) next(n *node, s step) *node {
	kids := &n.members
	if s.isIdx {
		kids = &n.elements
	}
	for _, k := range *kids {
		if k.step == s {
			return k
		}
	}
	k := &node{step: s, number: t.nodes, place: -1}
	t.nodes++
	*kids = append(*kids, k)
	if s.isIdx {
		slices.SortFunc(*kids, func(a, b *node) int { return cmp.Compare(a.step.index, b.step.index) })
	} else {
		n.lengths |= 1 << min(len(s.name), 63)
	}
	return k
}

// member returns the step by the name that raw spells, nil if no path takes it. raw lies between
// the quotes.
func (n *node) member(raw []byte, escaped bool) *node {
	if escaped {
		for _, k := range n.members {
			if spells(raw, k.step.name) {
				return k
			}
		}
		return nil
	}
	if n.lengths&(1<<min(len(raw), 63)) == 0 {
		return nil
	}
	for _, k := range n.members {
		if k.step.name == string(raw) {
			return k
		}
	}
	return nil
}
