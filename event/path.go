package event

// Path is a plain path as jq writes it: .a.b, .a["b-c"], .a[0]; "." is the root.
type Path struct {
	text  string
	steps []step
}

type step struct {
	name  string
	index int // used where name is not
	isIdx bool
}

// ParsePath compiles a plain path.
func ParsePath(text string) (Path, error) { panic("to come") }

// String returns the path in its canonical spelling.
func (p Path) String() string { return p.text }

// Paths is the set of paths that a pipeline reads, found together in one pass. It is immutable.
type Paths struct{ list []Path }

// NewPaths returns the set of the given paths.
func NewPaths(paths ...Path) *Paths { return &Paths{list: paths} }

// Len returns the number of distinct paths.
func (ps *Paths) Len() int { return len(ps.list) }

type document struct{}

func (d *document) reset() {}

// Check validates the value as one JSON text and finds the paths of ps in the same pass. An invalid
// value is a Reject of type InvalidEvent. Later calls of Get for a path of ps read no bytes.
func (e *Event) Check(ps *Paths) error { panic("to come") }

// Get returns the JSON text at p, nil where jq would give null for a missing field. The caller does
// not write to it. A path through a scalar is a Reject of type Expression, an invalid value one of
// type InvalidEvent.
func (e *Event) Get(p Path) ([]byte, error) { panic("to come") }

// Set writes the JSON text raw at p, making missing objects on the way. All other bytes of the value
// stay as they are.
func (e *Event) Set(p Path, raw []byte) error { panic("to come") }

// Delete removes the member or element at p; a missing one is no error.
func (e *Event) Delete(p Path) error { panic("to come") }

// AppendCanonical appends raw in the spelling by which keys are compared: strings unescaped and
// spelled one way, numbers as spelled, no white space, object members sorted.
func AppendCanonical(dst, raw []byte) ([]byte, error) { panic("to come") }
