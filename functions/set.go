package functions

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Set is the functions that a program knows, by name. It is immutable.
type Set struct{ byName map[string]Spec }

// NewSet checks specs and gathers them. The error names all bad specs and all names given twice.
func NewSet(specs ...Spec) (*Set, error) {
	s := &Set{byName: make(map[string]Spec, len(specs))}
	var errs []error
	for _, spec := range specs {
		if err := spec.Check(); err != nil {
			errs = append(errs, err)
			continue
		}
		if _, ok := s.byName[spec.name]; ok {
			errs = append(errs, fmt.Errorf("function %q: registered twice", spec.name))
		}
		s.byName[spec.name] = spec
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Names returns the names in order.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Lookup returns the function of that name.
func (s *Set) Lookup(name string) (Spec, bool) {
	spec, ok := s.byName[name]
	return spec, ok
}

// Nearest returns the known name that is most like name, "" if none is like it.
func (s *Set) Nearest(name string) string {
	best, least := "", max(len(name)/3, 1)+1
	for _, known := range s.Names() {
		if d := distance(name, known); d < least {
			best, least = known, d
		}
	}
	return best
}

// distance counts the single-character edits between two names, a swap of neighbours as one.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows = [3][]int{last, row, before}
	}
	return rows[1][len(b)]
}
