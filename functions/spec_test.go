package functions_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
)

type pass struct{}

func (pass) Process(_ context.Context, ev *event.Event) ([]*event.Event, error) {
	return []*event.Event{ev}, nil
}

type passBatch struct{}

func (passBatch) ProcessBatch(_ context.Context, evs []*event.Event) []event.Result {
	return make([]event.Result, len(evs))
}
func (passBatch) Inline() bool     { return true }
func (passBatch) MaxAttempts() int { return -1 }

// specOf returns a spec with options of type O whose constructor accepts everything.
func specOf[O any](name string) functions.Spec {
	return functions.New(name, "does nothing", func(functions.Env, O) (event.Func, error) { return pass{}, nil })
}

func TestBuild(t *testing.T) {
	type options struct {
		Size functions.Size `yaml:"size" doc:"a size"`
	}
	var got functions.Size
	spec := functions.New("f", "doc", func(_ functions.Env, o options) (event.Func, error) {
		got = o.Size
		return pass{}, nil
	})
	o := spec.NewOptions()
	o.(*options).Size = 7
	b, err := spec.Build(functions.Env{}, o)
	if err != nil || b.Func != (pass{}) || b.Batch != nil || b.Inline || b.Attempts != 5 || got != 7 {
		t.Errorf("got %+v, %v, size %v", b, err, got)
	}

	batch := functions.NewBatch("b", "doc", func(functions.Env, options) (event.BatchFunc, error) { return passBatch{}, nil })
	b, err = batch.Build(functions.Env{}, batch.NewOptions())
	if err != nil || b.Func != nil || b.Batch != (passBatch{}) || !b.Inline || b.Attempts != -1 {
		t.Errorf("got %+v, %v", b, err)
	}

	either := functions.NewBuilt("e", "doc", func(_ functions.Env, o options) (functions.Built, error) {
		if o.Size > 0 {
			return functions.Built{Batch: passBatch{}}, nil
		}
		return functions.Built{Func: pass{}}, nil
	})
	if b, err = either.Build(functions.Env{}, &options{Size: 1}); err != nil || b.Func != nil || b.Batch != (passBatch{}) || !b.Inline || b.Attempts != -1 {
		t.Errorf("got %+v, %v", b, err)
	}
	if b, err = either.Build(functions.Env{}, &options{}); err != nil || b.Func != (pass{}) || b.Batch != nil || b.Attempts != 5 {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestBuildErrors(t *testing.T) {
	type options struct{}
	fault := &functions.OptionError{Option: "retry.max", Err: errors.New("too small")}
	for _, test := range []struct {
		name    string
		spec    functions.Spec
		options any
		want    string
	}{
		{"options of another type", specOf[options]("f"), &struct{ X int }{}, "want *functions_test.options"},
		{"options that are no pointer", specOf[options]("f"), options{}, "want *functions_test.options"},
		{"no options", specOf[options]("f"), (*options)(nil), "want *functions_test.options"},
		{"a constructor's error as it is", functions.New("f", "d", func(functions.Env, options) (event.Func, error) { return nil, fault }), &options{}, "retry.max: too small"},
		{"a constructor without result", functions.New("f", "d", func(functions.Env, options) (event.Func, error) { return nil, nil }), &options{}, "no function"},
		{"a batch constructor without result", functions.NewBatch("f", "d", func(functions.Env, options) (event.BatchFunc, error) { return nil, nil }), &options{}, "no function"},
		{"a constructor of either without result", functions.NewBuilt("f", "d", func(functions.Env, options) (functions.Built, error) { return functions.Built{}, nil }), &options{}, "no function"},
		{"a constructor of either with both", functions.NewBuilt("f", "d", func(functions.Env, options) (functions.Built, error) {
			return functions.Built{Func: pass{}, Batch: passBatch{}}, nil
		}), &options{}, "or two"},
		{"an empty spec", functions.Spec{}, &options{}, "functions.New"},
	} {
		_, err := test.spec.Build(functions.Env{}, test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", test.name, err, test.want)
		}
	}
	_, err := functions.New("f", "d", func(functions.Env, options) (event.Func, error) { return nil, fault }).Build(functions.Env{}, &options{})
	if o, ok := errors.AsType[*functions.OptionError](err); !ok || o.Option != "retry.max" || !errors.Is(err, fault.Err) {
		t.Errorf("got %v, want the option error", err)
	}
}

type inner struct {
	Max functions.Duration `yaml:"max" doc:"at most" default:"10s"`
}

type goodOptions struct {
	URL     functions.Template        `yaml:"url" doc:"where" required:"true"`
	Mode    string                    `yaml:"mode" doc:"how" default:"a" enum:"a|b"`
	Retry   inner                     `yaml:"retry" doc:"again"`
	Other   *inner                    `yaml:"other" doc:"another"`
	List    []inner                   `yaml:"list" doc:"rows"`
	Paths   []functions.Path          `yaml:"paths" doc:"some"`
	Headers map[string]functions.Expr `yaml:"headers" doc:"more"`
	Key     functions.Secret          `yaml:"key" doc:"hidden"`
	Size    functions.Size            `yaml:"size" doc:"big" default:"1MiB"`
	N       *int                      `yaml:"n" doc:"count" default:"-1"`
	F       float64                   `yaml:"f" doc:"part" default:"0.5"`
	B       bool                      `yaml:"b" doc:"whether" default:"true"`
	U       uint8                     `yaml:"u" doc:"small"`
	Skipped func()                    `yaml:"-"`
	hidden  chan int                  //nolint:unused // an unexported field is no option
}

func TestCheck(t *testing.T) {
	type loop struct {
		Again *loop `yaml:"again" doc:"x"`
	}
	for _, test := range []struct {
		name string
		spec functions.Spec
		want string // "" for none
	}{
		{"options of all types", specOf[goodOptions]("some_name2"), ""},
		{"one option type", specOf[functions.Expr]("f"), ""},
		{"no options", specOf[struct{}]("f"), ""},
		{"a name in camel case", specOf[struct{}]("someName"), "snake_case"},
		{"a name with a dash", specOf[struct{}]("a-b"), "snake_case"},
		{"no name", specOf[struct{}](""), "snake_case"},
		{"a name that is a key of every item", specOf[struct{}]("when"), "every process item"},
		{"an empty spec", functions.Spec{}, "functions.New"},
		{"no documentation", functions.New("f", "", func(functions.Env, struct{}) (event.Func, error) { return pass{}, nil }), "documentation"},
		{"options that are a bare number", specOf[int]("f"), "want a struct"},
		{"a field without a key", specOf[struct {
			A string `doc:"x"`
		}]("f"), "yaml tag"},
		{"a key in camel case", specOf[struct {
			A string `yaml:"maxWait" doc:"x"`
		}]("f"), "snake_case"},
		{"a field without documentation", specOf[struct {
			A string `yaml:"a"`
		}]("f"), "doc tag"},
		{"a list of a field without documentation", specOf[struct {
			A []struct {
				B string `yaml:"b"`
			} `yaml:"a" doc:"x"`
		}]("f"), `"a[].b": the doc tag`},
		{"two fields of one key", specOf[struct {
			A string `yaml:"a" doc:"x"`
			B string `yaml:"a" doc:"x"`
		}]("f"), "two fields"},
		{"a default that is no size", specOf[struct {
			A functions.Size `yaml:"a" doc:"x" default:"10"`
		}]("f"), "write 10B"},
		{"a default that is no number", specOf[struct {
			A int `yaml:"a" doc:"x" default:"ten"`
		}]("f"), "invalid syntax"},
		{"a default too large", specOf[struct {
			A uint8 `yaml:"a" doc:"x" default:"256"`
		}]("f"), "out of range"},
		{"a default that is not allowed", specOf[struct {
			A string `yaml:"a" doc:"x" default:"c" enum:"a|b"`
		}]("f"), "none of a|b"},
		{"a required option with a default", specOf[struct {
			A string `yaml:"a" doc:"x" default:"c" required:"true"`
		}]("f"), "required"},
		{"a channel", specOf[struct {
			A chan int `yaml:"a" doc:"x"`
		}]("f"), "cannot be read"},
		{"a list of functions", specOf[struct {
			A []func() `yaml:"a" doc:"x"`
		}]("f"), "cannot be read"},
		{"a map by number", specOf[struct {
			A map[int]string `yaml:"a" doc:"x"`
		}]("f"), "keys of a map"},
		{"Go's own duration", specOf[struct {
			A time.Duration `yaml:"a" doc:"x"`
		}]("f"), "functions.Duration"},
		{"a fault deep inside", specOf[struct {
			A struct {
				B string `yaml:"b"`
			} `yaml:"a" doc:"x"`
		}]("f"), `"a.b"`},
		{"a struct within itself", specOf[loop]("f"), "within itself"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.spec.Check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestCheckNamesAllFaults(t *testing.T) {
	err := specOf[struct {
		A chan int `yaml:"a" doc:"x"`
		B string   `yaml:"b"`
	}]("Bad").Check()
	for _, want := range []string{"snake_case", `"a"`, `"b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}

func TestDescribeOptions(t *testing.T) {
	want := []functions.OptionDoc{
		{Path: "url", Type: "template", Doc: "where", Required: true},
		{Path: "mode", Type: "text", Default: "a", Doc: "how", Enum: []string{"a", "b"}},
		{Path: "retry", Type: "map", Doc: "again"},
		{Path: "retry.max", Type: "duration", Default: "10s", Doc: "at most"},
		{Path: "other", Type: "map", Doc: "another"},
		{Path: "other.max", Type: "duration", Default: "10s", Doc: "at most"},
		{Path: "list", Type: "list of map", Doc: "rows"},
		{Path: "list[].max", Type: "duration", Default: "10s", Doc: "at most"},
		{Path: "paths", Type: "list of path", Doc: "some"},
		{Path: "headers", Type: "map of jq expression", Doc: "more"},
		{Path: "key", Type: "secret", Doc: "hidden"},
		{Path: "size", Type: "size", Default: "1MiB", Doc: "big"},
		{Path: "n", Type: "whole number", Default: "-1", Doc: "count"},
		{Path: "f", Type: "number", Default: "0.5", Doc: "part"},
		{Path: "b", Type: "true or false", Default: "true", Doc: "whether"},
		{Path: "u", Type: "whole number", Doc: "small"},
	}
	got := functions.DescribeOptions(specOf[goodOptions]("f"))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := functions.DescribeOptions(functions.JQ()); len(got) != 1 || got[0].Path != "" || got[0].Type != "jq program" {
		t.Errorf("a single value: got %+v", got)
	}
}

func TestSet(t *testing.T) {
	s, err := functions.NewSet(functions.JQ(), specOf[struct{}]("html_diff"), specOf[struct{}]("fetch"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Names(); !slices.Equal(got, []string{"fetch", "html_diff", "jq"}) {
		t.Errorf("names: got %v", got)
	}
	if spec, ok := s.Lookup("jq"); !ok || spec.Name() != "jq" || spec.Doc() == "" {
		t.Errorf("lookup: got %v, %v", spec.Name(), ok)
	}
	if _, ok := s.Lookup("no"); ok {
		t.Error("an unknown name is found")
	}
}

func TestSetRefuses(t *testing.T) {
	_, err := functions.NewSet(specOf[struct{}]("a"), specOf[struct{}]("a"), specOf[struct{}]("B"), specOf[struct{}]("c-d"))
	for _, want := range []string{`"a": registered twice`, `"B"`, `"c-d"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}

func TestJQ(t *testing.T) {
	for _, test := range []struct {
		program string
		logged  bool
	}{{`.a = 1`, false}, {`{a}`, true}} {
		var log bytes.Buffer
		spec := functions.JQ()
		o := spec.NewOptions().(*functions.Program)
		if err := o.UnmarshalText([]byte(test.program)); err != nil {
			t.Fatal(err)
		}
		b, err := spec.Build(functions.Env{Logger: slog.New(slog.NewTextHandler(&log, nil))}, o)
		if err != nil || !b.Inline {
			t.Fatalf("got %+v, %v", b, err)
		}
		if _, ok := b.Func.(event.ReadOnly); !ok {
			t.Error("jq is not read-only")
		}
		if got := strings.Contains(log.String(), "writes the value anew"); got != test.logged {
			t.Errorf("%s: logged %v, want %v: %s", test.program, got, test.logged, &log)
		}
	}
	if err := functions.JQ().Check(); err != nil {
		t.Error(err)
	}
}

func TestJQWithoutProgram(t *testing.T) {
	spec := functions.JQ()
	if _, err := spec.Build(functions.Env{}, spec.NewOptions()); err == nil {
		t.Error("a jq function without a program was built")
	}
}
