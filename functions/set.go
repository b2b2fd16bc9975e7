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
