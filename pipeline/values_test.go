package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

// probe is a function of a user whose options are looked at after a load.
type probe struct {
	Text   string                        `yaml:"text" doc:"text" default:"dflt"`
	Number int                           `yaml:"number" doc:"number" default:"3" min:"1"`
	Ratio  float64                       `yaml:"ratio" doc:"ratio" default:"0.5"`
	On     bool                          `yaml:"on" doc:"switch"`
	List   []string                      `yaml:"list" doc:"list"`
	Paths  []functions.Path              `yaml:"paths" doc:"paths"`
	Map    map[string]functions.Template `yaml:"map" doc:"map"`
	Inner  inner                         `yaml:"inner" doc:"inner"`
	Maybe  *inner                        `yaml:"maybe" doc:"maybe"`
	Secret functions.Secret              `yaml:"secret" doc:"secret"`
}

type inner struct {
	Wait functions.Duration `yaml:"wait" doc:"wait" default:"2s"`
	Size functions.Size     `yaml:"size" doc:"size" required:"true"`
}

// load loads a file whose only function is probe with the given options, and returns what it saw.
func load(t *testing.T, options string, o pipeline.Options) (probe, error) {
	t.Helper()
	var seen probe
	spec := functions.New("probe", "looks", func(_ functions.Env, p probe) (event.Func, error) {
		seen = p
		switch p.Text {
		case "refuse":
			return nil, &functions.OptionError{Option: "inner.wait", Err: errors.New("is refused")}
		case "fail":
			return nil, errors.New("cannot be built")
		}
		return event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) { return []*event.Event{ev}, nil }), nil
	})
	o.Specs = []functions.Spec{spec}
	if o.Getenv == nil {
		o.Getenv = testEnv
	}
	path := write(t, "p.yaml", "name: p\nsource: {file: {path: in}}\nsink: {file: {path: out}}\nprocess:\n  - probe:\n"+indent(options, 6))
	_, err := pipeline.Load(path, o)
	return seen, err
}

func indent(text string, n int) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.Repeat(" ", n) + line)
	}
	return out.String()
}

func TestOptionsOfFunctionsAreTyped(t *testing.T) {
	file := write(t, "secret", "from file\n\n")
	tests := []struct {
		name, options string
		got           func(probe) any
		want          any
	}{
		{"defaults", "on: true", func(p probe) any {
			return fmt.Sprint(p.Text, p.Number, p.Ratio, p.Inner.Wait, p.Maybe)
		}, "dflt3 0.5 2s <nil>"},
		{"number as text", "text: 5", func(p probe) any { return p.Text }, "5"},
		{"text that YAML would type", "text: 1.0", func(p probe) any { return p.Text }, "1.0"},
		{"list", "list: [a, 'b, c']", func(p probe) any { return strings.Join(p.List, "|") }, "a|b, c"},
		{"list from commas", "list: a, b", func(p probe) any { return strings.Join(p.List, "|") }, "a|b"},
		{"list from a variable", "list: ${TOPICS}", func(p probe) any { return strings.Join(p.List, "|") }, "a|b"},
		{"element from a variable keeps its commas", "list: ['${TOPICS}']", func(p probe) any { return strings.Join(p.List, "|") }, "a, b"},
		{"paths from commas", "paths: .a,.b", func(p probe) any { return fmt.Sprint(p.Paths[0], p.Paths[1]) }, ".a .b"},
		{"map", "map: {x: 'a\\(.b)'}", func(p probe) any { return p.Map["x"].String() }, `a\(.b)`},
		{"variable becomes a number", "number: ${WORKERS}", func(p probe) any { return p.Number }, 7},
		{"variable in quotes becomes a number", "number: \"${WORKERS}\"", func(p probe) any { return p.Number }, 7},
		{"default of a variable", "text: ${NONE:-x y}", func(p probe) any { return p.Text }, "x y"},
		{"default where the variable is empty", "text: ${EMPTY:-x}", func(p probe) any { return p.Text }, "x"},
		{"empty variable leaves the default", "number: ${EMPTY}", func(p probe) any { return p.Number }, 3},
		{"variable within text", "text: a-${NAME}-b", func(p probe) any { return p.Text }, "a-from-env-b"},
		{"value is not replaced again", "text: ${NONE:-$}{NAME}", func(p probe) any { return p.Text }, "${NAME}"},
		{"escaped variable", "text: $${NAME}", func(p probe) any { return p.Text }, "${NAME}"},
		{"dollars stay", "text: $NAME $5 $", func(p probe) any { return p.Text }, "$NAME $5 $"},
		{"file loses one line feed", "secret: ${file:" + file + "}", func(p probe) any { return p.Secret.Reveal() }, "from file\n"},
		{"anchors", "text: &a hello\nlist: [*a]", func(p probe) any { return p.List[0] }, "hello"},
		{"merge", "inner: &i {wait: 5s, size: 1B}\nmaybe: {<<: *i, wait: 6s}", func(p probe) any { return fmt.Sprint(p.Maybe.Wait, p.Maybe.Size) }, "6s 1B"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := load(t, tt.options, pipeline.Options{})
			if err != nil {
				t.Fatalf("loading %q: %v", tt.options, err)
			}
			if got := tt.got(p); got != tt.want {
				t.Errorf("%s: got %q, want %q", tt.options, got, tt.want)
			}
		})
	}
}

func TestFaultsOfFunctionsHavePlaces(t *testing.T) {
	tests := []struct{ name, options, want string }{
		{"constructor names an option", "text: refuse\ninner:\n  size: 1B\n  wait: 1s", ":9:15: process[0].probe.inner.wait: is refused"},
		{"constructor names an option left out", "text: refuse", ":5:5: process[0].probe.inner.wait: is refused"},
		{"constructor names nothing", "text: fail", ":5:5: process[0].probe: cannot be built"},
		{"least value", "number: 0", ":6:15: process[0].probe.number: 0 is less than 1"},
		{"required in a given map", "maybe: {wait: 1s}", ":6:7: process[0].probe.maybe.size: is required"},
		{"secret is a list", "secret: [a]", ":6:15: process[0].probe.secret: want a text, not a list"},
		{"template in a map", "map: {x: 'a\\(.b'}", ":6:18: process[0].probe.map.x: "},
		{"place behind an escaped reference", "map: {x: '$${n} \\(.b'}", ":6:23: process[0].probe.map.x: "},
		{"value of a variable stays hidden", "paths: '${SECRET}'", "process[0].probe.paths[0]: with its ${…} replaced this is not a path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.options, pipeline.Options{})
			problems, ok := errors.AsType[pipeline.Problems](err)
			if !ok || len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) {
				t.Errorf("%s: got %v, want %s", tt.options, err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a value is in the message: %v", err)
			}
		})
	}
}

func TestUnsetVariablesMayBeAllowed(t *testing.T) {
	path := write(t, "p.yaml", "name: ${NONE}\nsource: {file: {path: in}}\nsink: {file: {path: out}}\nworkers: ${NONE}\nfilter: ${NONE}\n"+
		"process:\n  - http: {url: 'https://h/${NONE}', into: .a}\n")
	p, err := pipeline.Load(path, pipeline.Options{Getenv: testEnv, AllowUnset: true})
	if err != nil {
		t.Fatalf("loading: %v", err)
	}
	if _, _, err := p.Build(pipeline.Deps{}); err == nil {
		t.Error("a pipeline with unset variables was built")
	}
	if _, err := pipeline.Load(path, pipeline.Options{Getenv: testEnv}); err == nil || strings.Count(err.Error(), "is not set") != 4 {
		t.Errorf("without AllowUnset: got %v, want four problems", err)
	}
}

func TestOverlaysAndSet(t *testing.T) {
	base := `text: base
number: 1
list: [a, b]
inner: {wait: 1s, size: 1B}
map: {k.v: x, y: z}
`
	overlay := func(text string) string {
		return write(t, "over.yaml", "process:\n  - probe: &p\n"+indent(base+text, 6)+"x-probe: *p\n")
	}
	tests := []struct {
		name    string
		overlay string
		set     []string
		want    string
	}{
		{"one key", "", []string{"process[0].probe.number=9"}, "base 9 [a b] 1s"},
		{"the last wins", "", []string{"process[0].probe.number=8", "process[0].probe.number=9"}, "base 9 [a b] 1s"},
		{"key in quotes", "", []string{`process[0].probe.map["k.v"]=w`, `process[0].probe["text"]=\(x`}, `\(x 1 [a b] 1s`},
		{"list as YAML", "", []string{"process[0].probe.list=[c]"}, "base 1 [c] 1s"},
		{"list by commas", "", []string{"process[0].probe.list=c,d"}, "base 1 [c d] 1s"},
		{"element", "", []string{"process[0].probe.list[1]=c"}, "base 1 [a c] 1s"},
		{"null takes out", "", []string{"process[0].probe.text=null"}, "dflt 1 [a b] 1s"},
		{"text with an equals sign", "", []string{"process[0].probe.text=a=b # c"}, "a=b # c 1 [a b] 1s"},
		{"list replaced by an overlay", "number: 5\n", nil, "problem"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := pipeline.Options{Set: tt.set}
			if tt.overlay != "" {
				o.Overlay = []string{overlay(tt.overlay)}
			}
			p, err := load(t, base, o)
			got := fmt.Sprint(p.Text, " ", p.Number, " ", p.List, " ", p.Inner.Wait)
			if err != nil {
				got = "problem"
				if !strings.Contains(err.Error(), "over.yaml:8:7: process[0].probe.number: the key is given twice") {
					t.Errorf("loading: %v", err)
				}
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestOverlayMergesMapsAndKeepsPlaces(t *testing.T) {
	base := write(t, "p.yaml", "name: p\nsource: {file: {path: in}}\nsink: {file: {path: out}}\nlimits: {in_flight_events: 5}\nworkers: 3\nfilter: .a\n")
	over := write(t, "over.yaml", "limits:\n  in_flight_bytes: 1\nsource:\n  file:\n    path: other\nworkers: x\nfilter:\n")
	_, err := pipeline.Load(base, pipeline.Options{Overlay: []string{over}, Set: []string{
		"order=x", "nope=1", "sink..x=1", "a", "process[0].when=.x", "workers.x=1", "limits[0]=1", "partition_by=[.a]", "partition_by[1]=.b",
	}})
	want := []string{
		over + `:2:20: limits.in_flight_bytes: "1" has no unit: write 1B`,
		over + `:6:10: workers: want a whole number, not "x"`,
		`--set order: order: want one of key, key_serial, none, not "x"`,
		`--set nope: nope: unknown key`,
		`--set sink..x: "sink..x" is no path`,
		`--set a: want path=value`,
		`--set process[0].when: there is no [0]: process is not given`,
		`--set workers.x: "x" lies in a single value, not a map`,
		`--set limits[0]: [0] lies in a map, not a list`,
		`--set partition_by[1]: there is no [1]: the list has 1 elements`,
	}
	problems, _ := errors.AsType[pipeline.Problems](err)
	if len(problems) != len(want) {
		t.Fatalf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	for i, p := range problems {
		if !strings.HasPrefix(p.Error(), want[i]) {
			t.Errorf("got %s, want %s", p.Error(), want[i])
		}
	}
}

func TestBadSpecsAreToldApart(t *testing.T) {
	spec := functions.New("http", "mine", func(functions.Env, probe) (event.Func, error) { return nil, nil })
	_, err := pipeline.Load("any", pipeline.Options{Specs: []functions.Spec{spec}})
	if _, ok := errors.AsType[pipeline.Problems](err); err == nil || ok {
		t.Errorf("got %v, want an error that is no Problems", err)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for name, want := range map[string]string{
		filepath.Join(t.TempDir(), "none.yaml"): "no such file or directory",
		t.TempDir():                             "is a directory",
		write(t, "empty.yaml", ""):              "the file is empty",
		write(t, "comment.yaml", "# nothing\n"): "the file is empty",
	} {
		_, err := pipeline.Load(name, pipeline.Options{})
		if _, ok := errors.AsType[pipeline.Problems](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, "../examples/page-content.yaml") {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw))
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, "p.yaml", text)
		_, err := pipeline.Load(path, pipeline.Options{Getenv: testEnv})
		if err == nil {
			return
		}
		problems, ok := errors.AsType[pipeline.Problems](err)
		if !ok || len(problems) == 0 {
			t.Fatalf("got %v, want problems", err)
		}
		lines := strings.Count(text, "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines+1 || p.Col < 1 || p.File != path {
				t.Errorf("problem without a place in %d lines: %+v", lines, p)
			}
		}
	})
}
