package functions

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/a0c75104/enricher/event"
)

// defaultAttempts bounds the tries of a function that does not say so itself.
const defaultAttempts = 5

// Spec describes a function: what it is called, what its options are and how it is built.
type Spec struct {
	name    string
	doc     string
	options reflect.Type
	build   func(env Env, options any) (Built, error)
}

// Built is a function ready to process events. Either Func or Batch is set.
type Built struct {
	Func  event.Func
	Batch event.BatchFunc
	// Inline promises that the function never waits: it calls nothing slow.
	Inline bool
	// Attempts bounds the tries after event.Retry; -1 says that the function bounds them itself.
	Attempts int
}

// Inliner is the ability of a Func or BatchFunc to promise that it never waits.
type Inliner interface{ Inline() bool }

// Attempter is the ability of a Func or BatchFunc to set how often it is tried; -1 says that it bounds
// its tries itself. Without it a function is tried five times.
type Attempter interface{ MaxAttempts() int }

// Validator is the ability of options to check what no tag can say. The loader calls it before the
// constructor; an *OptionError points at one option.
type Validator interface{ Validate() error }

// OptionError points at one option. Option is its key, or keys joined by dots; a key that is no plain name,
// such as that of a map, stands as ["key"], and an element of a list as [0]. An UnmarshalYAML method may
// return one for a part of what it reads.
type OptionError struct {
	Option string
	Key    bool // it is the key itself that is wrong, not what stands under it
	Err    error
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// New describes a function that processes one event at a time. O is its options: a struct, or one
// option type where the function takes a single value. The name is the function's key in a pipeline
// file. build checks and opens nothing: it is called to check a file too, see the package comment.
func New[O any](name, doc string, build func(Env, O) (event.Func, error)) Spec {
	return newSpec[O](name, doc, func(env Env, o O) (Built, error) {
		f, err := build(env, o)
		if err == nil && f == nil {
			err = errors.New("the constructor returned no function")
		}
		return Built{Func: f}, err
	})
}

// NewBatch describes a function that processes the events of a window together.
func NewBatch[O any](name, doc string, build func(Env, O) (event.BatchFunc, error)) Spec {
	return newSpec[O](name, doc, func(env Env, o O) (Built, error) {
		f, err := build(env, o)
		if err == nil && f == nil {
			err = errors.New("the constructor returned no function")
		}
		return Built{Batch: f}, err
	})
}

// NewBuilt describes a function whose options say whether it processes one event at a time or those of a window together:
// build sets Func or Batch.
func NewBuilt[O any](name, doc string, build func(Env, O) (Built, error)) Spec {
	return newSpec[O](name, doc, func(env Env, o O) (Built, error) {
		b, err := build(env, o)
		if err == nil && (b.Func == nil) == (b.Batch == nil) {
			err = errors.New("the constructor returned no function, or two")
		}
		return Built{Func: b.Func, Batch: b.Batch}, err
	})
}

func newSpec[O any](name, doc string, build func(Env, O) (Built, error)) Spec {
	return Spec{name: name, doc: doc, options: reflect.TypeFor[O](), build: func(env Env, options any) (Built, error) {
		o, ok := options.(*O)
		if !ok || o == nil {
			return Built{}, fmt.Errorf("building %s: options are %T, want %T", name, options, o)
		}
		b, err := build(env, *o)
		if err != nil {
			return Built{}, err
		}
		b.abilities()
		return b, nil
	}}
}

// abilities asks the function for what it promises.
func (b *Built) abilities() {
	var f any = b.Func
	if b.Batch != nil {
		f = b.Batch
	}
	if i, ok := f.(Inliner); ok {
		b.Inline = i.Inline()
	}
	b.Attempts = defaultAttempts
	if a, ok := f.(Attempter); ok {
		b.Attempts = a.MaxAttempts()
	}
}

// Name returns the function's key in a pipeline file.
func (s Spec) Name() string { return s.name }

// Doc returns the line of documentation.
func (s Spec) Doc() string { return s.doc }

// NewOptions returns a pointer to zero options, for the loader to fill.
func (s Spec) NewOptions() any { return reflect.New(s.options).Interface() }

// Build constructs the function. options is what NewOptions returned, filled. A constructor that panics,
// as prometheus does over a metric that is there already, has failed like any other.
func (s Spec) Build(env Env, options any) (b Built, err error) {
	if s.build == nil {
		return Built{}, errors.New("building a function: the spec is empty, make it with functions.New")
	}
	defer func() {
		if p := recover(); p != nil {
			b, err = Built{}, fmt.Errorf("the constructor panicked: %v", p)
		}
	}()
	return s.build(env, options)
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// reserved are the keys that stand beside a function in a pipeline file.
var reserved = map[string]bool{"name": true, "when": true, "timeout": true}

// Check reports what is wrong with the spec: its name, its documentation, or the types and tags of its
// options.
func (s Spec) Check() error {
	if s.build == nil {
		return errors.New("the spec is empty, make it with functions.New")
	}
	var errs []error
	if !namePattern.MatchString(s.name) {
		errs = append(errs, fmt.Errorf("function %q: a name is snake_case, such as html_diff", s.name))
	}
	if reserved[s.name] {
		errs = append(errs, fmt.Errorf("function %q: the name is a key of every process item", s.name))
	}
	if s.doc == "" {
		errs = append(errs, fmt.Errorf("function %q: the line of documentation is missing", s.name))
	}
	for _, err := range checkOptions(s.options) {
		errs = append(errs, fmt.Errorf("function %q: %w", s.name, err))
	}
	return errors.Join(errs...)
}
