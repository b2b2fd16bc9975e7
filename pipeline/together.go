package pipeline

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/a0c75104/enricher/file"
)

// Together finds what keeps pipelines from sharing a process, in the order of the pipelines. Each problem
// is that of the later file.
func Together(ps ...*Pipeline) Problems {
	var problems Problems
	for i, p := range ps {
		c := &company{decoder: p.reader(), p: p}
		for _, other := range ps[:i] {
			c.name(other)
			c.stdin(other)
		}
		c.gateway(ps[:i])
		c.dataDir(ps[:i])
		problems = append(problems, c.problems.sorted()...)
	}
	return problems
}

// company holds one pipeline against others that were named before it.
type company struct {
	*decoder
	p *Pipeline
}

// reader finds the places of what was loaded. The pipeline itself stays as it is.
func (p *Pipeline) reader() *decoder {
	return &decoder{values: p.read.values, keys: p.read.keys, faulty: map[string]bool{}}
}

// has reports whether the value at path is known: with variables that are not set it may be anything.
func (p *Pipeline) has(path string) bool { return p.read.values[path] != nil && !p.read.fault(path) }

// shown returns the text of the value at path for a message of another file.
func (p *Pipeline) shown(path, text string) string {
	if n := p.read.values[path]; n != nil {
		return n.mask(text)
	}
	return text
}

func (c *company) name(other *Pipeline) {
	if c.p.has("name") && other.has("name") && c.p.Name() == other.Name() && !c.fault("name") {
		c.problem("name", "%q is also the name in %s: names are labels of metrics and must differ", c.p.Name(), other.File())
	}
}

// stdin finds two readers of one stream, of which each would get pieces of lines.
func (c *company) stdin(other *Pipeline) {
	const path = "source.file.path"
	if !c.p.has(path) || !other.has(path) || c.fault(path) {
		return
	}
	own, first := c.p.cfg.Source.File.Path, other.cfg.Source.File.Path
	switch {
	case isStdin(own) && isStdin(first):
		c.problem(path, "is standard input, which %s reads too: a line can go to one of them only", other.File())
	case isPipe(own) && file.Same(own, first):
		c.problem(path, "is the pipe that %s reads too: a line can go to one of them only", other.File())
	}
}

func isStdin(path string) bool {
	return slices.Contains([]string{"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}, filepath.Clean(path))
}

func isPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

func (c *company) dataDir(others []*Pipeline) {
	for _, own := range c.p.cfg.dataDirs() {
		for _, other := range others {
			for _, first := range other.cfg.dataDirs() {
				if !file.Same(own.dir, first.dir) && !c.fault(own.path) {
					c.problem(own.path, "%q differs from %q in %s: a process has one embedded broker", own.dir, other.shown(first.path, first.dir), other.File())
				}
			}
		}
	}
}

// dataDir is a directory of the embedded broker, and the key that names it.
type dataDir struct{ path, dir string }

// dataDirs returns where the embedded broker is to keep its data; they are one in a file without fault.
func (c *config) dataDirs() []dataDir {
	var dirs []dataDir
	take := func(block string, own connection) {
		conn := own.or(c.Kafka)
		d := dataDir{path: "kafka.data_dir", dir: conn.DataDir}
		if own.DataDir != "" {
			d.path = join(block, "data_dir")
		}
		if conn.embedded() && d.dir != "" && !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	if k := c.Source.Kafka; k != nil {
		take("source.kafka", k.connection)
	}
	if k := c.Sink.Kafka; k != nil {
		take("sink.kafka", k.connection)
	}
	if e := c.ErrorSink; e != nil && e.Kafka != nil {
		take("error_sink.kafka", e.Kafka.connection)
	}
	return dirs
}

// dataDirs finds directories within one file that differ.
func (c *checker) dataDirs() {
	dirs := c.cfg.dataDirs()
	for i, d := range dirs {
		if i > 0 && !file.Same(d.dir, dirs[0].dir) && !c.fault(d.path) {
			c.problem(d.path, "%q differs from %s: a process has one embedded broker", d.dir, dirs[0].path)
		}
	}
}
