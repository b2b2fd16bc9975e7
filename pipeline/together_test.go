package pipeline_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/a0c75104/enricher/pipeline"
)

// What two files of one process cannot both have is found before anything starts, at its place in the later.
func TestFilesThatCannotShareAProcessAreRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const sinks = "sink: {file: {path: out}}\n"
	feed := "source: {file: {path: in}}\nsink: {kafka: {topic: a}}\n"
	for _, tt := range []struct{ name, first, second, want string }{
		{"names", "name: same\n" + ends, ends + "name: same\n", `second.yaml:3:7: name: "same" is also the name in `},
		{"a name from outside", "name: from-env\n" + ends, "name: ${NAME}\n" + ends, `second.yaml:1:7: name: ${NAME} is also the name in `},
		{"other names", "name: a\n" + ends, "name: b\n" + ends, ""},
		{"standard input", "name: a\nsource: {file: {path: '-'}}\n" + sinks, "name: b\nsource: {file: {path: '-'}}\n" + sinks, "second.yaml:2:23: source.file.path: is standard input, which "},
		{"standard input by its device", "name: a\nsource: {file: {path: '-'}}\n" + sinks, "name: b\nsource: {file: {path: /dev/stdin}}\n" + sinks, "second.yaml:2:23: source.file.path: is standard input, which "},
		{"a pipe", "name: a\nsource: {file: {path: " + pipe + "}}\n" + sinks, "name: b\nsource: {file: {path: " + filepath.Dir(pipe) + "/./pipe}}\n" + sinks, "second.yaml:2:23: source.file.path: is the pipe that "},
		{"a file", "name: a\n" + ends, "name: b\n" + ends, ""},
		{"gateways", "name: a\n" + ends + "gateway: {listen: 127.0.0.1:1}\n", "name: b\n" + ends + "gateway: {listen: 127.0.0.1:2}\n", `second.yaml:4:19: gateway.listen: "127.0.0.1:2" differs from "127.0.0.1:1" in `},
		{"the default's place, by name", "name: a\n" + ends + "gateway: {listen: 127.0.0.1:8081}\n", "name: b\n" + ends + "gateway: {listen: 127.0.0.1:2}\n", `second.yaml:4:19: gateway.listen: "127.0.0.1:2" differs from "127.0.0.1:8081" in `},
		{"a gateway from outside", "name: a\n" + ends + "gateway: {listen: '${NAME}:1', insecure: true}\n", "name: b\n" + ends + "gateway: {listen: 127.0.0.1:2}\n", `second.yaml:4:19: gateway.listen: "127.0.0.1:2" differs from "${NAME}:1" in `},
		{"a gateway of nothing", "name: a\n" + ends + "gateway: {listen: '${EMPTY}'}\n", "name: b\n" + ends + "gateway: {listen: 127.0.0.1:2}\n", ""},
		{"one gateway", "name: a\n" + ends, "name: b\n" + ends + "gateway: {listen: 127.0.0.1:2}\n", ""},
		{"directories", "name: a\nkafka: {brokers: embedded, data_dir: x}\n" + feed, "name: b\nkafka: {brokers: embedded, data_dir: y}\n" + feed, `second.yaml:2:38: kafka.data_dir: "y" differs from "x" in `},
		{"directories of blocks", "name: a\nkafka: {brokers: embedded, data_dir: x}\n" + feed, "name: b\nsource: {file: {path: in}}\nsink: {kafka: {topic: a, brokers: embedded, data_dir: y}}\n", `second.yaml:3:55: sink.kafka.data_dir: "y" differs from "x" in `},
		{"one directory", "name: a\nkafka: {brokers: embedded, data_dir: x}\n" + feed, "name: b\nkafka: {brokers: embedded, data_dir: ./x}\n" + feed, ""},
		{"a directory and memory", "name: a\nkafka: {brokers: embedded}\n" + feed, "name: b\nkafka: {brokers: embedded, data_dir: x}\n" + feed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first, second := loadAs(t, "first.yaml", tt.first, pipeline.Options{}), loadAs(t, "second.yaml", tt.second, pipeline.Options{})
			problems := pipeline.Together(first, second)
			switch {
			case tt.want == "" && len(problems) == 0:
				if err := (&pipeline.Embedded{}).Prepare(first, second); err != nil {
					t.Errorf("the embedded broker: %v", err)
				}
			case len(problems) != 1 || tt.want == "" || !strings.Contains(problems[0].Error(), tt.want):
				t.Errorf("got %v\nwant %q", problems, tt.want)
			case !strings.Contains(problems[0].Message, first.File()):
				t.Errorf("got %v, which does not name %s", problems, first.File())
			case strings.Contains(problems[0].Error(), "from-env"):
				t.Errorf("a value is in the message: %v", problems)
			}
		})
	}
}

func loadAs(t *testing.T, name, text string, o pipeline.Options) *pipeline.Pipeline {
	t.Helper()
	o.Getenv = testEnv
	p, err := pipeline.Load(write(t, name, text), o)
	if err != nil {
		t.Fatalf("loading:\n%v", err)
	}
	return p
}

// All conflicts of three files are told at once, in the order of the files and of their lines.
func TestConflictsOfSeveralFilesComeInTheirOrder(t *testing.T) {
	text := func(listen string) string { return "gateway: {listen: " + listen + "}\nname: p\n" + ends }
	var got []string
	for _, p := range pipeline.Together(
		loadAs(t, "1.yaml", text("127.0.0.1:1"), pipeline.Options{}), loadAs(t, "2.yaml", text("127.0.0.1:2"), pipeline.Options{}), loadAs(t, "3.yaml", text("127.0.0.1:1"), pipeline.Options{}),
	) {
		got = append(got, filepath.Base(p.File)+" "+p.Path)
	}
	if want := "2.yaml gateway.listen, 2.yaml name, 3.yaml gateway.listen, 3.yaml name"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, ", "), want)
	}
}

// A variable that is not set may become anything: no conflict is made up of it.
func TestVariablesThatAreNotSetAreNoConflict(t *testing.T) {
	text := "name: ${UNSET_NAME}\nsource: {file: {path: '${UNSET_IN}'}}\nsink: {file: {path: out}}\ngateway: {listen: '${UNSET_HOST}:80'}\n"
	o := pipeline.Options{AllowUnset: true}
	if problems := pipeline.Together(loadAs(t, "a.yaml", text, o), loadAs(t, "b.yaml", text, o)); len(problems) > 0 {
		t.Errorf("got %v", problems)
	}
}

// Only where no file names an address the server may take a free port.
func TestTheGatewayIsTheDefaultOnlyWhereNoFileNamesIt(t *testing.T) {
	silent := loadAs(t, "a.yaml", "name: a\n"+ends, pipeline.Options{})
	named := loadAs(t, "b.yaml", "name: b\n"+ends+"gateway: {listen: 127.0.0.1:8081}\n", pipeline.Options{})
	if g, isDefault := pipeline.Gateway(silent); g.Listen != "127.0.0.1:8081" || !isDefault {
		t.Errorf("no file names it: got %q, default %v", g.Listen, isDefault)
	}
	if g, isDefault := pipeline.Gateway(silent, named); g.Listen != "127.0.0.1:8081" || isDefault {
		t.Errorf("a file names it: got %q, default %v", g.Listen, isDefault)
	}
}
